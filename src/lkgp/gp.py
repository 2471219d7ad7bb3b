"""The class that most people use: arrays in, arrays out, in their own units."""

import copy
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from gpytorch.kernels import Kernel
from gpytorch.likelihoods import GaussianLikelihood
from torch import Tensor

from lkgp.data.grid import PartialGrid, as_factor_coords
from lkgp.data.readers import (
    ArrayKind,
    Observations,
    add_cells,
    as_real_tensor,
    check_factors,
    from_array,
    from_table,
    known_noise,
    same_measurements,
)
from lkgp.data.standardization import Standardization
from lkgp.errors import FileError, InputError, NotFittedError, complain
from lkgp.fitting.search import BFGS, LBFGS, Adam, FitResult, Optimizer, fit
from lkgp.inference.methods import Direct, Iterative, Method, Plan, Spectral, plan
from lkgp.model.model import LatentKroneckerGP, check_kernel, default_kernels, discrete_columns
from lkgp.persistence import ModelContents
from lkgp.persistence.fitted import describe, rebuild
from lkgp.posterior.moments import row_moments
from lkgp.posterior.posterior import Posterior, condition
from lkgp.report import Report, make_report, print_progress
from lkgp.solvers import Solution, Solver

Array = Any  # a NumPy array or a torch tensor, as the caller likes

# Added to the seed of the draws, so that the noise of observations is not what other draws are made with.
OBSERVATION_SEED = 104729


