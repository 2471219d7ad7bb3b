"""The contract of inference: what a way of doing it must say and do. Nothing outside this room asks which way it is.

A `Method` is a frozen record of settings. It says what it would cost, loosens itself for a fit, and makes a `System`:
the covariance A = P (K_1 (x) ... (x) K_d) P^T + D for one set of hyperparameters, ready to be solved with. A new way of
inference is one new file in this folder with one of each.
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
from lkgp.inference.costs import Cost, PlanningProblem
from lkgp.linalg.kronecker import LatentKronecker, OperatorFactory
from lkgp.model import LatentKroneckerGP
from lkgp.settings import Settings
from lkgp.solvers import Solution
from lkgp.solvers.base import column_norms
from lkgp.solvers.refinement import Correction, LinearEquations, refine

# In float32 no true residual can be asked to be smaller than this: products round by about 1e-7 of the largest
# eigenvalue, which is some thousand times the noise.
FLOAT32_RESIDUAL = 1e-3
# The error of a sample, beside the spread of the posterior: with 64 samples a standard deviation is known to 9 %, and
# errors add in squares, so a tenth of the spread does not show.
SMALL_ERROR = 0.1
# Rounds of refinement by the true residual, each of which at least halves it; no solve needs as many.
MOST_ROUNDS = 100


class Purpose(Enum):
    """What a solve is for: the system knows how accurate that must be."""

    LIKELIHOOD = "the likelihood and its gradient"
    CURVATURE = "the curvature of the likelihood"
    MEAN = "the posterior mean"
    SAMPLES = "posterior samples"


@dataclass(frozen=True)
class Plan(Settings):
    """What was chosen, and why, in words.

    cost: predicted, of one likelihood with its gradient, or of the posterior with its samples
    size: the order of the matrix that would be factorised; 0 where none is
    obstacle: why it cannot be done that way, in words; empty if it can
    """

    method: "Method"
    why: str
    cost: Cost | None = None
    size: int = 0
    obstacle: str = ""


@dataclass(frozen=True, eq=False)
class LatentSolution(Solution):
    """A solution of A X = B, with the function that it says was observed.

    latent: K P^T X at every cell of the grid, (c, N), or zero where nothing was observed if the system does not know it
        there
    """

    latent: Tensor


@dataclass(frozen=True, eq=False)
class GradientWeights:
    """What every number of the covariance weighs in a derivative.

    factors: of every term and every factor, as `Factor.pull_back` gives them
    noise: of the diagonal of D, (n,)
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
    """A way of inference; frozen dataclasses are its subclasses.

    exact: whether the likelihood and its gradient are exact, so that no random probes are needed
    num_probes: random vectors of the log-determinant and of the gradient, where they are estimated
    num_samples: posterior samples behind the variance, where it is estimated
    """

    exact: bool = False
    num_probes: int = 0
    num_samples: int = 0

    @classmethod
    def automatic(cls) -> Sequence["Method"]:
        """The settings of this way that are considered when the caller does not choose."""
        return ()

    @abstractmethod
    def plan(self, problem: PlanningProblem) -> Plan:
        """How it would be done, with its predicted cost; an obstacle is part of the answer, not an error."""

    def for_fitting(self) -> "Method":
        """A copy with the looser tolerances that suffice while the hyperparameters are sought."""
        return self

    def for_search(self, num_free: int, least_gain: float, strictness: float) -> "Method":
        """A copy with probes and tolerances that suit a search which stops at expected gains below `least_gain` nats.

        num_free: hyperparameters that are sought; strictness: 1 as by default, less for a search that is asked to be as
            much more accurate
        """
        return self

    def for_gain(self, gain: float) -> "Method":
        """A copy whose gradient errs by little beside an expected gain of so many nats."""
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
        """A for the present hyperparameters, to be solved for about `columns` right-hand sides.

        operators: what makes the operator that true residuals are computed with
        """


