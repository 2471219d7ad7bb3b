"""Cells of a grid as time series in chronological order, and back."""

import numpy as np

from lkgp.xarray.layout import Layout


def time_axis(layout: Layout) -> int:
    """The axis of time in the grid, or the last axis if there is no time."""
    return next((k for k, factor in enumerate(layout.factors) if factor.kind == "time"), len(layout.factors) - 1)


def time_order(layout: Layout) -> np.ndarray:
    """The positions of the times in chronological order, whatever their order in the field, (t,)."""
    axis = time_axis(layout)
    if layout.time is None:
        return np.arange(int(layout.on_grid[axis].sum()))
    return np.argsort(layout.points()[axis][:, 0], kind="stable")


def to_series(cells: np.ndarray, layout: Layout) -> np.ndarray:
    """Cells (n_1, ..., n_d) as series (m, t) over time, or along the last factor if there is no time."""
    axis = time_axis(layout)
    return np.moveaxis(cells, axis, -1).reshape(-1, cells.shape[axis])[:, time_order(layout)]


def from_series(series: np.ndarray, shape: tuple[int, ...], layout: Layout) -> np.ndarray:
    """The inverse of `to_series`: series (m, t) as cells of the shape (n_1, ..., n_d)."""
    axis = time_axis(layout)
    others = [n for k, n in enumerate(shape) if k != axis]
    return np.moveaxis(series[:, np.argsort(time_order(layout))].reshape(*others, shape[axis]), -1, axis)
