"""Can the error bars be trusted? Cells are withheld the way the gaps of the data look, predicted, and compared with simpler ways."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from scipy.spatial import cKDTree
from scipy.stats import norm

from lkgp import metrics
from lkgp.errors import InputError
from lkgp.xarray.field import FittedField, Layout
from lkgp.xarray.gaps import withhold
from lkgp.xarray.kernels import SAMPLES_A_CYCLE
from lkgp.xarray.outlook import from_series, series, time_axis, time_order
from lkgp.xarray.points import NUMBERS

LEVELS = (0.5, 0.8, 0.95)
# Of larger fields, a window in time of about so many cells is validated; it has at least so many times.
MOST_CELLS, LEAST_TIMES = 200_000, 48
# Levels of the calibration plot.
CURVE = tuple(np.round(np.arange(0.05, 1.0, 0.05), 2).tolist())


@dataclass(frozen=True, eq=False)
class Validation:
    """How well withheld cells were predicted.

    scores: by way of prediction, lkgp first: rmse, nll, crps, and the share of values inside intervals of 50, 80 and 95 %
    calibration: pairs of a probability and the share of withheld values inside lkgp's interval of that probability
    factor: by which error bars must be multiplied for their 95 % intervals to hold 95 % of the withheld values
    withheld: cells; how: were they chosen
    """

    name: str
    units: str
    scores: dict[str, dict[str, float]]
    calibration: list[tuple[float, float]]
    factor: float
    withheld: int
    how: str

    def __str__(self) -> str:
        lines = [
            f"{self.withheld} cells of {self.name} withheld ({self.how}) and predicted; the others' error bars are as wide as their errors"
        ]
        lines.append(f"{'':28}{'RMSE':>10}{'NLL':>10}{'CRPS':>10}{'in 50 %':>10}{'in 80 %':>10}{'in 95 %':>10}")
        for way, row in self.scores.items():
            shares = "".join(f"{row[f'in_{level:.0%}']:>10.1%}" for level in LEVELS)
            lines.append(f"{way:28}{row['rmse']:>10.4g}{row['nll']:>10.4g}{row['crps']:>10.4g}{shares}")
        lines.append(f"95 % intervals hold 95 % of them with error bars {self.factor:.2f} times as wide")
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        return dict(vars(self))


def validate(model: FittedField, *, share: float = 0.1, seed: int = 0) -> Validation:
    """Withhold about a share of the observed cells, condition on the others with the hyperparameters as they are, and predict.

    Large fields are validated in a window of time, chosen at random.
    """
    if not 0 < share < 1:
        raise InputError(f"share must be between 0 and 1, not {share}.")
    layout, generator = model.layout, np.random.default_rng(seed)
    values = layout.to_grid(model.observed)
    seen = np.isfinite(values)
    window, where = chosen_window(layout, values.shape, generator)
    rows = np.zeros_like(series(seen, layout))
    rows[:, window], how = withhold(series(seen, layout)[:, window], share, generator)
    hidden = from_series(rows, seen.shape, layout)
    if not hidden.any() or not (seen & ~hidden).any():
        raise InputError("there are too few observed cells to withhold some of them.")
    left = np.where(hidden, np.nan, values)
    axis, times = time_axis(layout), np.sort(time_order(layout)[window])
    points = [x[times] if k == axis else x for k, x in enumerate(layout.points())]
    found = model.gp.conditioned_on(np.take(left, times, axis), points).predict(observation_noise=True)
    mean, std = (embedded(part, times, axis, values.shape) for part in found)
    truth = values[hidden]
    scores = {"lkgp": scored(truth, mean[hidden], std[hidden])}
    for way, predict in (WAYS if layout.time is not None else WAYS_WITHOUT_TIME).items():
        guess = predict(left, layout)[hidden]
        # A constant error bar, as wide as the errors turn out to be: more than they could know.
        scores[way] = scored(
            truth, guess, np.full_like(guess, max(float(np.sqrt(np.mean((guess - truth) ** 2))), 1e-300))
        )
    y, m, s = tensors(truth, mean[hidden], std[hidden])
    calibration = [(level, metrics.coverage(y, m, s, level)) for level in CURVE]
    factor = float(np.quantile(np.abs(truth - mean[hidden]) / std[hidden], 0.95) / norm.ppf(0.975))
    return Validation(
        model.name,
        str(layout.field.attrs.get("units", "")),
        scores,
        calibration,
        factor,
        int(hidden.sum()),
        how + where,
    )


def chosen_window(layout: Layout, shape: tuple[int, ...], generator: np.random.Generator) -> tuple[slice, str]:
    """Of the times, from the first to the last, those in which to validate, and what to say of it."""
    times = shape[time_axis(layout)]
    length = min(times, max(MOST_CELLS * times // int(np.prod(shape)), LEAST_TIMES))
    if length == times or layout.time is None:
        return slice(0, times), ""
    start = int(generator.integers(times - length + 1))
    return slice(start, start + length), f", in {length} of the {times} times"


def embedded(part: np.ndarray, times: np.ndarray, axis: int, shape: tuple[int, ...]) -> np.ndarray:
    """An array of some times along an axis in one of all of them, NaN elsewhere."""
    whole = np.full(shape, np.nan)
    whole[(slice(None),) * axis + (times,)] = part
    return whole


def scored(truth: np.ndarray, mean: np.ndarray, std: np.ndarray) -> dict[str, float]:
    """RMSE, NLL, CRPS and coverage of withheld values; all arrays (withheld,)."""
    y, m, s = tensors(truth, mean, std)
    found = {"rmse": metrics.rmse(y, m), "nll": metrics.nll(y, m, s), "crps": metrics.crps(y, m, s)}
    return found | {f"in_{level:.0%}": metrics.coverage(y, m, s, level) for level in LEVELS}


def tensors(*arrays: np.ndarray) -> list[torch.Tensor]:
    return [torch.as_tensor(array, dtype=torch.float64) for array in arrays]


# Simpler ways; each takes values (n_1, ..., n_d) with NaN where they are missing, and fills them all.


def linear(values: np.ndarray, layout: Layout) -> np.ndarray:
    """Linear interpolation in time, the nearest value beyond the ends; the mean of all where a series has no value."""
    x = layout.points()[time_axis(layout)][time_order(layout), 0]
    rows = series(values, layout).copy()
    for row in rows:
        known = np.isfinite(row)
        row[:] = np.interp(x, x[known], row[known]) if known.any() else np.nanmean(values)
    return from_series(rows, values.shape, layout)


def climatology(values: np.ndarray, layout: Layout) -> np.ndarray:
    """The mean of the same hour of other days, or of the same month of other years, at the same place; its mean where neither is."""
    phase = phases(layout)[time_order(layout)]
    rows = series(values, layout)
    filled = np.empty_like(rows)
    overall = means(rows, np.nanmean(rows))
    for name in np.unique(phase):
        chosen = phase == name
        filled[:, chosen] = means(rows[:, chosen], overall)[:, None]
    return from_series(filled, values.shape, layout)


def means(rows: np.ndarray, otherwise: Any) -> np.ndarray:
    """The mean of what is known in each row of (m, t), or what it is `otherwise`, (m,)."""
    known = np.isfinite(rows)
    return np.where(
        known.any(axis=1), np.where(known, rows, 0.0).sum(axis=1) / np.maximum(known.sum(axis=1), 1), otherwise
    )


def phases(layout: Layout) -> np.ndarray:
    """The hour of the day, the month of the year, or nothing, of every time, (t,)."""
    dim = layout.time
    if dim is None or layout.rulers[time_axis(layout)].calendar == NUMBERS:
        return np.zeros(len(layout.kept[time_axis(layout)]), dtype=int)
    when: Any = layout.field[dim]
    days = (
        layout.rulers[time_axis(layout)].measure(layout.field.coords)[:, 0] * layout.rulers[time_axis(layout)].scale[0]
    )
    step = float(np.median(np.diff(np.unique(days)))) if len(days) > 1 else np.inf
    if step * SAMPLES_A_CYCLE <= 1.0 + 1e-6:
        return when.dt.hour.values
    return when.dt.month.values if np.ptp(days) > 400 else np.zeros(len(days), dtype=int)


def nearest(values: np.ndarray, layout: Layout) -> np.ndarray:
    """The value of the nearest place at the same time; of the nearest time where none has one."""
    axis = time_axis(layout)
    points = [x for k, x in enumerate(layout.points()) if k != axis]
    places = products(points) if points else np.zeros((1, 1))
    rows = series(values, layout)
    filled = series(linear(values, layout), layout).copy()
    for t in range(rows.shape[1]):
        known = np.flatnonzero(np.isfinite(rows[:, t]))
        if len(known):
            filled[:, t] = rows[known[cKDTree(places[known]).query(places)[1]], t]
    return from_series(filled, values.shape, layout)


WAYS: dict[str, Callable[[np.ndarray, Layout], np.ndarray]] = {
    "linear in time": linear,
    "climatology": climatology,
    "nearest place": nearest,
}


def nearest_cell(values: np.ndarray, layout: Layout) -> np.ndarray:
    """The value of the nearest cell that has one, along all factors at once."""
    cells = products(layout.points())
    known = np.flatnonzero(np.isfinite(values).ravel())
    return values.ravel()[known[cKDTree(cells[known]).query(cells)[1]]].reshape(values.shape)


def overall_mean(values: np.ndarray, layout: Layout) -> np.ndarray:
    return np.full_like(values, np.nanmean(values))


def products(points: Sequence[np.ndarray]) -> np.ndarray:
    """All combinations of points (n_k, d_k), side by side, (n_1 ... n_d, d_1 + ... + d_d)."""
    index = np.indices([len(x) for x in points]).reshape(len(points), -1)
    return np.concatenate([x[i] for x, i in zip(points, index, strict=True)], axis=1)


WAYS_WITHOUT_TIME: dict[str, Callable[[np.ndarray, Layout], np.ndarray]] = {
    "nearest cell": nearest_cell,
    "mean": overall_mean,
}
