"""Simple ways to fill gaps, with which lkgp is compared in a validation.

Each takes values (n_1, ..., n_d) with NaN where they are missing, and returns them with every cell filled.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from scipy.spatial import cKDTree

from lkgp.xarray.coordinate_scaling import PLAIN_NUMBERS
from lkgp.xarray.kernels import SAMPLES_PER_CYCLE
from lkgp.xarray.layout import Layout
from lkgp.xarray.time_series import from_series, time_axis, time_order, to_series

Baseline = Callable[[np.ndarray, Layout], np.ndarray]

# Data that span more days than this repeat at least a part of the year, so that a monthly climatology says something.
MIN_DAYS_FOR_MONTHS = 400


def linear_in_time(values: np.ndarray, layout: Layout) -> np.ndarray:
    """Linear interpolation in time, constant beyond the ends; the overall mean for a series without any value."""
    x = layout.points()[time_axis(layout)][time_order(layout), 0]
    rows = to_series(values, layout).copy()
    for row in rows:
        known = np.isfinite(row)
        row[:] = np.interp(x, x[known], row[known]) if known.any() else np.nanmean(values)
    return from_series(rows, values.shape, layout)


def climatology(values: np.ndarray, layout: Layout) -> np.ndarray:
    """The mean over the same hour of the day, or the same month of the year, at the same place.

    Where there is no such value, the mean of the place; where the place has no value, the overall mean.
    """
    phase = phases(layout)[time_order(layout)]
    rows = to_series(values, layout)
    filled = np.empty_like(rows)
    overall = row_means(rows, np.nanmean(rows))
    for name in np.unique(phase):
        selected = phase == name
        filled[:, selected] = row_means(rows[:, selected], overall)[:, None]
    return from_series(filled, values.shape, layout)


def row_means(rows: np.ndarray, default: Any) -> np.ndarray:
    """The mean of the known values in each row of (m, t), or the default where a row has none, (m,)."""
    known = np.isfinite(rows)
    sums = np.where(known, rows, 0.0).sum(axis=1)
    return np.where(known.any(axis=1), sums / np.maximum(known.sum(axis=1), 1), default)


def phases(layout: Layout) -> np.ndarray:
    """The hour of the day of every time, or its month, or zero if the times resolve or repeat neither, (t,)."""
    scaling = layout.scalings[time_axis(layout)]
    if layout.time is None or scaling.calendar == PLAIN_NUMBERS:
        return np.zeros(len(layout.on_grid[time_axis(layout)]), dtype=int)
    times: Any = layout.field[layout.time]
    days = scaling.to_points(layout.field.coords)[:, 0] * scaling.scale[0]
    step = float(np.median(np.diff(np.unique(days)))) if len(days) > 1 else np.inf
    if step * SAMPLES_PER_CYCLE <= 1.0 + 1e-6:
        return times.dt.hour.values
    return times.dt.month.values if np.ptp(days) > MIN_DAYS_FOR_MONTHS else np.zeros(len(days), dtype=int)


def nearest_place(values: np.ndarray, layout: Layout) -> np.ndarray:
    """The value of the nearest place at the same time; linear in time where no place has one."""
    axis = time_axis(layout)
    points = [x for k, x in enumerate(layout.points()) if k != axis]
    places = product_points(points) if points else np.zeros((1, 1))
    rows = to_series(values, layout)
    filled = to_series(linear_in_time(values, layout), layout).copy()
    for t in range(rows.shape[1]):
        known = np.flatnonzero(np.isfinite(rows[:, t]))
        if len(known):
            filled[:, t] = rows[known[cKDTree(places[known]).query(places)[1]], t]
    return from_series(filled, values.shape, layout)


def nearest_cell(values: np.ndarray, layout: Layout) -> np.ndarray:
    """The value of the nearest cell that has one, over all factors at once."""
    cells = product_points(layout.points())
    known = np.flatnonzero(np.isfinite(values).ravel())
    return values.ravel()[known[cKDTree(cells[known]).query(cells)[1]]].reshape(values.shape)


def overall_mean(values: np.ndarray, layout: Layout) -> np.ndarray:
    """The mean of all values."""
    return np.full_like(values, np.nanmean(values))


def product_points(points: Sequence[np.ndarray]) -> np.ndarray:
    """All combinations of the points (n_k, d_k) of some factors, side by side, (n_1 ... n_d, d_1 + ... + d_d)."""
    index = np.indices([len(x) for x in points]).reshape(len(points), -1)
    return np.concatenate([x[i] for x, i in zip(points, index, strict=True)], axis=1)


BASELINES: dict[str, Baseline] = {
    "linear in time": linear_in_time,
    "climatology": climatology,
    "nearest place": nearest_place,
}
BASELINES_WITHOUT_TIME: dict[str, Baseline] = {"nearest cell": nearest_cell, "mean": overall_mean}
