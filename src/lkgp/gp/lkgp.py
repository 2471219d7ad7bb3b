"""The main class, `LKGP`: fit, predict, sample, save and load."""

import copy
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from gpytorch.kernels import Kernel
from gpytorch.likelihoods import GaussianLikelihood
from torch import Tensor

from lkgp.concurrency import Lock
from lkgp.data.grid import PartialGrid
from lkgp.data.readers import ArrayKind, Observations, add_cells, from_array, from_table, same_measurements
from lkgp.data.standardization import Standardization
from lkgp.errors import InputError, NotFittedError, complain
from lkgp.fitting import Optimizer
from lkgp.gp.fitted import Fitted
from lkgp.gp.new_model import new_model
from lkgp.gp.pipeline import Engine
from lkgp.gp.requests import as_seed, in_units, noise_at, noise_everywhere, requested_points, std_in_units
from lkgp.inference import Choice, Plan, check_choice, plan
from lkgp.model import LatentKroneckerGP, Mean, Noise
from lkgp.persistence import ModelContents
from lkgp.persistence.damage import naming_the_file
from lkgp.persistence.estimator import build_settings_of, describe_settings_of
from lkgp.persistence.fitted import describe_state, rebuild_state
from lkgp.persistence.state import FittedState
from lkgp.persistence.state_checks import check_contents
from lkgp.posterior import Posterior, row_means, row_moments
from lkgp.report import Report, print_progress

Array = Any  # a NumPy array or a torch tensor

# Added to the seed of the draws, so that observation noise does not reuse the random numbers of the draws themselves.
OBSERVATION_SEED = 104729