class System(ABC):
    """A for one set of hyperparameters.

    noise: the diagonal of D, (n,), float64
    truncation: a bound of what the parts of spectra that were left out change of the log-likelihood, per observation
    """

    truncation: float = 0.0

    def __init__(self, model: LatentKroneckerGP, data: Observations, operators: OperatorFactory) -> None:
        self.model, self.data, self.operators = model, data, operators
        with torch.no_grad():
            self.noise = model.noise_diagonal(data).detach().double()

    # The operator

    @cached_property
    def structures(self) -> tuple[str, ...]:
        """The kinds of factors that make products with A cheapest, of every term after the other."""
        return self.model.structures(self.data.grid)

    @cached_property
    def operator(self) -> LatentKronecker:
        """A itself, untruncated, in the dtype of the data: what true residuals are computed with."""
        with torch.no_grad():
            return self.model.covariance(self.data, self.structures, self.operators).detach()

    # Solving

    @abstractmethod
    def solve_once(self, rhs: Tensor, purpose: Purpose, start: Tensor | None, goal: float) -> LatentSolution:
        """A^-1 B for B (n, c), float64, as accurate as `purpose` needs, by the system as it is: up to what was
        truncated.

        goal: the relative residual that is wanted besides; infinite where none is
        """

    @abstractmethod
    def residual_goal(self, rhs: Tensor, purpose: Purpose) -> float:
        """The relative residual of A itself that `purpose` needs for B (n, c)."""

    @abstractmethod
    def correction(self, residual: Tensor, goal: float) -> Solution:
        """About A^-1 R for R (n, c), to a relative residual of `goal`, by the system as it is."""

    def solve(self, rhs: Tensor, purpose: Purpose, start: Tensor | None = None) -> Solution:
        """A^-1 B for B (n, c), in its dtype, with true relative residuals of A for a posterior.

        start: the function that B is expected to be an observation of, at every cell, (c, N)
        """
        if purpose in (Purpose.LIKELIHOOD, Purpose.CURVATURE):
            return self.solve_once(rhs.double(), purpose, start, math.inf)
        goal = self.residual_goal(rhs, purpose)
        goal = goal if rhs.dtype == torch.float64 else max(goal, FLOAT32_RESIDUAL)
        first = self.solve_once(rhs.double(), purpose, start, goal)
        equations = TruncatedEquations(self, rhs, column_norms(rhs), goal)
        begun = (first.values / equations.norms.double()).to(rhs.dtype)
        refined = equations.solution(refine(equations, begun, MOST_ROUNDS))
        products = refined.products + rhs.shape[1] + first.products + equations.inner_products
        return replace(refined, iterations=first.iterations + equations.inner_iterations, products=products)

    def trusts(self, solution: Solution) -> bool:
        """Whether a gradient from this solution is good enough to step along."""
        return True

    # The likelihood

    @abstractmethod
    def log_determinant(
        self, seed: int, num_probes: int | None = None, steps: int | None = None, max_memory: float | None = None
    ) -> tuple[Tensor, float]:
        """log det A and its standard error, 0 where it is exact.

        num_probes, steps: of the quadrature, those of the method by default; max_memory: bytes that large arrays may
            take at once
        """

    def exact_trace(self) -> GradientWeights | None:
        """The weights of tr(A^-1 dA); None where they must be estimated with probes."""
        return None

    @property
    def needs_probes(self) -> bool:
        """Whether the trace in the gradient is estimated."""
        return True

    @abstractmethod
    def quadratic_weights(self, x: Tensor, shares: Sequence[float]) -> GradientWeights:
        """The weights of sum_j share_j x_j^T dA x_j, for x (n, c) and c shares."""

    @abstractmethod
    def prior_data(self, normals: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        """Draws of the data from the prior, (n, s), for standard normal numbers `normals` (N, s) and `noise` (n, s).

        Roots that change smoothly with the hyperparameters make draws that do. Also returns the functions at every
        cell, (s, N).
        """

    # The posterior

    def explained_variance(self, crosses: Sequence[Tensor]) -> Tensor | None:
        """k_*^T A^-1 k_* at every cell of another grid, (n'_1, ..., n'_d); None where it is not known exactly.

        crosses: C_k, (n'_k, n_k), covariances from the points of that grid to the points of factor k
        """
        return None

    @property
    def exact_variance(self) -> bool:
        """Whether `explained_variance` is known."""
        return False

    @property
    def sampling_remark(self) -> str:
        """What else there is to say of error bars from samples."""
        return ""


class TruncatedEquations(LinearEquations):
    """A X = B, corrected by a system that is A up to rounding and truncation."""

    def __init__(self, system: System, rhs: Tensor, norms: Tensor, rtol: float) -> None:
        super().__init__(system.operator, rhs, norms, rtol)
        self.system, self.inner_iterations, self.inner_products = system, 0, 0
        self._given = False

    def correction(self, residual: Tensor, excess: Tensor, budget: int) -> Correction:
        inner = self.system.correction(residual.double(), 1 / float(excess.max()))
        self.inner_iterations, self.inner_products = (
            self.inner_iterations + inner.iterations,
            self.inner_products + inner.products,
        )
        return Correction(inner.values.to(residual.dtype), 1, 0)


def gaussian_log_density(quadratic: Tensor, logdet: Tensor, n: int) -> Tensor:
    """log N(r; 0, A) from r^T A^-1 r and log det A."""
    return -0.5 * (quadratic + logdet + n * math.log(2 * math.pi))
