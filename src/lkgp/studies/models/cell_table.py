"""A problem as a table with one row per cell, for comparators that make no use of the grid."""

import time
from collections.abc import Callable

import numpy as np

from lkgp.studies.predictions import Prediction
from lkgp.studies.problems import Problem

# Predicts at targets (m, d) from values (n,) at points (n, d).
Interpolator = Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]
# The share of the observed values from whose errors the error bars of an interpolator come.
HELD_OUT = 0.1


def cell_coords(problem: Problem) -> tuple[np.ndarray, np.ndarray | None]:
    """The coordinates of every cell, (N, d), without time; and its time, (N, 1), if a factor is time."""
    first, second = (np.asarray(x, dtype=float) for x in problem.coords)
    columns = [np.repeat(first, len(second), axis=0), np.tile(second, (len(first), 1))]
    if problem.time is None:
        return np.concatenate(columns, axis=1), None
    return columns[1 - problem.time], columns[problem.time]


def comparable_coords(problem: Problem) -> np.ndarray:
    """The coordinates of every cell, (N, d), with time scaled to vary as much as the others do on average."""
    space, times = cell_coords(problem)
    if times is None:
        return space
    return np.concatenate([space, times * (space.std(axis=0).mean() / (times.std() or 1.0))], axis=1)


def on_withheld_cells(problem: Problem, mean: np.ndarray, std: np.ndarray, seconds: dict[str, float]) -> Prediction:
    """The prediction of a comparator that predicts withheld cells only; the observed ones get a standard Gaussian.

    mean, std: of the withheld cells in turn, (m,)
    """
    grid_mean, grid_std = np.zeros(problem.values.shape), np.ones(problem.values.shape)
    grid_mean[~problem.observed], grid_std[~problem.observed] = mean, std
    return Prediction(grid_mean, grid_std, seconds=seconds)


def interpolate(problem: Problem, seed: int, interpolator: Interpolator) -> Prediction:
    """Fill the withheld cells by a method without error bars.

    They get the same error bar everywhere: the root mean squared error on observed values that are held out at random.
    """
    began = time.perf_counter()
    seen = problem.observed.ravel()
    coords = comparable_coords(problem)
    points, values = coords[seen], problem.values.ravel()[seen]
    held_out = np.zeros(len(values), dtype=bool)
    held_out[np.random.default_rng(seed).permutation(len(values))[: max(1, int(HELD_OUT * len(values)))]] = True
    guess = interpolator(points[~held_out], values[~held_out], points[held_out])
    spread = float(np.sqrt(np.mean((guess - values[held_out]) ** 2)))
    mean = interpolator(points, values, coords[~seen])
    seconds = {"fit and predictions": time.perf_counter() - began}
    # Values that are predicted perfectly would have no density.
    return on_withheld_cells(problem, mean, np.full(len(mean), max(spread, 1e-12)), seconds)