class LKGP:
    """An exact Gaussian process for data on a grid with holes.

    kernels: one GPyTorch kernel per factor; by default a Matern-5/2 kernel over each. They are copied, not changed; a
        kernel given for two factors becomes two kernels, each with its own parameters.
    mean: a number, in the units of the data, fixes the mean; None learns a constant; or a `Mean`, in scaled units
    noise: the initial value of the learned noise variance, or a GaussianLikelihood with its own prior and constraint,
        or a `Noise`
    standardize: whether values and coordinates are scaled to variance one before they are modelled; "values" or
        "coordinates" scales only one of them. Kernels and noise are in the scaled units, or in the caller's own units
        if False. Columns read by an IndexKernel or a HammingIMQKernel are never scaled.
    solver: "auto", or Direct(...), Spectral(...), ObservationSpace(...), or one of the linear solvers
    optimizer: "auto", BFGS(...), LBFGS(...) or Adam(...)
    dtype: dtype of the computation; results have the dtype of the data
    device: device of the computation; by default that of the data
    seed: random seed
    progress: True writes a line to standard error at each step; a function is called with (step, objective per
        observation)
    max_memory: limit in bytes on the large arrays in memory at once
    strict: whether a fit or solve that does not converge raises an error instead of a warning

    Once fitted, it may be used by several threads at the same time; `fit` and `update` replace the fit in one step.

    After `fit`: `model_` (the LatentKroneckerGP with its hyperparameters, in scaled units), `grid_` (the PartialGrid,
        in the caller's units), `posterior_` (in scaled units) and `report_` (what was done).
    """

    def __init__(
        self,
        kernels: Sequence[Kernel] | None = None,
        *,
        mean: float | Mean | None = None,
        noise: float | GaussianLikelihood | Noise = 0.05,
        standardize: bool | Literal["values", "coordinates"] = True,
        solver: Choice = "auto",
        optimizer: Optimizer | Literal["auto"] = "auto",
        dtype: torch.dtype = torch.float64,
        device: torch.device | str | None = None,
        seed: int = 0,
        progress: bool | Callable[[int, float], None] = False,
        max_memory: float | None = None,
        strict: bool = False,
    ) -> None:
        if standardize not in (True, False, "values", "coordinates"):
            raise InputError(f"standardize must be True, False, 'values' or 'coordinates', not {standardize!r}.")
        if dtype not in (torch.float32, torch.float64):
            raise InputError(f"dtype must be torch.float32 or torch.float64, not {dtype}.")
        check_choice(solver)
        if optimizer != "auto" and not isinstance(optimizer, Optimizer):
            raise InputError(f"optimizer must be 'auto', BFGS(...), LBFGS(...) or Adam(...), not {optimizer!r}.")
        self.kernels, self.mean, self.noise, self.standardize = kernels, mean, noise, standardize
        self.solver, self.optimizer, self.dtype, self.device = solver, optimizer, dtype, device
        self.seed, self.progress, self.max_memory, self.strict = as_seed(seed), progress, max_memory, strict
        self._fit: Fitted | None = None
        self._updates = Lock()

    # Fitting

    def fit(
        self, coords: Sequence[Array], Y: Array, *, noise_variance: Array | None = None, optimize: bool = True
    ) -> "LKGP":
        """Fit to a grid-shaped array in which NaN means missing; returns self.

        coords: one array per factor, (n_k,) or (n_k, d_k)
        Y: (n_1, ..., n_d)
        noise_variance: a number or (n_1, ..., n_d), in squared units of Y, if the noise is known
        optimize: False uses the hyperparameters as given
        """
        observations = from_array(coords, Y, noise_variance)
        everywhere = noise_everywhere(noise_variance, Y)
        return self._learn(*self._new_model(observations), observations, ArrayKind.of(Y), everywhere, optimize)

    def fit_table(
        self,
        columns: Sequence[Array],
        values: Array,
        *,
        noise_variance: Array | None = None,
        duplicates: Literal["error", "mean"] = "error",
        optimize: bool = True,
    ) -> "LKGP":
        """Fit to a long table with one observation per row; returns self.

        The points of each factor are sorted; see `grid_`.

        columns: one array per factor with the coordinates of every row, (rows,) or (rows, d_k)
        values: (rows,)
        noise_variance: a number or (rows,), if the noise of the rows is known
        duplicates: "mean" averages rows of the same cell and divides its noise by their number; the likelihood is that
            of all rows if the noise is learned, and that of the means if it is known
        """
        observations = from_table(columns, values, noise_variance, duplicates=duplicates)
        return self._learn(*self._new_model(observations), observations, ArrayKind.of(values), None, optimize)

    def update(self, Y: Array, *, noise_variance: Array | None = None, refit: bool = False) -> "LKGP":
        """Add observations in further cells of the same grid; returns self.

        Y: (n_1, ..., n_d), NaN where there is nothing new; cells that were observed before may be repeated
        noise_variance: noise variance of the new cells; give it only if that of the old cells was given, too
        refit: also fit the hyperparameters again, starting from their current values
        """
        with self._updates:  # one after the other, so that none is lost
            state = self._fitted()
            old = state.observations
            observations, known = add_cells(old, Y, noise_variance, state.noise_everywhere)
            start = observations.grid.gather(old.grid.scatter(state.posterior.weights.to(old.values.device)))
            return self._learn(state.model, state.standardization, observations, state.kind, known, refit, start=start)

    def conditioned_on(
        self, Y: Array, coords: Sequence[Array] | None = None, *, noise_variance: Array | None = None
    ) -> "LKGP":
        """Condition the same hyperparameters on other values, for example on some of this model's values.

        Returns a new model. On the same grid, a value that equals this model's value keeps its number of measurements.

        Y: (n'_1, ..., n'_d), NaN where nothing was observed
        coords: coordinates of the values, one array per factor; by default those of this model
        noise_variance: a number or (n'_1, ..., n'_d); required if this model was fitted with known noise
        """
        state = self._fitted()
        if noise_variance is None and state.observations.noise_variance is not None:
            raise InputError("the model was fitted with known noise; give noise_variance for these values, too.")
        coords = list(state.observations.grid.coords) if coords is None else coords
        requested_points(state, coords)  # rejects coordinates that do not match the kernels
        observations = same_measurements(from_array(coords, Y, noise_variance), state.observations)
        everywhere = noise_everywhere(noise_variance, Y)
        return copy.copy(self)._learn(state.model, state.standardization, observations, state.kind, everywhere, False)

    def plan(
        self, coords: Sequence[Array], Y: Array, *, noise_variance: Array | None = None, fitting: bool = False
    ) -> Plan:
        """Return the method that would be used with the given hyperparameters, and its cost, without fitting.

        coords, Y, noise_variance: as in `fit`
        fitting: plan one evaluation of the likelihood instead of the posterior
        """
        observations = from_array(coords, Y, noise_variance)
        model, standardization = self._new_model(observations)
        data = self._engine().scaled(observations, standardization)
        model = model.to(dtype=self.dtype, device=data.values.device)
        return plan(model, data, self.solver, self.max_memory, fitting=fitting)

    # Predictions

    def predict(
        self, coords: Sequence[Array | None] | None = None, *, observation_noise: bool | Array = False, std: bool = True
    ) -> Any:
        """Mean and standard deviation at every cell of the product of `coords`, each (n'_1, ..., n'_d).

        coords: one array per factor, None for a factor's own points; None altogether for the fitted grid
        observation_noise: True includes the noise in the standard deviation; an array or number is the noise variance
            to include
        std: False returns the mean alone, which is far cheaper if there are many observations or cells
        """
        fit = self._fitted_with_report()
        state, (points, on_grid) = fit.state, requested_points(fit.state, coords)
        mean = state.posterior.mean(points)
        if not std:
            return in_units(state, mean)
        variance = state.posterior.variance(points, self.strict)
        for num, seed in state.posterior.variance_draws:
            fit.check_draws(num, seed, self.strict)
        variance = variance.double() + noise_at(state, observation_noise, points, variance.double(), on_grid)
        return in_units(state, mean), std_in_units(state, variance)

    def predict_rows(self, columns: Sequence[Array], *, observation_noise: bool = False, std: bool = True) -> Any:
        """Exact mean and standard deviation at m single cells instead of a grid, each (m,); one solve per cell.

        columns: one array (m, d_k) or (m,) per factor; row i of each array holds the coordinates of cell i
        observation_noise: whether to include the learned noise in the standard deviation
        std: False returns the mean alone, without any solve
        """
        state = self._fitted()
        points, _ = requested_points(state, columns)
        if not std:
            return in_units(state, row_means(state.posterior, points))
        mean, variance = row_moments(state.posterior, points, self.strict)
        variance = variance.double()
        if observation_noise:
            variance = variance + noise_at(state, True, points, variance, False)
        return in_units(state, mean), std_in_units(state, variance)

    def covariance(
        self, coords: Sequence[Array | None] | None = None, *, observation_noise: bool | Array = False
    ) -> Array:
        """Joint posterior covariance at the cells of the product of `coords`, (N', N'), last factor fastest.

        It is exact and takes one solve per cell, so use it for few cells, or for models with few observations.

        coords, observation_noise: as in `predict`
        """
        state = self._fitted()
        points, on_grid = requested_points(state, coords)
        found = state.posterior.covariance(points, strict=self.strict).double()
        like = found.diagonal().reshape([len(x) for x in points])
        found.diagonal().add_(noise_at(state, observation_noise, points, like, on_grid).flatten())
        return state.kind.make(found * state.standardization.values.scale.square())

    def sample(
        self,
        num_samples: int,
        coords: Sequence[Array | None] | None = None,
        *,
        seed: int | None = None,
        observation_noise: bool = False,
    ) -> Array:
        """Joint posterior draws at every cell of the product of `coords`, (num_samples, n'_1, ..., n'_d).

        With the same number and seed, the draws are the same functions wherever they are evaluated. At points outside
        the fitted grid, their values also depend on the order in which such points were first requested. All of these
        points are remembered, up to a limit (docs/api.md), beyond which there is an error.

        coords: as in `predict`
        seed: random seed; by default that of the model
        observation_noise: whether to add independent noise to every cell
        """
        fit = self._fitted_with_report()
        state = fit.state
        if isinstance(num_samples, bool) or not isinstance(num_samples, (int, np.integer)) or num_samples < 1:
            raise InputError(f"num_samples must be a whole number of at least 1, not {num_samples!r}.")
        points, on_grid = requested_points(state, coords)
        seed = self.seed if seed is None else as_seed(seed)
        draws = state.posterior.draws(int(num_samples), seed)
        fit.check_draws(int(num_samples), seed, self.strict)
        values = draws(points).double()
        if observation_noise:
            noise = noise_at(state, True, points, values[0], on_grid)
            generator = torch.Generator(values.device).manual_seed(seed + OBSERVATION_SEED)
            normals = torch.randn(values.shape, generator=generator, dtype=values.dtype, device=values.device)
            values += noise.sqrt() * normals
        # in place, because the draws are the largest array of all
        scaling = state.standardization.values
        return state.kind.make(values.mul_(scaling.scale).add_(scaling.shift))

    def log_marginal_likelihood(self) -> float:
        """log p(Y) in the units of Y: exact for direct inference, otherwise a stochastic estimate.

        The report says which, and gives the standard error.
        """
        state = self._fitted()
        # Change of units: p(y) = p(z) / scale for each value.
        jacobian = state.posterior.data.num_measured * float(state.standardization.values.scale.log())
        return state.posterior.log_likelihood()[0] - jacobian

    # Results of the fit

    @property
    def model_(self) -> LatentKroneckerGP:
        """The model with its hyperparameters, in scaled units."""
        return self._fitted().model

    @property
    def posterior_(self) -> Posterior:
        """The posterior, in scaled units."""
        return self._fitted().posterior

    @property
    def observations_(self) -> Observations:
        """The observations, in the caller's units."""
        return self._fitted().observations

    @property
    def grid_(self) -> PartialGrid:
        """The grid and its observed cells, in the caller's units."""
        return self._fitted().observations.grid

    @property
    def standardization_(self) -> Standardization:
        """The scaling between the caller's units and those of the model."""
        return self._fitted().standardization

    @property
    def noise_variance_(self) -> float | None:
        """The learned noise variance in squared units of the data (its mean if it varies); None if it was given."""
        state = self._fitted()
        if state.observations.noise_variance is not None:
            return None
        typical = state.model.noise.typical(state.posterior.data).detach()
        return float(typical) * float(state.standardization.values.scale) ** 2

    @property
    def report_(self) -> Report:
        """The report of the fit, including the draws computed so far."""
        return self._fitted_with_report().report

    # Saving and loading

    def save(self, path: str | Path) -> None:
        """Write the fitted model, including data and solution, to one file; no pickle is involved."""
        self.to_contents().write(path)

    @classmethod
    def load(cls, path: str | Path) -> "LKGP":
        """Read a model written by `save`; it makes the same predictions, bit for bit."""
        return cls.from_contents(ModelContents.read(path))

    def to_contents(self) -> ModelContents:
        """The contents that `save` writes; a wrapper of this class may add its own entries before writing."""
        fit = self._fitted_with_report()
        header, tensors = describe_state(fit.state)
        settings, given = describe_settings_of(self)
        return ModelContents({**header, **settings, "report": fit.report.to_dict()}, {**tensors, **given})

    @classmethod
    def from_contents(cls, contents: ModelContents) -> "LKGP":
        """Rebuild a fitted model from the contents of a file."""
        header, tensors = contents.header, contents.tensors
        with naming_the_file(contents.source):
            check_contents(header, tensors)
            gp = cls(**build_settings_of(header, tensors))
            state = rebuild_state(header, tensors, dtype=gp.dtype, seed=gp.seed, max_memory=gp.max_memory)
            gp._fit = Fitted(state, Report.from_dict(header["report"]), told=state.posterior.draw_store.kept)
        return gp

    # Internals

    def _fitted_with_report(self) -> Fitted:
        fit = self._fit
        if fit is None:
            raise NotFittedError("this model has not been fitted yet; call fit first.")
        return fit

    def _fitted(self) -> FittedState:
        return self._fitted_with_report().state

    def _engine(self) -> Engine:
        progress = self.progress if callable(self.progress) else (print_progress if self.progress else None)
        return Engine(self.solver, self.optimizer, self.dtype, self.device, self.seed, progress, self.max_memory)

    def _new_model(self, observations: Observations) -> tuple[LatentKroneckerGP, Standardization]:
        """A model with the given hyperparameters, and the scaling of its data."""
        return new_model(observations, self.kernels, self.mean, self.noise, self.standardize)

    def _learn(
        self,
        model: LatentKroneckerGP,
        standardization: Standardization,
        observations: Observations,
        kind: ArrayKind,
        everywhere: Tensor | None,
        optimize: bool,
        start: Tensor | None = None,
    ) -> "LKGP":
        """Fit and condition; if that fails, an earlier fit is kept."""
        state, report, failures = self._engine().run(
            model, standardization, observations, kind, everywhere, optimize, start
        )
        self._fit = Fitted(state, report)
        for failure in failures:
            complain(failure, self.strict)
        return self