class LKGP:
    """An exact Gaussian process for data on a grid with holes.

    kernels: one GPyTorch kernel a factor; Matern-5/2 over each by default. They are copied, not changed; one that is given for
        two factors becomes two kernels, with parameters of their own.
    mean: a number, in the units of the data, fixes the mean; None learns a constant
    noise: where the learned noise variance starts, or a GaussianLikelihood with its own prior and constraint
    standardize: whether values and coordinates are scaled to variance one before the model sees them; "values" or "coordinates" for
        one of them only. Kernels and noise are in the scaled units, or in the caller's own with False. Columns that an IndexKernel or
        a HammingIMQKernel reads are never scaled.
    solver: "auto", or Direct(...), Spectral(...), Iterative(...), or one of the linear solvers
    optimizer: "auto", BFGS(...), LBFGS(...) or Adam(...)
    dtype: of the computation; results have the dtype of the data
    device: of the computation; where the data are, by default
    seed: of everything random
    progress: True writes a line to standard error at each step; a function is called with (step, objective by observation)
    max_memory: bytes that large arrays may take at once
    strict: whether a fit or solve that did not converge is an error instead of a warning

    After `fit`: `model_` (the LatentKroneckerGP with its hyperparameters, in scaled units), `grid_` (the PartialGrid, in the
    caller's units) and `report_` (what was done).
    """

    def __init__(
        self,
        kernels: Sequence[Kernel] | None = None,
        *,
        mean: float | None = None,
        noise: float | GaussianLikelihood = 0.05,
        standardize: bool | Literal["values", "coordinates"] = True,
        solver: Method | Solver | Literal["auto"] = "auto",
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
        if solver != "auto" and not (isinstance(solver, (Direct, Spectral, Iterative)) or hasattr(solver, "solve")):
            raise InputError(
                "solver must be 'auto', Direct(...), Spectral(...), Iterative(...) or a linear solver such as ConjugateGradients(...), "
                f"not {solver!r}."
            )
        if optimizer != "auto" and not isinstance(optimizer, (BFGS, LBFGS, Adam)):
            raise InputError(f"optimizer must be 'auto', BFGS(...), LBFGS(...) or Adam(...), not {optimizer!r}.")
        self.kernels, self.mean, self.noise, self.standardize = kernels, mean, noise, standardize
        self.solver, self.optimizer, self.dtype, self.device = solver, optimizer, dtype, device
        self.seed, self.progress, self.max_memory, self.strict = as_seed(seed), progress, max_memory, strict
        self._posterior: Posterior | None = None

    # Fitting

    def fit(
        self, coords: Sequence[Array], Y: Array, *, noise_variance: Array | None = None, optimize: bool = True
    ) -> "LKGP":
        """Fit to a grid-shaped array in which NaN means missing; returns self.

        coords: one array a factor, (n_k,) or (n_k, d_k)
        Y: (n_1, ..., n_d)
        noise_variance: where it is known, a number or (n_1, ..., n_d), in squared units of Y
        optimize: False conditions with the hyperparameters as they are given
        """
        observations = from_array(coords, Y, noise_variance)
        return self._fit(observations, ArrayKind.of(Y), noise_everywhere(noise_variance, Y), optimize)

    def fit_table(
        self,
        columns: Sequence[Array],
        values: Array,
        *,
        noise_variance: Array | None = None,
        duplicates: Literal["error", "mean"] = "error",
        optimize: bool = True,
    ) -> "LKGP":
        """Fit to a long table, one row an observation; returns self. The points of each factor are sorted: see `grid_`.

        columns: one array a factor with the coordinates of every row, (rows,) or (rows, d_k)
        values: (rows,)
        noise_variance: of the rows where it is known, a number or (rows,)
        duplicates: "mean" averages rows that name the same cell, whose noise is then divided by their number; the likelihood is that of
            all rows where the noise is learned, and of the means where it is known
        """
        observations = from_table(columns, values, noise_variance, duplicates=duplicates)
        return self._fit(observations, ArrayKind.of(values), None, optimize)

    def update(self, Y: Array, *, noise_variance: Array | None = None, refit: bool = False) -> "LKGP":
        """Take in more observed cells of the same grid; returns self.

        Y: (n_1, ..., n_d), NaN where there is nothing new; cells that were observed before may be repeated
        noise_variance: of the new cells, where the noise of the first ones was given, too
        refit: also seek the hyperparameters again, from where they are
        """
        posterior = self._fitted()
        old = self.observations_
        observations, everywhere = add_cells(old, Y, noise_variance, self._noise_everywhere)
        start = observations.grid.gather(old.grid.scatter(posterior.weights.to(old.values.device)))
        return self._finish(observations, self._kind, everywhere, refit, self.model_, self._standardization, start)

    def conditioned_on(
        self, Y: Array, coords: Sequence[Array] | None = None, *, noise_variance: Array | None = None
    ) -> "LKGP":
        """Another model with the same hyperparameters that has seen other values: those of this one less what is withheld, say.

        Values of the same grid that are those of this model are means of as many measurements as they were here.

        Y: (n'_1, ..., n'_d), NaN where nothing was observed
        coords: of the values, one array a factor; those of this model by default
        noise_variance: a number or (n'_1, ..., n'_d), where that of this model's values was given
        """
        self._fitted()
        if noise_variance is None and self.observations_.noise_variance is not None:
            raise InputError(
                "the noise of the values was given when the model was fitted, so give noise_variance for these, too."
            )
        coords = list(self.observations_.grid.coords) if coords is None else coords
        self._points(coords)  # refuses those that do not fit the kernels
        observations = same_measurements(from_array(coords, Y, noise_variance), self.observations_)
        everywhere = noise_everywhere(noise_variance, Y)
        return copy.copy(self)._finish(observations, self._kind, everywhere, False, self.model_, self._standardization)

    def plan(
        self, coords: Sequence[Array], Y: Array, *, noise_variance: Array | None = None, fitting: bool = False
    ) -> Plan:
        """How inference would be done with the hyperparameters as given, and what that would cost; nothing is fitted.

        coords, Y, noise_variance: as in `fit`
        fitting: of one evaluation of the likelihood instead of the posterior
        """
        observations = from_array(coords, Y, noise_variance)
        model, standardization = self._new_model(observations)
        data = standardization.apply(observations, dtype=self.dtype, device=self._device(observations))
        model = model.to(dtype=self.dtype, device=data.values.device)
        return plan(model, data, self.solver, self.max_memory, fitting=fitting)

    def _new_model(self, observations: Observations) -> tuple[LatentKroneckerGP, Standardization]:
        """A model with the hyperparameters as given, and the scaling of the data that it sees."""
        coords = [x.double() for x in observations.grid.coords]
        given = self.kernels if self.kernels is not None else default_kernels([x.shape[1] for x in coords])
        if isinstance(given, Kernel) or len(given) != len(coords):
            count = 1 if isinstance(given, Kernel) else len(given)
            raise InputError(
                f"there are {count} kernels but {len(coords)} factors; give a list with one kernel per factor."
            )
        for k, (kernel, x) in enumerate(zip(given, coords, strict=True)):
            check_kernel(kernel, x, k)
        standardization = Standardization.of(
            observations,
            values=self.standardize in (True, "values"),
            coords=self.standardize in (True, "coordinates"),
            unscaled=[discrete_columns(kernel, x) for kernel, x in zip(given, coords, strict=True)],
        )
        mean = None
        if self.mean is not None:
            mean = float(
                standardization.values.apply(torch.tensor(float(self.mean), dtype=torch.float64).to(coords[0]))
            )
        kernels = [copy.deepcopy(kernel) for kernel in given]
        return LatentKroneckerGP(kernels, mean=mean, noise=copy.deepcopy(self.noise)), standardization

    def _fit(self, observations: Observations, kind: ArrayKind, everywhere: Tensor | None, optimize: bool) -> "LKGP":
        model, standardization = self._new_model(observations)
        return self._finish(observations, kind, everywhere, optimize, model, standardization)

    def _device(self, observations: Observations) -> torch.device:
        return torch.device(self.device) if self.device is not None else observations.values.device

    def _finish(
        self,
        observations: Observations,
        kind: ArrayKind,
        everywhere: Tensor | None,
        optimize: bool,
        model: LatentKroneckerGP,
        standardization: Standardization,
        start: Tensor | None = None,
    ) -> "LKGP":
        """Seek hyperparameters if asked, condition, report; nothing of an earlier fit is lost if that fails."""
        data = standardization.apply(observations, dtype=self.dtype, device=self._device(observations))
        model = copy.deepcopy(model).to(dtype=self.dtype, device=data.values.device)
        notes = []
        result: FitResult | None = None
        if optimize and bool((data.values == data.values[0]).all()):
            notes.append(
                "all observed values are equal: there is nothing to learn, and the hyperparameters stay as given"
            )
        elif optimize:
            result = fit(
                model,
                data,
                method=self.solver,
                optimizer=self.optimizer,
                seed=self.seed,
                progress=self._progress(),
                max_memory=self.max_memory,
            )
            model = result.model
        began = time.perf_counter()
        try:
            chosen = plan(model, data, self.solver, self.max_memory)
        except InputError as error:
            if result is None:
                raise
            # The search began with a factorisation that was small enough: what it found is not thrown away.
            notes.append(f"the posterior was computed in the eigenbasis: {error}")
            chosen = replace(
                plan(model, data, Spectral(), self.max_memory), why="spectral: direct inference became too large"
            )
        x0 = None if start is None else start.to(data.values.device)
        posterior = condition(model, data, chosen, seed=self.seed, max_memory=self.max_memory, x0=x0)
        seconds = time.perf_counter() - began
        report = make_report(
            posterior,
            result,
            float(standardization.values.scale),
            observations.noise_variance is not None,
            seconds,
            notes,
        )
        self.model_, self._posterior, self._kind, self.report_ = model, posterior, kind, report
        self.observations_, self._noise_everywhere = observations, everywhere
        self._standardization = standardization
        self._reported_draws: set[tuple[int, int]] = set()
        if result is not None and not result.converged:
            complain(f"the search for hyperparameters did not converge: {result.reason}", self.strict)
        self._check_solve(posterior.solution)
        return self

    @property
    def grid_(self) -> PartialGrid:
        """The grid and its observed cells, in the caller's units."""
        self._fitted()
        return self.observations_.grid

    # Asking

    def predict(
        self, coords: Sequence[Array | None] | None = None, *, observation_noise: bool | Array = False
    ) -> tuple[Array, Array]:
        """Mean and standard deviation at every cell of the product of `coords`, each (n'_1, ..., n'_d).

        coords: one array a factor, None for a factor's own points; None altogether for the fitted grid
        observation_noise: True adds the noise to the standard deviation; an array or number is the noise variance to add
        """
        posterior = self._fitted()
        points, on_grid = self._points(coords)
        mean, variance = posterior.mean(points), posterior.variance(points)
        self._check_draws(posterior, posterior.behind_variance)
        variance = variance.double() + self._noise_at(observation_noise, variance.double(), on_grid)
        std = variance.sqrt() * self._standardization.values.scale
        return self._kind.make(self._standardization.values.undo(mean.double())), self._kind.make(std)

    def predict_rows(self, columns: Sequence[Array], *, observation_noise: bool = False) -> tuple[Array, Array]:
        """Mean and standard deviation at single cells instead of a whole grid, each (m,): exact, one solve per cell.

        columns: one array (m, d_k) or (m,) per factor; row i of each of them says where cell i lies
        observation_noise: whether to add the learned noise to the standard deviation
        """
        posterior = self._fitted()
        points, _ = self._points(columns)
        mean, variance = row_moments(posterior, points)
        variance = variance.double() + self._noise_at(observation_noise, variance.double(), False)
        scaling = self._standardization.values
        return self._kind.make(scaling.undo(mean.double())), self._kind.make(variance.sqrt() * scaling.scale)

    def covariance(
        self, coords: Sequence[Array | None] | None = None, *, observation_noise: bool | Array = False
    ) -> Array:
        """The joint posterior covariance at the cells of the product of `coords`, (N', N'), the last factor fastest.

        It is exact and takes one solve per cell: for few cells, or for models with few observations.

        coords, observation_noise: as in `predict`
        """
        posterior = self._fitted()
        points, on_grid = self._points(coords)
        found = posterior.covariance(points, strict=self.strict).double()
        shape = [len(x) for x in points]
        noise = self._noise_at(observation_noise, found.diagonal().reshape(shape), on_grid)
        found.diagonal().add_(noise.flatten())
        return self._kind.make(found * self._standardization.values.scale.square())

    @property
    def noise_variance_(self) -> float | None:
        """The learned noise variance in squared units of the data; None where the noise was given."""
        self._fitted()
        if self.observations_.noise_variance is not None:
            return None
        return float(self.model_.noise_variance().detach()) * float(self._standardization.values.scale) ** 2

    def sample(
        self,
        num_samples: int,
        coords: Sequence[Array | None] | None = None,
        *,
        seed: int | None = None,
        observation_noise: bool = False,
    ) -> Array:
        """Joint draws at every cell of the product of `coords`, (num_samples, n'_1, ..., n'_d).

        With the same number and seed the draws are the same functions, wherever they are asked. At points that were not fitted, which
        functions these are also depends on the order in which such points were asked for first.

        coords: as in `predict`
        seed: the model's own by default
        observation_noise: whether to add independent noise to every cell
        """
        posterior = self._fitted()
        if isinstance(num_samples, bool) or not isinstance(num_samples, (int, np.integer)) or num_samples < 1:
            raise InputError(f"num_samples must be a whole number of at least 1, not {num_samples!r}.")
        points, on_grid = self._points(coords)
        seed = self.seed if seed is None else as_seed(seed)
        draws = posterior.draws(int(num_samples), seed)
        self._check_draws(posterior, (int(num_samples), seed))
        values = draws(points).double()
        if observation_noise:
            noise = self._noise_at(observation_noise, values[0], on_grid)
            generator = torch.Generator(values.device).manual_seed(seed + OBSERVATION_SEED)
            values += noise.sqrt() * torch.randn(
                values.shape, generator=generator, dtype=values.dtype, device=values.device
            )
        # in place: the draws are the largest array of all
        return self._kind.make(values.mul_(self._standardization.values.scale).add_(self._standardization.values.shift))

    def log_marginal_likelihood(self) -> float:
        """log p(Y) in the units of Y: exact where inference is direct, else a stochastic estimate (the report says which)."""
        posterior = self._fitted()
        method = posterior.plan.method
        probes, steps = (1, 1) if isinstance(method, Direct) else (method.num_probes, method.lanczos_steps)
        # A density in other units: p(y) = p(z) / scale for each value.
        jacobian = posterior.data.num_measured * float(self._standardization.values.scale.log())
        return posterior.log_likelihood(probes, steps)[0] - jacobian

    # Keeping

    def save(self, path: str | Path) -> None:
        """Write the fitted model, data and solve included, to one file; no pickle is involved."""
        self.to_contents().write(path)

    @classmethod
    def load(cls, path: str | Path) -> "LKGP":
        """Read a model that `save` wrote. Its predictions are those of the model that was saved, bit for bit."""
        return cls.from_contents(ModelContents.read(path))

    def to_contents(self) -> ModelContents:
        """What `save` writes; a wrapper of this class may add entries of its own before it writes them."""
        header, tensors = describe(self, self._fitted())
        return ModelContents(header, tensors)

    @classmethod
    def from_contents(cls, contents: ModelContents) -> "LKGP":
        """The fitted model in the contents of a file."""
        try:
            gp: LKGP = rebuild(cls, contents.header, contents.tensors)
            gp.report_ = Report.from_dict(contents.header["report"])
            return gp
        except (KeyError, TypeError, AttributeError, IndexError, RuntimeError) as error:
            raise FileError(
                f"{contents.source} is incomplete or damaged ({type(error).__name__}: {error}); save the model again."
            ) from None

    # Inside

    def _fitted(self) -> Posterior:
        if self._posterior is None:
            raise NotFittedError("this model has seen no data yet; call fit first.")
        return self._posterior

    def _progress(self) -> Callable[[int, float], None] | None:
        if callable(self.progress):
            return self.progress
        if not self.progress:
            return None
        return print_progress

    def _points(self, coords: Sequence[Array | None] | None) -> tuple[list[Tensor], bool]:
        """Coordinates that were asked for, scaled, and whether they are the fitted grid."""
        own = self._fitted().data.grid.coords
        if coords is None:
            return list(own), True
        check_factors(coords)
        if len(coords) != len(own):
            raise InputError(
                f"there are {len(coords)} coordinates but {len(own)} factors; give one a factor, None for its own points."
            )
        points = []
        for k, (x, fitted, scaling) in enumerate(zip(coords, own, self._standardization.coords, strict=True)):
            if x is None:
                points.append(fitted)
                continue
            place = f"the coordinates of factor {k}"
            asked = as_factor_coords(as_real_tensor(x, place).double().to(scaling.shift.device), place)
            if asked.shape[1] != fitted.shape[1]:
                raise InputError(
                    f"{place} have {asked.shape[1]} column(s), but {fitted.shape[1]} were fitted; they must agree."
                )
            check_kernel(self.model_.kernels[k], asked, k)
            points.append(scaling.apply(asked).to(fitted))
        return points, all(x is None for x in coords)

    def _noise_at(self, wanted: bool | Array, like: Tensor, on_grid: bool) -> Tensor:
        """The noise variance to add, in the model's units, broadcast to `like` (n'_1, ..., n'_d)."""
        if wanted is False:
            return torch.zeros_like(like)
        if wanted is True and self.observations_.noise_variance is None:
            return self.model_.noise_variance().detach().to(like).expand(like.shape)
        known = wanted
        if wanted is True:
            known = self._noise_everywhere
            if not on_grid or known is None or not bool(torch.isfinite(known).all()):
                raise InputError(
                    "the noise was given for observed cells only; pass observation_noise as an array with the noise variance of every cell."
                )
        everywhere = torch.ones_like(like, dtype=torch.bool)
        return self._standardization.variance(known_noise(known, like, everywhere))

    def _check_solve(self, solution: Solution) -> None:
        if not solution.converged:
            complain(f"the solve did not converge: {solution}", self.strict)

    def _check_draws(self, posterior: Posterior, key: tuple[int, int]) -> None:
        """Put the solve of new draws into the report, and complain if it failed: once, or each time where that is an error."""
        if key not in posterior.kept_draws:
            return
        solution, new = posterior.kept_draws[key].solution, key not in self._reported_draws
        if new:
            self._reported_draws.add(key)
            self.report_.sample_residuals = np.concatenate(
                [self.report_.sample_residuals, solution.residuals.double().cpu().numpy()]
            )
            self.report_.products += solution.products
            if not solution.converged:
                self.report_.converged = False
                self.report_.notes.append(f"draws: {solution}")
        if new or self.strict:
            self._check_solve(solution)


def noise_everywhere(noise_variance: Array | None, Y: Array) -> Tensor | None:
    """The known noise variance of every cell, of the shape of Y, where it was given."""
    if noise_variance is None:
        return None
    values = as_real_tensor(Y, "the array of values")
    return known_noise(noise_variance, values, ~torch.isnan(values))


def as_seed(seed: Any) -> int:
    """Refuse what is not a whole number."""
    if isinstance(seed, bool) or not isinstance(seed, (int, np.integer)):
        raise InputError(f"seed must be a whole number, not {seed!r}.")
    return int(seed)
