"""The contract that every inference method fulfils; code outside this package does not ask which method it is.

A `Method` is a frozen settings record. It predicts its cost, loosens its tolerances for a fit, and makes a `System`:
the covariance A = P (K_1 (x) ... (x) K_d) P^T + D for one set of hyperparameters, together with a way to solve with it.
To add an inference method, write one subclass of each in a new file in this folder.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from lkgp.data.readers import Observations
from lkgp.inference.accuracy import kernel_rounding
from lkgp.inference.costs import Cost, PlanningProblem
from lkgp.inference.predictions import (
    SMALL_ERROR,
    PredictionEquations,
    SampleEquations,
    TruncatedEquations,
    VarianceEquations,
)
from lkgp.inference.structured_draws import draw_functions
from lkgp.inference.variance_estimate import VarianceEstimate
from lkgp.linalg.factors import Factor
from lkgp.linalg.kronecker import LatentKronecker, OperatorFactory, sum_of
from lkgp.linalg.products import kronecker_matmul
from lkgp.model import LatentKroneckerGP
from lkgp.settings import Settings
from lkgp.solvers import Solution
from lkgp.solvers.base import column_norms
from lkgp.solvers.refinement import refine

# The true relative residual that is required in float32, unless the noise is so small that less is needed: products
# have rounding errors of about 1e-7 of the largest eigenvalue, which is usually some thousand times the noise.
FLOAT32_RESIDUAL = 1e-3
# Maximum number of refinement steps, each of which at least halves the true residual; no solve needs that many.
MOST_ROUNDS = 100


class Purpose(Enum):
    """The purpose of a solve, from which a system derives the required accuracy."""

    LIKELIHOOD = "the likelihood and its gradient"
    CURVATURE = "the curvature of the likelihood"
    MEAN = "the posterior mean"
    SAMPLES = "posterior samples"


@dataclass(frozen=True)
class Plan(Settings):
    """The chosen method, and why it was chosen.

    why: a description for the report
    cost: predicted cost of one likelihood with its gradient, or of the posterior with its samples
    size: the order of the matrix to be factorised; 0 if there is none
    obstacle: why the method cannot be used; empty if it can
    """

    method: "Method"
    why: str
    cost: Cost | None = None
    size: int = 0
    obstacle: str = ""


@dataclass(frozen=True, eq=False)
class LatentSolution(Solution):
    """A solution of A X = B, with the latent function that it implies.

    residuals: bounds of the relative errors |e|_A / |x|_A, (c,), or true residuals, or zero where they are not computed
    latent: K P^T X at every cell of the grid, (c, N); zero in unobserved cells if the system does not compute it there
    quadratic: b^T A^-1 b, (c,), with an error of second order; None if b^T x is as good
    quadratic_error: a bound of its error, (c,); None if there is none
    """

    latent: Tensor
    quadratic: Tensor | None = None
    quadratic_error: Tensor | None = None


@dataclass(frozen=True, eq=False)
class GradientWeights:
    """The weights of the entries of the covariance in a derivative.

    factors: weights for every factor of every term, as returned by `Factor.pull_back`
    noise: weights for the diagonal of D, (n,)
    """

    factors: list[list[Any]]
    noise: Tensor

    def scaled(self, share: float) -> "GradientWeights":
        return GradientWeights([[weight * share for weight in term] for term in self.factors], self.noise * share)

    def __add__(self, other: "GradientWeights") -> "GradientWeights":
        pairs = zip(self.factors, other.factors, strict=True)
        factors = [[a + b for a, b in zip(*terms, strict=True)] for terms in pairs]
        return GradientWeights(factors, self.noise + other.noise)


class Method(Settings, ABC):
    """An inference method; subclasses are frozen dataclasses.

    exact: whether the likelihood and its gradient are exact, so that no random probes are needed
    num_probes: number of random vectors if the log-determinant and the gradient are estimated
    num_samples: number of posterior samples if the variance is estimated
    """

    exact: bool = False
    num_probes: int = 0
    num_samples: int = 64

    @classmethod
    def automatic(cls) -> Sequence["Method"]:
        """The variants of this method that are considered if the caller does not choose one."""
        return ()

    @abstractmethod
    def plan(self, problem: PlanningProblem) -> Plan:
        """Plan the computation and predict its cost; an obstacle is part of the plan, not an error."""

    def obstacle(self, num_factors: int) -> str:
        """Why these settings cannot be used with this many factors, whatever the data are; empty if they can."""
        return ""

    def for_fitting(self) -> "Method":
        """A copy with looser tolerances that are sufficient while hyperparameters are being fitted."""
        return self

    def for_search(self, num_free: int, least_gain: float, strictness: float) -> "Method":
        """A copy with probes and tolerances for a search that stops at expected gains below `least_gain` nats.

        num_free: number of hyperparameters to be fitted
        strictness: factor on the tolerance of the solves; 1 by default, smaller for a stricter search
        """
        return self

    def for_gain(self, gain: float) -> "Method":
        """A copy whose gradient error is small compared with an expected gain of `gain` nats."""
        return self

    @abstractmethod
    def system(
        self,
        model: LatentKroneckerGP,
        data: Observations,
        *,
        columns: int,
        operators: OperatorFactory = LatentKronecker,
    ) -> "System":
        """Make the system for the current hyperparameters and about `columns` right-hand sides.

        operators: the class or function that makes the operator for true residuals
        """


class System(ABC):
    """The covariance A for one set of hyperparameters, and solves with it.

    noise: the diagonal of D, (n,), float64
    truncation: a bound on the change in the log-likelihood, per observation, caused by omitting small eigenvalues
    """

    truncation: float = 0.0

    def __init__(self, model: LatentKroneckerGP, data: Observations, operators: OperatorFactory) -> None:
        self.model, self.data, self.operators = model, data, operators
        with torch.no_grad():
            self.noise = model.noise_diagonal(data).detach().double()

    # The operator

    @cached_property
    def structures(self) -> tuple[str, ...]:
        """The kinds of factors that make products with A cheapest, term by term."""
        return self.model.structures(self.data.grid)

    @cached_property
    def operator(self) -> LatentKronecker:
        """A itself, without truncation, in the dtype of the data; true residuals are computed with it."""
        with torch.no_grad():
            return self.model.covariance(self.data, self.structures, self.operators).detach()

    @cached_property
    def precise_operator(self) -> LatentKronecker:
        """A itself in float64, whatever the dtype of the data."""
        if self.operator.dtype == torch.float64:
            return self.operator
        with torch.no_grad():
            factors = [factor.rounded(torch.float64) for term in self.operator.terms for factor in term]
            return self.operators(*factors, self.noise, grid=self.data.grid, num_terms=len(self.operator.terms))

    # Solving

    @abstractmethod
    def solve_once(self, rhs: Tensor, purpose: Purpose, start: Tensor | None, goal: float) -> LatentSolution:
        """A^-1 B for B (n, c), float64, as accurate as `purpose` requires, with the truncated A of this system.

        goal: a relative residual that is also required; infinite if there is none
        """

    @abstractmethod
    def residual_goal(self, rhs: Tensor, purpose: Purpose) -> float:
        """The relative residual, for A itself, that `purpose` requires for B (n, c)."""

    @abstractmethod
    def correction(self, residual: Tensor, goal: float) -> Solution:
        """Approximate A^-1 R for R (n, c) to a relative residual of `goal`, with the truncated A of this system."""

    def solve(self, rhs: Tensor, purpose: Purpose, start: Tensor | None = None) -> Solution:
        """A^-1 B for B (n, c), in its dtype; for a posterior it is refined by the true residuals of A.

        start: initial guess of the latent function that B observes, at every cell, (c, N); for samples it is that
            function, and the error is kept small compared with how much it deviates from what B says of it
        """
        if purpose in (Purpose.LIKELIHOOD, Purpose.CURVATURE):
            return self.solve_once(rhs.double(), purpose, start, math.inf)
        goal = self.residual_goal(rhs, purpose)
        goal = goal if rhs.dtype == torch.float64 else max(goal, self.float32_residual)
        first = self.solve_once(rhs.double(), purpose, start, goal)
        if purpose is Purpose.MEAN:
            return self._refined(PredictionEquations(self, rhs, column_norms(rhs), goal), first)
        return self._refined(SampleEquations(self, rhs, column_norms(rhs), goal, start), first)

    def solve_for_variance(self, cross: Tensor, prior: Tensor) -> Solution:
        """The weights W = A^-1 C of the best linear predictors, for covariances C (n, c) with the observations.

        They are refined until the variances k_** - c^T A^-1 c of the predicted values, with k_** in `prior` (c,), are
        accurate.
        """
        first = self.solve(cross, Purpose.MEAN)
        return self._refined(VarianceEquations(self, cross, column_norms(cross), first.rtol, prior), first)

    def _refined(self, equations: TruncatedEquations, first: Solution) -> Solution:
        """Refine the solution of a truncated system until it solves the equations for A."""
        begun = equations.begin(first.values.to(equations.rhs.dtype))
        refined = equations.solution(refine(equations, begun, MOST_ROUNDS))
        products = refined.products + first.products + equations.inner_products
        return replace(refined, iterations=first.iterations + equations.inner_iterations, products=products)

    @property
    def float32_residual(self) -> float:
        """The smallest relative residual that is required in float32: a fraction of the share of noise in the data."""
        prior = float(self.model.prior_variance([x[:1] for x in self.data.grid.coords]).max())
        noise = float(self.noise.mean())
        return min(FLOAT32_RESIDUAL, SMALL_ERROR * math.sqrt(noise / (prior + noise)))

    def trusts(self, solution: Solution) -> bool:
        """Whether a gradient computed from this solution is accurate enough for a step."""
        return True

    # The likelihood

    @abstractmethod
    def log_determinant(
        self, seed: int, num_probes: int | None = None, steps: int | None = None, max_memory: float | None = None
    ) -> tuple[Tensor, float]:
        """log det A and its standard error, which is 0 if the value is exact.

        num_probes, steps: probes and Lanczos steps of the quadrature; by default those of the method
        max_memory: limit in bytes on the large arrays in memory at once
        """

    @cached_property
    def kernel_rounding(self) -> float:
        """The rounding error of a prior covariance; see `lkgp.inference.accuracy`."""
        return kernel_rounding(self.model, self.data)

    def likelihood_rounding(self, weights: Tensor) -> float:
        """The change in log p(y) that the rounding of the kernels to the dtype of the data may cause.

        If entries of K are off by q with random signs, -1/2 r^T A^-1 r - 1/2 log det A is off by at most about
        q / 2 (|a|^2 + |D^-1|), a = A^-1 r.

        weights: a, (n,)
        """
        size = weights.double().square().sum() + self.noise.reciprocal().square().sum().sqrt()
        return 0.5 * self.kernel_rounding * float(size)

    def exact_trace(self) -> GradientWeights | None:
        """The weights of tr(A^-1 dA); None if they must be estimated with probes."""
        return None

    @property
    def needs_probes(self) -> bool:
        """Whether the trace in the gradient is estimated."""
        return True

    @abstractmethod
    def quadratic_weights(self, x: Tensor, shares: Sequence[float]) -> GradientWeights:
        """The weights of sum_j share_j x_j^T dA x_j, for x (n, c) and c shares."""

    @torch.no_grad()
    def prior_data(self, normals: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        """Draws of the data from the prior, (n, s), from standard normal numbers.

        normals: (N, s) for every term, one after the other; noise: (n, s)

        The symmetric roots of the factors, and hence the draws, change smoothly with the hyperparameters. Also returns
        the latent functions at every cell, (s, N).
        """
        grid, functions = self.data.grid, []
        for term, part in zip(self.model.terms, normals.split(grid.num_cells), strict=True):
            factors = term.factors(grid.coords)
            if any(factor.draws_by_structure for factor in factors):
                functions.append(draw_functions(factors, symmetric_root, part))
            else:
                functions.append(kronecker_matmul([symmetric_root(factor) for factor in factors], part))
        cells = sum_of(functions)
        return cells.index_select(1, self.data.grid.index).mT + self.noise.sqrt()[:, None] * noise, cells

    def trace_probes(self, normals: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        """Vectors to solve for, from which the trace in the gradient is estimated; see `gradient_weights`.

        normals, noise: as for `prior_data`. Returns the vectors, (n, s), and initial guesses of the latent functions
        that they observe, (s, N). By default they are draws of the data from the prior.
        """
        return self.prior_data(normals, noise)

    def gradient_weights(self, rhs: Tensor, solved: Tensor) -> GradientWeights:
        """The weights of 1/2 a^T dA a - 1/2 tr(A^-1 dA), from a = A^-1 r and the solutions v for the probes.

        rhs: r and the probes, (n, 1 + s); solved: a and all v, (n, 1 + s)
        """
        exact = self.exact_trace()
        if exact is not None:
            return self.quadratic_weights(solved[:, :1], [0.5]) + exact.scaled(-0.5)
        # tr(A^-1 dA) is the mean of v^T dA v over draws of the data
        probes = solved.shape[1] - 1
        return self.quadratic_weights(solved, [0.5] + [-0.5 / probes] * probes)

    # The posterior

    def explained_variance(self, crosses: Sequence[Tensor]) -> Tensor | None:
        """k_*^T A^-1 k_* at every cell of another grid, (n'_1, ..., n'_d); None if it is not known exactly.

        crosses: C_k, (n'_k, n_k), covariances of the points of that grid with the points of factor k
        """
        return None

    @property
    def exact_variance(self) -> bool:
        """Whether `explained_variance` is known exactly."""
        return False

    def variance_at_fitted_cells(self, seed: int) -> VarianceEstimate | None:
        """The posterior variance at every cell of the fitted grid; None if there is no way but from draws alone.

        seed: of the random numbers that some of it is estimated with
        """
        return None

    @property
    def solve_remark(self) -> str:
        """What the system decided about its solves when it was made, for the report; empty if nothing."""
        return ""

    @property
    def sampling_remark(self) -> str:
        """A remark on error bars from samples, for the report."""
        return ""


def quadratic_form(operator: LatentKronecker, rhs: Tensor, x: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
    """b^T A^-1 b, (c,), from approximate solutions x (n, c) for B (n, c), and a bound of its error, (c,).

    With r = b - A x: b^T A^-1 b = x^T (b + r) + r^T A^-1 r, and r^T A^-1 r <= r^T D^-1 r.
    """
    residual = rhs - operator @ x
    return (x * (rhs + residual)).sum(dim=0), (residual.square() / noise[:, None]).sum(dim=0)


def gaussian_log_density(quadratic: Tensor, logdet: Tensor, n: int) -> Tensor:
    """log N(r; 0, A) from r^T A^-1 r and log det A."""
    return -0.5 * (quadratic + logdet + n * math.log(2 * math.pi))


def symmetric_root(factor: Factor) -> Tensor:
    """The symmetric root of a factor, (n_k, n_k)."""
    basis = factor.basis()
    return basis.root @ basis.vectors.mT
