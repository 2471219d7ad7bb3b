"""The posterior: mean, variance and draws, for every inference method.

mean(.)  =  m + K(., X) a,      a = A^-1 (y - m)
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import reduce
from typing import Any

import torch
from torch import Tensor

from lkgp.concurrency import Lock
from lkgp.data.readers import Observations
from lkgp.errors import complain
from lkgp.inference import Plan, Purpose, System, columns_at_once
from lkgp.inference.base import gaussian_log_density, quadratic_form
from lkgp.inference.likelihood import likelihood_error
from lkgp.inference.variance_estimate import VarianceEstimate
from lkgp.linalg.correlated_cells import FactorPlaces, factor_places
from lkgp.linalg.factors import Factor
from lkgp.linalg.kronecker import CrossKronecker, LatentKronecker, OperatorFactory, sum_of
from lkgp.machine import usable_memory
from lkgp.model import LatentKroneckerGP
from lkgp.posterior.cross_rows import CrossRows
from lkgp.posterior.draws import DrawStore, PosteriorDraws, joined
from lkgp.posterior.factor_roots import locate
from lkgp.posterior.local_variance import (
    FEW_DRAWS,
    VarianceQuality,
    estimated_variance,
    variance_quality,
)
from lkgp.posterior.rounding import (
    above_rounding,
    allowed_rounding,
    check_means,
    factorisations_explained,
    mean_rounding,
    sums_of_squares,
)
from lkgp.solvers import Solution

# The cells whose means are checked for rounding errors where a bound does not exclude these: the ones with the largest.
MOST_CHECKED = 16
# Covariances of other points with the fitted ones of a factor are formed if they are fewer than this (0.1 GB), or than
# the cells of the grid; otherwise they are computed block by block in every product.
MOST_CROSS_NUMBERS = 2**24


class Posterior:
    """The posterior of a model given data. Several threads may use it at the same time.

    plan: the inference method, and why it was chosen
    seed: random seed of the draws used for the variance
    max_memory: limit in bytes on the large arrays in memory at once
    start: weights of similar data, (n,), as an initial guess for the solve
    solution: the solution of A a = y - m, (n, 1); computed unless it is given
    operators: the class or function that makes A
    """

    @torch.no_grad()
    def __init__(
        self,
        model: LatentKroneckerGP,
        data: Observations,
        plan: Plan,
        *,
        seed: int = 0,
        max_memory: float | None = None,
        start: Tensor | None = None,
        solution: Solution | None = None,
        operators: OperatorFactory = LatentKronecker,
    ) -> None:
        self.model, self.data, self.plan, self.seed = model, data, plan, seed
        self.max_memory, self.operators = max_memory, operators
        self._lock, self._judging = Lock(), Lock()
        self._system: System | None = None
        self._factors_of_terms: list[list[Factor]] | None = None
        self._quality: VarianceQuality | None = None
        # one entry once it was looked for
        self._at_fitted: list[VarianceEstimate | None] | None = None
        self._places: list[FactorPlaces] | None = None
        self.draw_store = DrawStore(self, (self._affordable_draws(), seed))
        self.solution = self._solve_for_weights(start) if solution is None else solution
        self.weights = self.solution.values[:, 0].contiguous()

    def __getstate__(self) -> dict[str, Any]:
        """Everything but what is computed when it is first needed, which another thread may be about to do."""
        return {**vars(self), "_system": None, "_factors_of_terms": None, "_places": None}

    def _affordable_draws(self) -> int:
        """As many draws as the method asks for, or as many as half of the memory holds, but never very few."""
        limit = usable_memory() if self.max_memory is None else self.max_memory
        # Of every draw, the values of each term at all cells and the weights of the observations are kept.
        numbers = len(self.model.terms) * self.data.grid.num_cells + self.data.grid.num_observed
        most = int(0.5 * limit / (numbers * self.data.values.element_size()))
        return min(self.plan.method.num_samples, max(FEW_DRAWS, most))

    def _solve_for_weights(self, start: Tensor | None) -> Solution:
        latent = None
        if start is not None:
            latent = self.system.operator.latent_product(self.data.grid.scatter(start[:, None]))
        return self.system.solve(self.model.residuals(self.data)[:, None], Purpose.MEAN, latent)

    @property
    def system(self) -> System:
        """The system of equations with A, created when it is first needed, by one thread while the others wait."""
        with self._lock, torch.no_grad(), factorisations_explained(self.data.values.dtype):
            if self._system is None:
                method = self.plan.method
                self._system = method.system(
                    self.model, self.data, columns=method.num_samples, operators=self.operators
                )
            return self._system

    def columns_at_once(self, cells: int = 0) -> int:
        """How many right-hand sides to solve for, or functions to evaluate at `cells` cells, at a time."""
        return columns_at_once(max(self.data.grid.num_cells, cells), self.max_memory)

    def predictors(self, cross: Tensor, prior: Tensor, strict: bool = False) -> tuple[Tensor, Tensor]:
        """Weights W = A^-1 C^T of the best linear predictors of c cells, and A W, each (n, c).

        As many cells are solved for at a time as memory allows; warns if a solve does not converge.

        cross: C, (c, n), covariances of the cells with the observations; prior: their prior variances, (c,)
        strict: raise an error instead of a warning
        """
        width = self.columns_at_once()
        pairs = zip(cross.split(width), prior.split(width), strict=True)
        solution = joined([self.system.solve_for_variance(some.mT.contiguous(), at) for some, at in pairs])
        if not solution.converged:
            complain(f"the solve for a covariance did not converge: {solution}", strict)
        weights = solution.values
        return weights, torch.cat([self.system.operator @ some for some in weights.split(width, dim=1)], dim=1)

    # Covariances with the observations

    @property
    def _factors(self) -> list[list[Factor]]:
        """K_k of every term over the points of the grid, with their own structure."""
        with self._lock, torch.no_grad():
            if self._factors_of_terms is None:
                self._factors_of_terms = [term.factors(self.data.grid.coords) for term in self.model.terms]
            return self._factors_of_terms

    def cross_factors(self, coords: Sequence[Tensor]) -> list[tuple[Tensor, ...]]:
        """C_k, (n'_k, n_k), of every term: covariances of points of each factor with the fitted points.

        Fitted points take their row from K_k, so that results do not depend on whether a whole grid is requested.
        """
        return [tuple(c.rows_at(torch.arange(len(c.points), device=c.device)) for c in t) for t in self._rows(coords)]

    def _rows(self, coords: Sequence[Tensor]) -> list[list[CrossRows]]:
        """The same, none of which is formed."""
        known = self.data.grid.coords
        places = [locate(points, own) for points, own in zip(coords, known, strict=True)]
        return [
            [
                CrossRows(x, place=places[k], term=term, factor=k, fitted=known[k], matrix=factors[k])
                for k, x in enumerate(coords)
            ]
            for term, factors in zip(self.model.terms, self._factors, strict=True)
        ]

    def cross(self, coords: Sequence[Tensor], weights: Tensor) -> Tensor:
        """K(., X) W for W (n, c) at every cell of the product of `coords`, (N', c)."""
        grid = self.data.grid
        if all(points is known for points, known in zip(coords, grid.coords, strict=True)):
            return self.system.operator.latent_product(grid.scatter(weights)).mT
        # A matrix of covariances is formed if it is small compared with the grid.
        most = max(MOST_CROSS_NUMBERS, grid.num_cells)
        terms = [
            [c if c.shape.numel() > most else c.rows_at(torch.arange(len(c.points), device=c.device)) for c in term]
            for term in self._rows(coords)
        ]
        return CrossKronecker(terms, grid) @ weights

    # Moments

    @torch.no_grad()
    def mean(self, coords: Sequence[Tensor]) -> Tensor:
        """The posterior mean at every cell of the product of `coords`, (n'_1, ..., n'_d)."""
        shape = [len(x) for x in coords]
        return self.cross(coords, self.weights[:, None])[:, 0].reshape(shape) + self.model.mean.at(coords)

    @torch.no_grad()
    def variance(self, coords: Sequence[Tensor], strict: bool = False) -> Tensor:
        """The posterior variance of f at every cell of the product of `coords`, (n'_1, ..., n'_d).

        Warns if rounding errors matter, also those of the mean at the same cells, which only now can be judged.

        strict: raise an error instead of a warning
        """
        prior = self.model.prior_variance(coords)
        if self.system.exact_variance:
            (crosses,) = self.cross_factors(coords)
            explained = self.system.explained_variance(crosses)
            assert explained is not None
            found = above_rounding(prior - explained.to(prior.dtype), prior, strict)
        else:
            known = self._variance_at_fitted_cells(coords, strict)
            estimate = estimated_variance(self, coords) if known is None else known
            # computed in float64, whatever the dtype of the data
            found = above_rounding(estimate.double(), prior.double(), strict).to(prior.dtype)
        self._check_means(coords, prior, found, strict)
        return found

    def _variance_at_fitted_cells(self, coords: Sequence[Tensor], strict: bool) -> Tensor | None:
        """The variance at the cells of the fitted grid, (n_1, ..., n_d); None elsewhere, or if it takes draws alone."""
        if any(points is not known for points, known in zip(coords, self.data.grid.coords, strict=True)):
            return None
        with self._judging:
            if self._at_fitted is None:
                self._at_fitted = [self.system.variance_at_fitted_cells(self.seed)]
            (found,) = self._at_fitted
        if found is not None and found.failure:
            complain(f"a solve for error bars did not converge: {found.failure}", strict)
        return None if found is None else found.variance

    def _check_means(self, coords: Sequence[Tensor], prior: Tensor, variance: Tensor, strict: bool) -> None:
        """Warn if rounding errors of the mean matter at the cells of the product of `coords`.

        prior, variance: (n'_1, ..., n'_d)
        """
        # k_*i^2 <= k_** k_ii bounds them everywhere without any product.
        own, dtype = self.system.operator.latent_diagonal().double(), self.weights.dtype
        squares = prior.double().expand(variance.shape) * (own * self.weights.double().square()).sum()
        bound = mean_rounding(squares, variance, dtype).flatten()
        if not bool((bound > allowed_rounding(dtype)).any()):
            return
        cells = bound.topk(min(MOST_CHECKED, self.columns_at_once(), len(bound))).indices
        columns = [x[i] for x, i in zip(coords, torch.unravel_index(cells, variance.shape), strict=True)]
        squares = sums_of_squares(self.cross_rows(columns), self.weights)
        check_means(squares, variance.flatten()[cells], dtype, strict)

    @torch.no_grad()
    def covariance(self, coords: Sequence[Tensor], strict: bool = False) -> Tensor:
        """The joint posterior covariance of f at the cells of the product of `coords`, (N', N').

        It is exact and takes one solve per cell.

        strict: raise an error instead of a warning if a solve does not converge
        """
        pairs = list(enumerate(coords))
        terms = self.model.terms
        prior = sum_of(reduce(torch.kron, [term.cross_factor(k, x, x) for k, x in pairs]) for term in terms)
        # C = K(., X), (N', n): the product of the factors' covariances at every observed cell
        cross = sum_of(self._at_observed(crosses) for crosses in self.cross_factors(coords))
        weights, image = self.predictors(cross, prior.diagonal(), strict)
        # K(., .) - C W - (C W)^T + W^T A W: the mean squared errors of the predictors W, which are never too small
        explained = cross @ weights
        squared = weights.mT @ image
        found = prior - explained - explained.mT + (squared + squared.mT) / 2
        found.diagonal().copy_(above_rounding(found.diagonal(), prior.diagonal(), strict))
        check_means(sums_of_squares(cross, self.weights), found.diagonal(), self.weights.dtype, strict)
        return found

    def cross_rows(self, columns: Sequence[Tensor]) -> Tensor:
        """Covariances of m single cells with the observations, (m, n).

        columns: (m, d_k) each; row i of each of them locates cell i
        """
        crosses, indices = self.cross_factors(columns), self.data.grid.axis_index
        products = [[c[:, i] for c, i in zip(of_term, indices, strict=True)] for of_term in crosses]
        return sum_of(reduce(torch.mul, product) for product in products)

    def _at_observed(self, crosses: Sequence[Tensor]) -> Tensor:
        """C of one term at every observed cell, (N', n)."""
        parts = [c[:, index] for c, index in zip(crosses, self.data.grid.axis_index, strict=True)]
        return reduce(lambda a, b: (a[:, None, :] * b).flatten(0, 1), parts)

    # Accuracy, likelihood and draws

    @property
    def behind_variance(self) -> tuple[int, int]:
        """Number and seed of the draws used for the variance if it is not exact and fewer are not enough."""
        return self.draw_store.always

    @property
    def variance_draws(self) -> tuple[tuple[int, int], ...]:
        """Number and seed of all draws that may have been made for the variance."""
        return (self.behind_variance, (FEW_DRAWS, self.seed))

    @property
    def variance_error(self) -> float:
        """Relative standard error of a standard deviation: 0 if exact, and an upper bound before it is computed.

        99 % of the cells do not exceed it.
        """
        if self.system.exact_variance:
            return 0.0
        known = [one.error for one in (*(self._at_fitted or ()), self._quality) if one is not None]
        return max(known) if known else 1 / math.sqrt(2 * self.behind_variance[0])

    @property
    def variance_source(self) -> str:
        """In words, what the error bars are computed from."""
        if self.system.exact_variance:
            return "exact"
        known = [str(one) for one in (*(self._at_fitted or ()), self._quality) if one is not None]
        if not known:
            known = [
                "from observations near by and posterior samples; relative standard error at most "
                f"{self.variance_error:.1%}"
            ]
        return "; at new points ".join(known) + self.system.sampling_remark

    @property
    def variance_quality(self) -> VarianceQuality:
        """How accurate the variance is if it is not exact."""
        with self._judging:  # a lock of its own, because draws are made meanwhile
            if self._quality is None:
                self._quality = variance_quality(self)
            return self._quality

    def state_variance_error(self, error: float) -> None:
        """State a larger error of standard deviations than was judged at some cells: it was found at others."""
        with self._judging:
            if self._quality is not None and error > self._quality.error:
                self._quality = replace(self._quality, error=error)

    @property
    def places(self) -> list[FactorPlaces]:
        """The points of every factor in a space where nearer means more correlated."""
        with self._lock:
            if self._places is None:
                operator = self.system.precise_operator
                self._places = [factor_places(operator, k) for k in range(len(self.data.grid.shape))]
            return self._places

    @torch.no_grad()
    def log_likelihood(self, num_probes: int | None = None, steps: int | None = None) -> tuple[float, float]:
        """log p(y) and its standard error, which is 0 if the value is exact.

        num_probes, steps: probes and Lanczos steps of an estimated log-determinant; by default those of the method
        """
        r = self.model.residuals(self.data)
        system, weights = self.system, self.weights.double()
        logdet, error = system.log_determinant(self.seed, num_probes, steps, self.max_memory)
        operator, columns = system.precise_operator, (r.double()[:, None], weights[:, None])
        quadratic, doubt = quadratic_form(operator, *columns, system.noise)
        density = gaussian_log_density(quadratic[0], logdet, len(r)) + self.model.log_scatter(self.data)
        return float(density), likelihood_error(system, weights, error, float(doubt) if error else 0.0)

    @torch.no_grad()
    def draws(self, num: int, seed: int) -> PosteriorDraws:
        """`num` joint draws; the same `num` and `seed` always give the same draws."""
        return self.draw_store.get(num, seed)


def condition(
    model: LatentKroneckerGP,
    data: Observations,
    plan: Plan,
    *,
    seed: int = 0,
    max_memory: float | None = None,
    start: Tensor | None = None,
    operators: OperatorFactory = LatentKronecker,
) -> Posterior:
    """The posterior of `model` given `data` at its current hyperparameters; arguments as in `Posterior`."""
    return Posterior(model, data, plan, seed=seed, max_memory=max_memory, start=start, operators=operators)
