"""The figures of the experiments, as PNG files."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from lkgp.studies.records import Record

COLOURS = ("#0b6e99", "#e0802b", "#5a8f3c", "#8f4e9e", "#c23b3b", "#777777", "#b59b00", "#3b3bc2")
# Resolution of the experiments' figures, in dots per inch.
DPI = 150


def pyplot() -> Any:
    """matplotlib.pyplot with a backend that needs no display; imported here because it is an optional package."""
    import matplotlib as mpl  # noqa: PLC0415

    mpl.use("Agg")
    import matplotlib.pyplot as plt  # noqa: PLC0415

    return plt


def synthetic(records: Sequence[Record], path: Path) -> None:
    """Kernel time, product time and memory over the number of cells, with and without structure."""
    plt = pyplot()
    figure, axes = plt.subplots(1, 3, figsize=(11, 3.4), layout="constrained")
    panels = (("kernel_seconds", "kernel evaluation, s"), ("product_seconds", "product, s"), ("bytes", "memory, bytes"))
    for axis, (name, title) in zip(axes, panels, strict=True):
        for structured, label, colour in ((False, "without", COLOURS[1]), (True, "latent Kronecker", COLOURS[0])):
            rows = sorted((r["side"] ** 2, r[name]) for r in records if r["structured"] == structured)
            axis.loglog(*zip(*rows, strict=True), "o-", ms=3.5, label=label, color=colour)
        axis.set(xlabel="cells n", title=title)
        axis.grid(alpha=0.3)
    axes[1].legend(frameon=False, loc="upper left")
    figure.savefig(path, dpi=DPI)
    plt.close(figure)


def over_missing(records: Sequence[Record], methods: Sequence[str], path: Path, marks: dict[str, float]) -> None:
    """Test RMSE, test NLL, time and memory over the share of missing cells.

    marks: places of vertical lines, by metric
    """
    plt = pyplot()
    figure, axes = plt.subplots(1, 4, figsize=(13.5, 3.5), layout="constrained")
    panels = (
        ("test_rmse", "test RMSE"),
        ("test_nll", "test NLL"),
        ("seconds", "seconds"),
        ("peak_memory", "peak memory, GB"),
    )
    for axis, (name, title) in zip(axes, panels, strict=True):
        for position, method in enumerate(methods):
            found: dict[float, list[float]] = {}
            for record in records:
                if record["method"] == method and "failed" not in record:
                    found.setdefault(record["missing"], []).append(record[name] / (1e9 if name == "peak_memory" else 1))
            if found:
                shares = sorted(found)
                means = [float(np.mean(found[share])) for share in shares]
                axis.plot(shares, means, "o-", ms=3.5, label=method, color=COLOURS[position % len(COLOURS)])
        if name in ("seconds", "peak_memory"):
            axis.set_yscale("log")
        if name in marks:
            axis.axvline(marks[name], color="#888888", lw=1, ls=":")
        axis.set(xlabel="share missing", title=title)
        axis.grid(alpha=0.3)
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4, frameon=False, fontsize=8)
    figure.savefig(path, dpi=DPI)
    plt.close(figure)


def break_even(rows: Sequence[dict[str, float]], predicted: tuple[float, float], path: Path) -> None:
    """Time of a product and memory of the matrices, with and without structure.

    predicted: the shares at which time and memory should be equal
    """
    plt = pyplot()
    figure, axes = plt.subplots(1, 2, figsize=(8, 3.4), layout="constrained")
    for axis, unit, place in zip(axes, ("seconds", "bytes"), predicted, strict=True):
        shares = [row["missing"] for row in rows]
        for way, label, colour in (
            ("without", "without structure", COLOURS[1]),
            ("with", "latent Kronecker", COLOURS[0]),
        ):
            axis.semilogy(shares, [row[f"{way}_{unit}"] for row in rows], "o-", ms=3.5, color=colour, label=label)
        axis.axvline(place, color="#888888", lw=1, ls=":", label=f"predicted: {place:.2f}")
        axis.set(xlabel="share missing", title={"seconds": "one product, seconds", "bytes": "matrices, bytes"}[unit])
        axis.grid(alpha=0.3)
        axis.legend(frameon=False, fontsize=8)
    figure.savefig(path, dpi=DPI)
    plt.close(figure)


def continued_curves(truth: np.ndarray, shown: dict[str, dict[str, Any]], path: Path) -> None:
    """Training runs that were cut, as each method continues them, with two standard deviations.

    truth: (curves, epochs)
    shown: for each method, mean, low and high, each (curves, epochs), and cuts, (curves,)
    """
    plt = pyplot()
    count = len(truth)
    size = (2.6 * len(shown), 2.1 * count)
    figure, axes = plt.subplots(
        count, len(shown), figsize=size, layout="constrained", sharex=True, sharey="row", squeeze=False
    )
    for column, (method, found) in enumerate(shown.items()):
        for row in range(count):
            axis = axes[row, column]
            curve, cut = truth[row], found["cuts"][row]
            epochs = np.arange(1, len(curve) + 1)
            axis.fill_between(epochs, found["low"][row], found["high"][row], color=COLOURS[0], alpha=0.2, lw=0)
            axis.plot(epochs, found["mean"][row], color=COLOURS[0], lw=1.4)
            axis.plot(epochs[:cut], curve[:cut], "k.", ms=3)
            axis.plot(epochs[cut:], curve[cut:], ".", color=COLOURS[4], ms=3)
            if row == 0:
                axis.set_title(method, fontsize=8)
            if row == count - 1:
                axis.set_xlabel("epoch")
    figure.savefig(path, dpi=DPI)
    plt.close(figure)
