"""Inference in the space of the observations: only products with A, any preconditioner and any solver.

Products with A = P (K_1 (x) ... (x) K_d) P^T + D are computed as Kronecker products on the whole grid or, if so many
cells are missing that padding costs more, with one dense matrix. If the preconditioner M is known to satisfy M <= A,
a residual r = b - A x bounds the error, |e|_A^2 = r^T A^-1 r <= r^T M^-1 r, and solves stop when this bound is small
enough. A preconditioner close to A on both sides gives an estimate of this bound, with the smallest eigenvalue of
M^-1 A that the iterations have seen; otherwise D takes the place of M. Custom solvers stop by the residual itself.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, is_dataclass, replace
from functools import cached_property
from math import prod

import torch
from torch import Tensor

from lkgp.data.readers import Observations
from lkgp.inference.base import GradientWeights, LatentSolution, Plan, Purpose, quadratic_form
from lkgp.inference.cell_equations import CellEquations
from lkgp.inference.costs import PlanningProblem, break_even, product_spectrum
from lkgp.inference.estimated import CURVATURE_RTOL, EstimatedMethod, MixedPrecisionSystem
from lkgp.inference.filter_costs import filter_cost, filter_obstacle
from lkgp.inference.filtered_variance import filtered_variance
from lkgp.inference.gradients import quadratic_weights
from lkgp.inference.neighbour_costs import neighbour_cost
from lkgp.inference.observation_costs import SPECTRUM_TOLERANCE, observation_cost
from lkgp.inference.structured_draws import draw_functions
from lkgp.inference.succession_costs import succession_cost
from lkgp.inference.variance_estimate import VarianceEstimate
from lkgp.linalg.factors import Factor
from lkgp.linalg.kronecker import LatentKronecker, OperatorFactory, sum_of
from lkgp.linalg.preconditioners import (
    FilteredInverse,
    KalmanFilter,
    LeadingModes,
    NoiseOnly,
    PivotedCholesky,
    Preconditioner,
    PreconditionerSettings,
    SuccessiveBlocks,
    Vecchia,
)
from lkgp.linalg.preconditioners.leading_modes import MOST_MODES
from lkgp.linalg.products import kronecker_matmul
from lkgp.linalg.quadrature import FEW_DIMENSIONS, trace_of_log
from lkgp.linalg.roots import shifted_cholesky
from lkgp.model import LatentKroneckerGP
from lkgp.solvers import ConjugateGradients, Solution, Solver, solve

# Prior variance that is added by a jitter on the diagonals of the factors, as a fraction of the noise: far below the
# noise, yet enough for a Cholesky factorisation.
JITTER = 1e-3
# The numbers of neighbours that are considered if the caller does not choose: fewer are cheaper to build, more take
# fewer iterations.
NEIGHBOURS = (15, 30)
# The same for the most modes beside a filter.
FILTER_MODES = (512, 1024, 2048, 4096)


@dataclass(frozen=True)
class ObservationSpace(EstimatedMethod):
    """Iterative inference that needs only products with A.

    Use it for factors with too many modes for an eigenbasis, and for custom solvers and preconditioners.

    solver: solver of all linear systems; None for conjugate gradients in mixed precision with an error bound
    preconditioner: used for all linear systems and for the log-determinant; None for no preconditioner
    dense: whether products use one n x n matrix instead of the grid, for grids with most cells missing

    The other settings are those of all iterative methods; see `EstimatedMethod`. A custom solver has its own tolerance,
    which replaces all of theirs except `fit_rtol`.
    """

    solver: Solver | None = None
    preconditioner: PreconditionerSettings | None = field(default_factory=LeadingModes)
    dense: bool = False

    @classmethod
    def automatic(cls) -> Sequence["ObservationSpace"]:
        if cls is not ObservationSpace:
            return ()
        neighbours = [cls(preconditioner=Vecchia(neighbours=count)) for count in NEIGHBOURS]
        filters = [cls(preconditioner=KalmanFilter(modes=most)) for most in FILTER_MODES]
        return (cls(), cls(dense=True), *neighbours, cls(preconditioner=SuccessiveBlocks()), *filters)

    def for_fitting(self) -> "ObservationSpace":
        return super().for_fitting() if self.solver is None else self._looser(self.fit_rtol)

    def for_search(self, num_free: int, least_gain: float, strictness: float) -> "ObservationSpace":
        # With a custom solver, the caller decides how accurate gradients must be.
        return self if self.solver is not None else super().for_search(num_free, least_gain, strictness)

    def for_gain(self, gain: float) -> "ObservationSpace":
        return self if self.solver is not None else super().for_gain(gain)

    def _looser(self, rtol: float) -> "ObservationSpace":
        """A copy with a looser tolerance of the solver, if the solver is a settings record."""
        if not is_dataclass(self.solver):
            return self
        solver: Solver = replace(self.solver, rtol=max(self.solver.rtol, rtol))
        return replace(self, solver=solver)

    def plan(self, problem: PlanningProblem) -> Plan:
        grid = problem.grid
        if self.solver is None and isinstance(self.preconditioner, Vecchia) and not self.dense:
            return self._plan_with_neighbours(problem, self.preconditioner)
        if self.solver is None and isinstance(self.preconditioner, SuccessiveBlocks) and not self.dense:
            return self._plan_with_blocks(problem, self.preconditioner)
        if self.solver is None and isinstance(self.preconditioner, KalmanFilter) and not self.dense:
            return self._plan_with_filter(problem, self.preconditioner)
        if self.solver is not None or not isinstance(self.preconditioner, LeadingModes):
            # The cost of other solvers and preconditioners is not known.
            return Plan(self, "observation space")
        # The ranks of an eigenbasis indicate how hard the system is to solve.
        ranks = problem.ranks(SPECTRUM_TOLERANCE)
        columns, prepared = problem.columns(self.num_samples), problem.system_columns(self.num_samples)
        cost = observation_cost(problem, ranks, self.preconditioner.max_rank, columns, prepared, self.dense)
        missing = f"{1 - grid.num_observed / grid.num_cells:.0%} missing, break-even {break_even(grid.shape):.0%}"
        words = f"observation space, {'without' if self.dense else 'with'} the grid ({missing}), {cost}"
        return Plan(self, words, cost)

    def _plan_with_neighbours(self, problem: PlanningProblem, settings: Vecchia) -> Plan:
        grid = problem.grid
        ranks = problem.ranks(SPECTRUM_TOLERANCE)
        # modes whose share of the data is above the noise
        above = product_spectrum(ranks, MOST_MODES) * grid.num_observed / grid.num_cells > problem.least_noise
        few = int(above.sum()) <= LeadingModes().max_rank and all(f.rank <= MOST_MODES for f in ranks)
        # Small parts of a long axis do not show what lasts along it; blocks along the axis are better there.
        unsuited = few or not SuccessiveBlocks.obstacle(grid, len(problem.model.terms))
        columns = problem.columns(self.num_samples)
        cost, iterations = neighbour_cost(problem, settings, columns, unsuited, self.max_iterations)
        words = (
            f"observation space, nearest-neighbour preconditioner with {settings.neighbours} neighbours "
            f"(about {iterations:.0f} iterations), {cost}"
        )
        return Plan(self, words, cost)

    def _plan_with_blocks(self, problem: PlanningProblem, settings: SuccessiveBlocks) -> Plan:
        obstacle = settings.obstacle(problem.grid, len(problem.model.terms))
        if not obstacle and not problem.requested and not filter_obstacle(problem, KalmanFilter()):
            # To count the iterations of blocks takes most of the time of a plan.
            obstacle = "a filter is exact for these kernels"
        if obstacle:
            return Plan(self, "observation space, block by block along an axis", obstacle=obstacle)
        cost, iterations = succession_cost(problem, settings, problem.columns(self.num_samples))
        words = f"observation space, preconditioner block by block along an axis (about {iterations:.0f} iterations)"
        return Plan(self, f"{words}, {cost}", cost)

    def _plan_with_filter(self, problem: PlanningProblem, settings: KalmanFilter) -> Plan:
        words = "observation space, filter along an axis"
        obstacle = filter_obstacle(problem, settings)
        if obstacle:
            return Plan(self, words, obstacle=obstacle)
        cost, iterations = filter_cost(problem, settings)
        words += f" with at most {settings.modes} modes as preconditioner (about {iterations:.0f} iterations)"
        return Plan(self, f"{words}, {cost}", cost)

    def system(
        self,
        model: LatentKroneckerGP,
        data: Observations,
        *,
        columns: int,
        operators: OperatorFactory = LatentKronecker,
    ) -> "ObservationSystem":
        return ObservationSystem(self, model, data, operators, columns)


@dataclass(frozen=True)
class Iterative(ObservationSpace):
    """`ObservationSpace` with plain conjugate gradients and a pivoted Cholesky preconditioner, as in the paper."""

    solver: Solver | None = field(default_factory=ConjugateGradients)
    preconditioner: PreconditionerSettings | None = field(default_factory=PivotedCholesky)
    fit_rtol: float = field(default=1e-3, kw_only=True)
    num_probes: int = field(default=16, kw_only=True)
    lanczos_steps: int = field(default=64, kw_only=True)


class ObservationSystem(MixedPrecisionSystem):
    """A system solved in observation space."""

    def __init__(
        self,
        method: ObservationSpace,
        model: LatentKroneckerGP,
        data: Observations,
        operators: OperatorFactory,
        columns: int,
    ) -> None:
        super().__init__(model, data, operators)
        self.method: ObservationSpace = method
        self.columns = columns
        with torch.no_grad():
            given = model.covariance(data, self.structures, operators).detach()
            self.operator = given
            self.exact = given if given.dtype == torch.float64 else self._rounded(given, torch.float64)
            self.inverse = self._preconditioner()
            self.fast: Tensor | LatentKronecker = self.exact
            if method.solver is None:
                rough = self._rounded(self.exact, method.fast_dtype)
                cells = torch.arange(len(self.noise), device=self.noise.device)
                self.fast = rough.rows(cells) if method.dense else rough

    def _preconditioner(self) -> Preconditioner:
        if self.method.preconditioner is None:
            return NoiseOnly(self.noise)
        n, grid = len(self.noise), self.data.grid
        product = float(n * n if self.method.dense else grid.num_cells * sum(grid.shape))
        return self.method.preconditioner.build(self.exact, columns=self.columns, product=product)

    def _rounded(self, operator: LatentKronecker, dtype: torch.dtype) -> LatentKronecker:
        """A in another precision."""
        factors = [factor.rounded(dtype) for term in operator.terms for factor in term]
        return self.operators(*factors, self.noise.to(dtype), grid=self.data.grid, num_terms=len(operator.terms))

    @property
    def terms(self) -> Sequence[Sequence[Factor]]:
        return self.exact.terms

    # Solving

    def solve(self, rhs: Tensor, purpose: Purpose, start: Tensor | None = None) -> Solution:
        if self.method.solver is None:
            return super().solve(rhs, purpose, start)
        # A custom solver checks its own residuals.
        method = self.method._looser(CURVATURE_RTOL) if purpose is Purpose.CURVATURE else self.method
        # Only from one evaluation of the likelihood to the next is the start known to be better than zero.
        x0 = (
            None
            if start is None or purpose is not Purpose.LIKELIHOOD
            else (rhs - self._observed(start).to(rhs)) / self.noise[:, None].to(rhs)
        )
        operator = self.exact if rhs.dtype == torch.float64 else self.operator
        preconditioner = None if self.method.preconditioner is None else self.inverse
        assert method.solver is not None
        found = solve(operator, rhs, method.solver, preconditioner=preconditioner, x0=x0)
        if purpose is not Purpose.LIKELIHOOD:
            return found
        latent = self.data.grid.scatter(rhs - self.noise[:, None].to(rhs) * found.values).mT
        quadratic, error = quadratic_form(self.exact, rhs.double(), found.values.double(), self.noise)
        return LatentSolution(
            found.values,
            found.residuals,
            found.iterations,
            found.products + rhs.shape[1],
            found.reason,
            found.rtol,
            latent,
            quadratic,
            error,
        )

    def correction(self, residual: Tensor, goal: float) -> Solution:
        if self.method.solver is None:
            return super().correction(residual, goal)
        return self.solve(residual, Purpose.MEAN)

    def _observed(self, cells: Tensor) -> Tensor:
        """The values of functions (c, N) at the observed cells, (n, c)."""
        return self.data.grid.gather(cells.mT)

    def equations(self, rhs: Tensor) -> CellEquations:
        return CellEquations(rhs, self.noise, self.exact, self.fast, self.inverse, self.data.grid)

    def trusts(self, solution: Solution) -> bool:
        # A solver of the caller's own is trusted.
        return self.method.solver is not None or super().trusts(solution)

    @cached_property
    def spread(self) -> float:
        """The approximate norm of a posterior deviation of f over the observed cells, from the leading modes."""
        share = len(self.noise) / self.data.grid.num_cells
        # The mean of the precisions, not of the variances: cells with a huge noise must not mask the others.
        precision = (1 / self.noise).mean()
        known = self.inverse.mode_variances
        if known is None:
            # as if the cells were independent
            latent = self.exact.latent_diagonal()
            return math.sqrt(float((latent / (1 + latent * precision)).sum()))
        return math.sqrt(float((known / (1 + share * known * precision)).sum()) * share)

    def variance_at_fitted_cells(self, seed: int) -> VarianceEstimate | None:
        if not isinstance(self.inverse, FilteredInverse):
            return None

        def solved(rhs: Tensor) -> Solution:
            goal = self.residual_goal(rhs, Purpose.SAMPLES)
            return self.solve_to(rhs, self.method.sample_rtol, goal)

        return filtered_variance(self.inverse, solved, self.method.num_samples, seed)

    # The likelihood

    def log_determinant(
        self, seed: int, num_probes: int | None = None, steps: int | None = None, max_memory: float | None = None
    ) -> tuple[Tensor, float]:
        # log det A = log det M + tr log(G^-1 A G^-T), M = G G^T. Probes G w have covariance M, and Lanczos in the inner
        # product of M^-1 is equivalent to Lanczos with G^-1 A G^-T but needs no inverse of G.
        n, length = len(self.noise), steps or self.method.lanczos_steps
        if n <= FEW_DIMENSIONS:
            return self._dense_log_determinant()
        known = self.inverse if self.inverse.logdet is not None else NoiseOnly(self.noise)
        generator = torch.Generator(self.noise.device).manual_seed(seed)
        probes = known.draw(num_probes or self.method.num_probes, generator, self.noise)
        # The directions of normal vectors are uniform; with lengths all alike, the estimates scatter less.
        probes *= (n / (probes * known.solve(probes)).sum(dim=0)).sqrt()
        return self.quadrature(probes, length, known, max_memory)

    def _dense_log_determinant(self) -> tuple[Tensor, float]:
        """log det A of few observations from the eigenvalues of A, and what rounding leaves of it.

        Quadrature would lose more digits: with M far from A, the condition number of M^-1 A is that of A.
        """
        dense = self.exact @ torch.eye(len(self.noise), dtype=self.noise.dtype, device=self.noise.device)
        # A >= D
        values = torch.linalg.eigvalsh((dense + dense.mT) / 2).clamp(min=float(self.noise.min()))
        # An eigenvalue is off by about eps times the largest one.
        rounding = torch.finfo(values.dtype).eps * float((values[-1] / values).sum())
        return values.log().sum(), rounding

    def quadrature(
        self, probes: Tensor, steps: int, known: Preconditioner, max_memory: float | None = None
    ) -> tuple[Tensor, float]:
        """log det A and its standard error from probes with covariance M, (n, s)."""
        assert known.logdet is not None
        # M <= A; if M is only A with another noise, x^T A x is at least the smallest ratio of the noises times x^T M x;
        # if M is merely close to A, the lowest eigenvalue is estimated.
        ratio = 1.0 if known.below else float(self.noise.min() / self.noise.mean())
        lowest = ratio if known.lowest is None else None
        left, error = trace_of_log(self.exact.__matmul__, probes, steps, known.solve, max_memory, lowest=lowest)
        return left + known.logdet, error

    def quadratic_weights(self, x: Tensor, shares: Sequence[float]) -> GradientWeights:
        return quadratic_weights(self.terms, self.data.grid, x.double(), shares)

    def trace_probes(self, normals: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        if not self.inverse.differentiable:
            return super().trace_probes(normals, noise)
        # w = G z has the covariance M; M^-1 w is close to A^-1 w, and f = w - D x
        drawn = self.inverse.root(noise)
        observed = drawn - self.noise[:, None] * self.inverse.solve(drawn)
        return drawn, self.data.grid.scatter(observed).mT

    def gradient_weights(self, rhs: Tensor, solved: Tensor) -> GradientWeights:
        if not self.inverse.differentiable:
            return super().gradient_weights(rhs, solved)
        known = GradientWeights(*self.inverse.trace_weights(rhs[:, 1:]))
        # tr(A^-1 dA) = d log det M + mean of v^T dA u + w^T d(M^-1) w, u = M^-1 w, v = A^-1 w: the two parts of the
        # mean nearly cancel, draw by draw. v^T dA u is a difference of squares.
        v, u, count = solved[:, 1:], self.inverse.solve(rhs[:, 1:]), rhs.shape[1] - 1
        columns = torch.cat([solved[:, :1], v + u, v - u], dim=1)
        mixed = self.quadratic_weights(columns, [0.5] + [-0.125 / count] * count + [0.125 / count] * count)
        return mixed + known.scaled(-0.5)

    def prior_data(self, normals: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        parts = zip(self.terms, normals.split(self.data.grid.num_cells), strict=True)
        cells = sum_of(self._functions(term, part) for term, part in parts)
        return cells.index_select(1, self.data.grid.index).mT + self.noise.sqrt()[:, None] * noise, cells

    def _functions(self, factors: Sequence[Factor], normals: Tensor) -> Tensor:
        """Draws of one term at every cell, (s, N), from standard normal numbers (N, s)."""
        if any(factor.draws_by_structure for factor in factors):
            return draw_functions(factors, lambda factor: self._root(factors, factor), normals)
        return kronecker_matmul([self._root(factors, factor) for factor in factors], normals)

    def _root(self, factors: Sequence[Factor], factor: Factor) -> Tensor:
        """The Cholesky factor of one of the factors of a term, with a jitter far below the noise."""
        largest = [float(other.entries_diagonal().max()) for other in factors]
        k = next(k for k, other in enumerate(factors) if other is factor)
        others = prod(largest[:k] + largest[k + 1 :])
        # The jitter adds far less than the noise to the prior variance.
        allowed = JITTER * float(self.noise.min()) / max(others, 1e-300) / len(factors)
        return shifted_cholesky(factor.dense(), max(allowed, 1e-14 * largest[k]))

    @property
    def sampling_remark(self) -> str:
        # Only the error bound keeps the errors of solves small compared with the posterior standard deviation.
        return "" if self.method.solver is None else ", in addition to the errors of the solves"
