"""Linear interpolation between the observed cells, from SciPy."""

import numpy as np
from scipy.interpolate import LinearNDInterpolator
from scipy.spatial import cKDTree

from lkgp.studies.models.cell_table import interpolate
from lkgp.studies.predictions import Prediction
from lkgp.studies.problems import Problem
from lkgp.studies.registry import BENCHMARK, COMPARATORS, COMPETITION, Comparator, always

LINEAR = "linear interpolation"


def between_neighbours(points: np.ndarray, values: np.ndarray, targets: np.ndarray) -> np.ndarray:
    """Linear inside each simplex of a Delaunay triangulation; the nearest value outside of all.

    points: (n, d); values: (n,); targets: (m, d). Returns (m,).
    """
    predicted = np.asarray(LinearNDInterpolator(points, values)(targets))
    outside = np.isnan(predicted)
    predicted[outside] = values[cKDTree(points).query(targets[outside])[1]]
    return predicted


class LinearInterpolation:
    """Linear interpolation over all coordinates at once."""

    def __str__(self) -> str:
        return "linear between neighbours, the nearest value beyond the outermost"

    def fit_predict(self, problem: Problem, seed: int) -> Prediction:
        return interpolate(problem, seed, between_neighbours)


COMPARATORS.register(Comparator(LINEAR, always(LinearInterpolation()), presets=(*COMPETITION, BENCHMARK), order=76))
