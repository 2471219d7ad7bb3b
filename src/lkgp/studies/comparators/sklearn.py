"""scikit-learn's exact GP on the observed cells, with squared exponentials only; it draws no samples."""

import time
import warnings

import numpy as np

from lkgp.studies.predictions import Prediction
from lkgp.studies.problems import FIRST_NOISE, Problem
from lkgp.studies.registry import BENCHMARK, COMPARATORS, Comparator, always


class FitScikitLearn:
    """`GaussianProcessRegressor` over rows, one per observed cell."""

    def fit_predict(self, problem: Problem, seed: int) -> Prediction:
        """Only withheld cells are predicted; the observed ones get a standard Gaussian."""
        from sklearn.gaussian_process import GaussianProcessRegressor  # noqa: PLC0415  (an optional package)
        from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel  # noqa: PLC0415

        first, second = problem.coords
        rows = np.concatenate([np.repeat(first, len(second), axis=0), np.tile(second, (len(first), 1))], axis=1)
        flat, seen = problem.values.ravel(), problem.observed.ravel()
        kernel = ConstantKernel(FIRST_NOISE) * RBF(np.full(rows.shape[1], FIRST_NOISE)) + WhiteKernel(FIRST_NOISE)
        began = time.perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about hyperparameters at their bounds
            model = GaussianProcessRegressor(kernel).fit(rows[seen], flat[seen] - flat[seen].mean())
        seconds = {"fit": time.perf_counter() - began}
        began = time.perf_counter()
        mean, std = model.predict(rows[~seen], return_std=True)
        seconds["predictions"] = time.perf_counter() - began
        grid_mean, grid_std = np.zeros(problem.values.shape), np.ones(problem.values.shape)
        grid_mean[~problem.observed], grid_std[~problem.observed] = mean + flat[seen].mean(), std
        return Prediction(grid_mean, grid_std, seconds=seconds)


COMPARATORS.register(
    Comparator("scikit-learn", always(FitScikitLearn()), presets=(BENCHMARK,), needs=("sklearn",), order=51)
)
