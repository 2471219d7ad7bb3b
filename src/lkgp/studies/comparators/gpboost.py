"""GPBoost: Gaussian processes by Vecchia's approximation (Sigrist, 2022), with a learned constant mean."""

import time
from dataclasses import dataclass, replace

import numpy as np

from lkgp.errors import InputError
from lkgp.studies.models.cell_table import cell_coords, on_withheld_cells
from lkgp.studies.predictions import Prediction
from lkgp.studies.problems import Problem
from lkgp.studies.registry import BENCHMARK, COMPARATORS, COMPETITION, Comparator, always

# GPBoost's own default for Vecchia's approximation.
NEIGHBOURS = 20
ROUGH, SMOOTH = "GPBoost, Matern-1/2", "GPBoost, Matern-3/2"
SPACE_TIME, GNEITING = "GPBoost, matern_space_time", "GPBoost, space_time_gneiting"
# The kernels of GPBoost that take time as their first column.
OVER_TIME = ("matern_space_time", "space_time_gneiting")
# Which parameters of Gneiting's kernel are learned: the noise, sigma2, a, c, alpha, nu, beta and delta. The smoothness
# nu stays at its start, as in the published comparison on these data (github.com/TimGyger/SpaceTimeGPApprox): a general
# nu takes a Bessel function for every entry.
GNEITING_LEARNED = (1, 1, 1, 1, 1, 0, 1, 1)
# Its neighbours are the nearest cells: the search for the most correlated ones compares all pairs of observations, and
# the first of several such searches had not ended after 20 minutes on one core for 90,000 observations.


@dataclass(frozen=True)
class FitGPBoost:
    """The settings of a fit.

    kernel: GPBoost's name of the covariance function
    smoothness: nu of a Matern kernel
    learned: which parameters are learned, 1 or 0 each; by default all
    nearest_in_space: whether neighbours are the nearest cells, instead of the most correlated ones
    """

    kernel: str
    smoothness: float = 1.5
    neighbours: int = NEIGHBOURS
    learned: tuple[int, ...] | None = None
    nearest_in_space: bool = False

    def __str__(self) -> str:
        fixed = "" if self.learned is None else ", which is not learned"
        nearest = " by distance in scaled coordinates, not by correlation" if self.nearest_in_space else ""
        return f"{self.kernel} of smoothness {self.smoothness:g}{fixed}; {self.neighbours} neighbours{nearest}"

    def fit_predict(self, problem: Problem, seed: int) -> Prediction:
        """Only withheld cells are predicted."""
        import gpboost  # noqa: PLC0415  (an optional package)

        space, times = cell_coords(problem)
        if self.kernel in OVER_TIME and times is None:
            raise InputError(f"GPBoost's {self.kernel} needs a factor of time, which this problem does not have.")
        coords = space if times is None else np.concatenate([times, space], axis=1)
        seen, values = problem.observed.ravel(), problem.values.ravel()
        began = time.perf_counter()
        model = gpboost.GPModel(
            gp_coords=coords[seen],
            cov_function=self.kernel,
            cov_fct_shape=self.smoothness,
            gp_approx="vecchia_euclidean" if self.nearest_in_space else "vecchia",
            num_neighbors=self.neighbours,
            likelihood="gaussian",
            seed=seed,
        )
        params = None if self.learned is None else {"estimate_cov_par_index": np.array(self.learned)}
        model.fit(y=values[seen], X=np.ones((int(seen.sum()), 1)), params=params)
        seconds = {"fit": time.perf_counter() - began}
        began = time.perf_counter()
        # The response includes the noise.
        found = model.predict(
            gp_coords_pred=coords[~seen],
            X_pred=np.ones((int((~seen).sum()), 1)),
            predict_var=True,
            predict_response=True,
        )
        seconds["predictions"] = time.perf_counter() - began
        parameters = model.get_cov_pars(format_pandas=False)
        report = {"parameters": np.asarray(parameters, dtype=float).ravel().tolist()}
        prediction = on_withheld_cells(problem, found["mu"], np.sqrt(found["var"]), seconds)
        return replace(prediction, report=report)


for position, (name, method) in enumerate(
    (
        (ROUGH, FitGPBoost("matern", 0.5)),
        (SMOOTH, FitGPBoost("matern", 1.5)),
        (SPACE_TIME, FitGPBoost("matern_space_time")),
        (GNEITING, FitGPBoost("space_time_gneiting", learned=GNEITING_LEARNED, nearest_in_space=True)),
    )
):
    COMPARATORS.register(
        Comparator(name, always(method), presets=(*COMPETITION, BENCHMARK), needs=("gpboost",), order=70 + position)
    )
