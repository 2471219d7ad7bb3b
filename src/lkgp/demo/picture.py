"""The picture of the demonstration."""

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backend_bases import FigureCanvasBase

from lkgp.demo.curves import LEVELS, Forecast
from lkgp.errors import FileError
from lkgp.persistence.atomic import write_atomically

INK, PAST, FAN, NAIVE = "#22303c", "#22303c", "#2a7f9e", "#c0562f"
# Half-widths of the central 95, 80 and 50 % intervals of a normal distribution, in standard deviations, and opacities.
BANDS = ((1.96, 0.16), (1.2816, 0.2), (0.6745, 0.28))


def check_figure_format(path: Path) -> None:
    """Refuse a name from whose ending no format of figures follows."""
    known = FigureCanvasBase.get_supported_filetypes()
    if path.suffix.lower().removeprefix(".") not in known:
        endings = ", ".join(f".{name}" for name in sorted(known))
        raise FileError(f"{path} has an unknown format of figures; its name must end in one of {endings}.")


def draw(forecast: Forecast, path: str | Path) -> None:
    """Draw eight curves with their forecasts, predicted against true final values, and the calibration."""
    plt.rcParams.update({"font.size": 9, "axes.edgecolor": "#9aa5ad", "text.color": INK, "axes.labelcolor": INK})
    figure = plt.figure(figsize=(13, 7.2), layout="constrained")
    grid = figure.add_gridspec(2, 6)
    chosen = choose(forecast)
    for place, network in enumerate(chosen):
        curve(
            figure.add_subplot(grid[place // 4, place % 4]),
            forecast,
            network,
            legend=place == 0,
            first_column=place % 4 == 0,
        )
    finals(figure.add_subplot(grid[0, 4:]), forecast)
    calibration(figure.add_subplot(grid[1, 4:]), forecast)
    stopped = int(np.isnan(forecast.seen).any(axis=1).sum())
    figure.suptitle(
        f"How will these training runs end?  {len(forecast.seen)} networks on digits, "
        f"{stopped} of them stopped early and forecast by lkgp",
        fontsize=13,
        fontweight="bold",
    )
    write_atomically(Path(path), lambda temporary: figure.savefig(temporary, dpi=130))
    plt.close(figure)


def choose(forecast: Forecast) -> list[int]:
    """Eight curves that were stopped, evenly spaced from the worst to the best true final value."""
    stopped = np.flatnonzero(np.isnan(forecast.seen[:, -1]))
    order = stopped[np.argsort(forecast.truth[stopped, -1])]
    return [int(i) for i in order[np.linspace(0, len(order) - 1, 8).round().astype(int)]]


def curve(axes: Axes, forecast: Forecast, network: int, legend: bool, first_column: bool) -> None:
    """One curve: what was seen, what was withheld, and the forecast with its 50, 80 and 95 % intervals."""
    x, mean, std = forecast.epochs, forecast.mean[network], forecast.std[network]
    unseen = np.isnan(forecast.seen[network])
    first = int(np.argmax(unseen))
    future = slice(max(first - 1, 0), None)
    for width, shade in BANDS:
        axes.fill_between(
            x[future], (mean - width * std)[future], (mean + width * std)[future], color=FAN, alpha=shade, linewidth=0
        )
    axes.plot(x[future], mean[future], color=FAN, linewidth=1.8, label="forecast, 50/80/95 %")
    axes.plot(x[future], forecast.last[network][future], color=NAIVE, linewidth=1.2, linestyle=":", label="last value")
    axes.plot(
        x[unseen],
        forecast.truth[network, unseen],
        "o",
        markersize=2.6,
        markerfacecolor="white",
        markeredgecolor=PAST,
        label="withheld",
    )
    axes.plot(
        x[~unseen], forecast.seen[network, ~unseen], "o-", markersize=2.6, color=PAST, linewidth=1.2, label="seen"
    )
    axes.set_ylim(-0.02, 1.04)
    axes.set_title(f"network {network}, {first} epochs seen", fontsize=9)
    axes.set_xlabel("epoch")
    if first_column:
        axes.set_ylabel("validation accuracy")
    axes.grid(alpha=0.2)
    if legend:
        axes.legend(frameon=False, fontsize=7.5, loc="upper left")


def finals(axes: Axes, forecast: Forecast) -> None:
    """Predicted against true final accuracy of the stopped curves, with 95 % intervals, and the naive forecasts."""
    stopped = np.isnan(forecast.seen[:, -1])
    truth = forecast.truth[stopped, -1]
    axes.plot([0, 1], [0, 1], color="#9aa5ad", linewidth=1)
    axes.errorbar(
        truth, forecast.mean[stopped, -1], yerr=1.96 * forecast.std[stopped, -1], fmt="none", ecolor=FAN, alpha=0.18
    )
    axes.plot(truth, forecast.last[stopped, -1], "x", markersize=3.5, color=NAIVE, alpha=0.7, label="last value")
    axes.plot(truth, forecast.mean[stopped, -1], "o", markersize=3.5, color=FAN, label="lkgp, with 95 % intervals")
    axes.set_ylim(-0.1, 1.2)
    axes.set_xlabel("true final accuracy")
    axes.set_ylabel("predicted final accuracy")
    axes.set_title("predicted and true final accuracy", fontsize=9)
    axes.grid(alpha=0.2)
    axes.legend(frameon=False, loc="upper left")


def calibration(axes: Axes, forecast: Forecast) -> None:
    """The fraction of withheld values inside each central interval against its nominal coverage."""
    hidden = np.isnan(forecast.seen)
    z = np.abs(forecast.truth - forecast.mean)[hidden] / forecast.std[hidden]
    levels = np.linspace(0.01, 0.99, 99)
    # quantiles of |z| for standard normal z
    widths = np.quantile(np.abs(np.random.default_rng(0).standard_normal(200_000)), levels)
    axes.plot([0, 1], [0, 1], color="#9aa5ad", linewidth=1, label="perfect")
    axes.plot(levels, [(z <= width).mean() for width in widths], color=FAN, linewidth=2, label="lkgp")
    axes.plot(LEVELS, forecast.ours.coverage, "o", color=FAN)
    axes.plot(LEVELS, forecast.naive.coverage, "x", color=NAIVE, label="last value")
    axes.set_xlabel("nominal coverage")
    axes.set_ylabel("fraction of withheld values inside")
    axes.set_title("calibration of the error bars", fontsize=9)
    axes.grid(alpha=0.2)
    axes.legend(frameon=False, loc="upper left")
