"""Direct inference: one Cholesky factorisation, after the observations are reduced along one axis."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from lkgp.data.readers import Observations
from lkgp.inference.base import GradientWeights, LatentSolution, Method, Plan, Purpose, System
from lkgp.inference.costs import Cost, PlanningProblem
from lkgp.inference.gradients import quadratic_weights
from lkgp.inference.reduction import Reduction, reduced_size
from lkgp.linalg.factors import Factor
from lkgp.linalg.kronecker import LatentKronecker, OperatorFactory
from lkgp.model import LatentKroneckerGP
from lkgp.settings import check_positive
from lkgp.solvers import Reason, Solution

# Arrays of m x m that a factorisation with its gradient holds at once: 4.8 were measured, and one is to spare.
DIRECT_ARRAYS = 6
# The time of a Cholesky factorisation, of the inverse from it and of triangular solves, over that of a product of
# matrices with as many multiplications: 1.4 to 1.8, 1.8 to 2.1 and 1.2 to 1.4, for 1000 to 4000 unknowns on one core.
CHOLESKY, INVERSE, SUBSTITUTION = 1.6, 1.9, 1.25
# Passes over the m x m matrices of a likelihood with its gradient, in multiplications per entry, by profiles on a busy
# core: 620 for 2171 unknowns, 1000 to 1600 for 3000; 3000 for 4000, but with the gradients of kernels at 2000 points.
ENTRIES = 1000.0
# The same for the arrays of the variance, per number: three passes are assumed; one took about 120 for 3000 unknowns.
VARIANCE_PASSES = 360.0
# The relative residual to which the solution of a factorised system is refined: the default `residual_rtol` of the
# iterative methods.
RESIDUAL = 1e-6


@dataclass(frozen=True)
class Direct(Method):
    """One Cholesky factorisation of the reduced system: likelihood, gradient and variance are exact.

    max_size: maximum number of unknowns after the reduction
    tolerance: how much the log-likelihood, per observation, may change by truncating the spectrum of one factor
    fit_tolerance: the same while hyperparameters are being fitted
    axis: the factor along which the observations are reduced; None chooses the one that leaves the fewest unknowns
    """

    max_size: int = 8000
    tolerance: float = 1e-10
    fit_tolerance: float = 1e-6
    axis: int | None = None

    exact = True
    num_samples = 0

    def __post_init__(self) -> None:
        check_positive(self, max_size=self.max_size, tolerance=self.tolerance, fit_tolerance=self.fit_tolerance)

    @classmethod
    def automatic(cls) -> Sequence["Direct"]:
        return (cls(),)

    def obstacle(self, num_factors: int) -> str:
        if self.axis is None or 0 <= self.axis < num_factors:
            return ""
        return f"axis={self.axis} is not one of the factors 0 to {num_factors - 1}; change it"

    def plan(self, problem: PlanningProblem) -> Plan:
        grid, n = problem.grid, problem.grid.num_observed
        ranks = problem.ranks(max(self.tolerance, self.fit_tolerance) if problem.fitting else self.tolerance)
        if self.obstacle(len(ranks)):
            return Plan(self, "direct", obstacle=self.obstacle(len(ranks)))
        axes = range(len(ranks)) if self.axis is None else (self.axis,)
        options = [(*direct_cost(problem, k, ranks[k].rank), k) for k in axes]
        # if several are equal, the shortest one: fewer rows per fibre
        cost, size, axis = min(options, key=lambda option: (option[1], grid.shape[option[2]]))
        words = f"{n} observations reduce to {size} unknowns along factor {axis}" if size < n else f"{n} unknowns"
        obstacle = ""
        if size > self.max_size:
            obstacle = (
                f"{n} observations reduce to {size} unknowns ({cost.memory / 1e9:.1f} GB), which is more than "
                f"max_size={self.max_size}; raise it"
            )
        elif len(problem.model.terms) > 1:
            obstacle = "the model is a sum of several products; use ObservationSpace"
        return Plan(replace(self, axis=axis), f"direct: {words}, {cost}", cost, size, obstacle)

    def for_fitting(self) -> "Direct":
        return replace(self, tolerance=max(self.tolerance, self.fit_tolerance))

    def system(
        self,
        model: LatentKroneckerGP,
        data: Observations,
        *,
        columns: int,
        operators: OperatorFactory = LatentKronecker,
    ) -> "DirectSystem":
        axis = self.axis
        if axis is None:
            axis = self.plan(PlanningProblem(model, data)).method.axis  # type: ignore[attr-defined]
        return DirectSystem(self, model, data, operators, axis)


def direct_cost(problem: PlanningProblem, axis: int, rank: int) -> tuple[Cost, int]:
    """The cost of a factorisation after a reduction along `axis`, and the number of unknowns."""
    grid = problem.grid
    size, points = reduced_size(grid, axis, rank), grid.shape[axis]
    # Cholesky: m^3 / 6 multiplications
    factorisation = CHOLESKY * size**3 / 6
    if problem.fitting:
        # m^3 / 3 for the inverse, m^2 r for the matrix and m^2 q for the gradient along the axis of q points; then a
        # product on the grid and the outer products of its result for the gradient of the quadratic form
        after = INVERSE * size**3 / 3 + size**2 * (rank + points + ENTRIES) + 2 * grid.num_cells * sum(grid.shape)
    else:
        # a triangular solve for every fibre and mode, and the r x r Gram matrix of every fibre
        numbers = size * rank * grid.num_cells / points
        after = numbers * (SUBSTITUTION * size / 2 + rank + VARIANCE_PASSES)
    return Cost(factorisation + after, DIRECT_ARRAYS * 8.0 * size**2), size


class DirectSystem(System):
    """A system solved by factorisation, in float64 throughout."""

    def __init__(
        self,
        method: Direct,
        model: LatentKroneckerGP,
        data: Observations,
        operators: OperatorFactory,
        axis: int,
    ) -> None:
        super().__init__(model, data, operators)
        with torch.no_grad():
            factors = model.terms[0].factors(data.grid.coords)
            self.factors: list[Factor] = [factor.rounded(torch.float64) for factor in factors]
            self.reduction = Reduction(self.factors, self.noise, data.grid, axis, method.tolerance, method.max_size)
        self.truncation = self.reduction.truncation

    def solve_once(self, rhs: Tensor, purpose: Purpose, start: Tensor | None, goal: float) -> LatentSolution:
        values = self.reduction.solve(rhs)
        latent = self.data.grid.scatter(rhs - self.noise[:, None] * values).mT
        return LatentSolution(values, torch.zeros_like(rhs[0]), 1, 0, Reason.CONVERGED, 0.0, latent)

    def residual_goal(self, rhs: Tensor, purpose: Purpose) -> float:
        return RESIDUAL

    def correction(self, residual: Tensor, goal: float) -> Solution:
        return Solution(self.reduction.solve(residual), torch.zeros_like(residual[0]), 0, 0, Reason.CONVERGED, goal)

    def log_determinant(
        self, seed: int, num_probes: int | None = None, steps: int | None = None, max_memory: float | None = None
    ) -> tuple[Tensor, float]:
        return self.reduction.logdet, 0.0

    @property
    def needs_probes(self) -> bool:
        return False

    def exact_trace(self) -> GradientWeights:
        weights, noise = self.reduction.trace_weights()
        return GradientWeights([[f.fold(w) for f, w in zip(self.factors, weights, strict=True)]], noise)

    def quadratic_weights(self, x: Tensor, shares: Sequence[float]) -> GradientWeights:
        return quadratic_weights([self.factors], self.data.grid, x, shares)

    def explained_variance(self, crosses: Sequence[Tensor]) -> Tensor:
        return self.reduction.explained_variance(tuple(crosses))

    @property
    def exact_variance(self) -> bool:
        return True
