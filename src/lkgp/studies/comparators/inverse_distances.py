"""Inverse-distance weighting of the observed cells (Shepard, 1968)."""

import numpy as np
from scipy.spatial import cKDTree

from lkgp.studies.models.cell_table import interpolate
from lkgp.studies.predictions import Prediction
from lkgp.studies.problems import Problem
from lkgp.studies.registry import BENCHMARK, COMPARATORS, COMPETITION, Comparator, always

INVERSE_DISTANCES = "inverse distances"
# The usual settings in geographic software.
NEIGHBOURS, POWER = 12, 2


def weighted_by_distance(points: np.ndarray, values: np.ndarray, targets: np.ndarray) -> np.ndarray:
    """points: (n, d); values: (n,); targets: (m, d). Returns (m,)."""
    count = min(NEIGHBOURS, len(values))
    distances, nearest = cKDTree(points).query(targets, k=[*range(1, count + 1)])
    # f(x) = sum_i w_i y_i / sum_i w_i,  w_i = |x - x_i|^-p
    weights = np.maximum(distances, np.finfo(float).tiny ** (1 / (2 * POWER))) ** -POWER
    return (weights * values[nearest]).sum(axis=1) / weights.sum(axis=1)


class InverseDistances:
    """The mean of the nearest values, weighted by a power of their inverse distances."""

    def __str__(self) -> str:
        return f"the {NEIGHBOURS} nearest values, weighted by their distances to the power of -{POWER}"

    def fit_predict(self, problem: Problem, seed: int) -> Prediction:
        return interpolate(problem, seed, weighted_by_distance)


COMPARATORS.register(
    Comparator(INVERSE_DISTANCES, always(InverseDistances()), presets=(*COMPETITION, BENCHMARK), order=75)
)
