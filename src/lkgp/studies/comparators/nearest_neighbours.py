"""scikit-learn's nearest neighbours on the observed cells, with its defaults: the mean of the five nearest values."""

import numpy as np

from lkgp.studies.models.cell_table import interpolate
from lkgp.studies.predictions import Prediction
from lkgp.studies.problems import Problem
from lkgp.studies.registry import BENCHMARK, COMPARATORS, COMPETITION, Comparator, always

NEAREST = "nearest neighbours"


def mean_of_nearest(points: np.ndarray, values: np.ndarray, targets: np.ndarray) -> np.ndarray:
    """points: (n, d); values: (n,); targets: (m, d). Returns (m,)."""
    from sklearn.neighbors import KNeighborsRegressor  # noqa: PLC0415  (an optional package)

    predicted: np.ndarray = KNeighborsRegressor(min(5, len(values))).fit(points, values).predict(targets)
    return predicted


class NearestNeighbours:
    """The mean of the nearest values."""

    def __str__(self) -> str:
        return "the mean of the five nearest values"

    def fit_predict(self, problem: Problem, seed: int) -> Prediction:
        return interpolate(problem, seed, mean_of_nearest)


COMPARATORS.register(
    Comparator(NEAREST, always(NearestNeighbours()), presets=(*COMPETITION, BENCHMARK), needs=("sklearn",), order=74)
)
