"""Inference in the Kronecker eigenbasis, with few weights instead of many observations."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from lkgp.data.readers import Observations
from lkgp.inference.base import GradientWeights, Plan
from lkgp.inference.costs import (
    OUTSIDE,
    Cost,
    FactorRanks,
    PlanningProblem,
    block_solve,
    leading_products,
    missing_at_random,
    products_above,
)
from lkgp.inference.estimated import EstimatedMethod, MixedPrecisionSystem
from lkgp.inference.weight_space import WeightEquations, WeightSpace
from lkgp.linalg.eigenbasis import largest_tails
from lkgp.linalg.factors import DenseFactor, Factor, LowRankFactor, base
from lkgp.linalg.kronecker import LatentKronecker, OperatorFactory
from lkgp.linalg.leading_modes import BLOCK_WEIGHT, ITERATIONS_PER_ROOT, block_multiplications, cheapest_block
from lkgp.linalg.products import along_axis, unfolded
from lkgp.linalg.quadrature import FEW_DIMENSIONS, random_signs, trace_of_log
from lkgp.linalg.transform import Transform, cheapest_order, transform_multiplications
from lkgp.model import LatentKroneckerGP
from lkgp.settings import check_positive

# The truncation tolerance on a complete grid: everything is exact there, and keeping more modes costs almost nothing.
COMPLETE_TOLERANCE = 1e-11
# Pairs of transforms in float64 that a solve takes for its checks: 5.5 in a fit and 7.5 for samples were counted.
CHECKS = 7.0
# Iterations with the diagonal alone where cells are missing at random and there are far fewer modes than observations.
# On simulated fields solves of a fit take 1.9 to 4.2, and those of samples 4.4 to 6.4, in one case 13.5.
ITERATIONS_AT_RANDOM, FIT_SHARE = 8.0, 0.5
# The largest sqrt(modes / observations) for which the diagonal alone is enough if cells are missing at random.
MOST_CROWDED = 0.8
# Products use the root of a factor with at least LOW_RANK_PAYS points if it has at most a fifth as many modes: a
# spectrum down to rounding error is about twice as long as down to the noise, and a product with a root takes two
# passes.
LOW_RANK_PAYS, POINTS_PER_MODE = 500, 5


@dataclass(frozen=True)
class Spectral(EstimatedMethod):
    """Iterative inference in the truncated eigenbasis of the factors, for large data.

    It is exact if no cell is missing and the noise is constant.

    tolerance: how much the log-likelihood, per observation, may change by truncating the spectra
    fit_tolerance: the same while hyperparameters are being fitted
    max_block: maximum number of modes in the dense block of the whitening

    The other settings are those of all iterative methods; see `EstimatedMethod`.
    """

    tolerance: float = 1e-4
    fit_tolerance: float = 1e-4
    max_block: int = 8000

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive(self, tolerance=self.tolerance, fit_tolerance=self.fit_tolerance, max_block=self.max_block)

    @classmethod
    def automatic(cls) -> Sequence["Spectral"]:
        return (cls(),)

    def for_fitting(self) -> "Spectral":
        return replace(super().for_fitting(), tolerance=max(self.tolerance, self.fit_tolerance))

    def plan(self, problem: PlanningProblem) -> Plan:
        ranks = problem.ranks(self.fit_tolerance if problem.fitting else self.tolerance)
        columns, prepared = problem.columns(self.num_samples), problem.system_columns(self.num_samples)
        cost, block = spectral_cost(problem, ranks, self.max_block, columns, prepared)
        modes = " x ".join(str(factor.rank) for factor in ranks)
        words = f"spectral: {modes} modes{f', a dense block over {block} of them' if block else ''}, {cost}"
        obstacle = ""
        if len(problem.model.terms) > 1:
            obstacle = "the model is a sum of several products; use ObservationSpace"
        # The eigenpairs of a factor that is too large for a matrix are computed row by row, if they are few.
        elif any(f.points > base.MOST_DENSE_POINTS and f.rank > base.MOST_MODES_BY_ROWS for f in ranks):
            most = max(f.rank for f in ranks)
            obstacle = f"a factor has about {most} modes, too many to compute row by row; use ObservationSpace"
        return Plan(self, words, cost, obstacle=obstacle)

    def system(
        self,
        model: LatentKroneckerGP,
        data: Observations,
        *,
        columns: int,
        operators: OperatorFactory = LatentKronecker,
    ) -> "SpectralSystem":
        return SpectralSystem(self, model, data, operators, columns)


def spectral_cost(
    problem: PlanningProblem, ranks: Sequence[FactorRanks], max_block: int, columns: int, prepared: int
) -> tuple[Cost, int]:
    """The cost of solving for `columns` right-hand sides in the truncated eigenbasis, and the modes in the block.

    prepared: number of right-hand sides for which the whitening is made
    """
    grid, shapes = problem.grid, [(f.points, f.rank) for f in ranks]
    transform = transform_multiplications([shapes[k] for k in cheapest_order(shapes)])
    share = grid.num_observed / grid.num_cells
    diagonal = 1 + leading_products(ranks, max_block + 1) * share / problem.least_noise

    def work(iterations: float, block: int) -> float:
        """Of the block, whose multiplications are counted in float32, and of the solves, in float32 as well."""
        build = BLOCK_WEIGHT * block_multiplications(grid.shape, [f.rank for f in ranks], block) if block else 0.0
        return build / 2 + columns * iterations * (transform + block_solve(block, columns)) / 2

    # the cheaper one, as the system itself decides
    options = _whitenings(problem, diagonal, transform, ranks, max_block, prepared)
    iterations, block = min(options, key=lambda option: work(*option))
    outside = columns * (CHECKS * transform + OUTSIDE * grid.num_cells)
    memory = 8.0 * (3 * sum(f.points**2 for f in ranks) + 3 * block**2) + problem.column_memory(columns)
    return Cost(sum(f.decomposition for f in ranks) + work(iterations, block) + outside, memory), block


def _whitenings(
    problem: PlanningProblem,
    diagonal: Tensor,
    product: float,
    ranks: Sequence[FactorRanks],
    max_block: int,
    columns: int,
) -> list[tuple[float, int]]:
    """The whitenings that may be used: iterations with each, and the number of modes in its block.

    diagonal: the leading `max_block` + 1 entries of the diagonal of H, descending, or all if they are fewer
    """
    grid = problem.grid
    if grid.num_observed == grid.num_cells:
        return [(2.0, 0)]
    block = cheapest_block(diagonal, product, grid.shape, [f.rank for f in ranks], max_block, columns)
    left = float(diagonal[block]) if block < len(diagonal) else 1.0
    options = [(ITERATIONS_PER_ROOT * math.sqrt(left), block)]
    # The Marchenko-Pastur law gives the condition number if cells are missing at random: with c = modes / observations,
    # its square root is (1 + sqrt(c)) / (1 - sqrt(c)).
    modes = products_above(ranks, problem.least_noise * grid.num_cells / grid.num_observed)
    crowding = math.sqrt(modes / grid.num_observed)
    if crowding < MOST_CROWDED and missing_at_random(grid):
        loose = FIT_SHARE if problem.fitting else 1.0
        options.append((loose * ITERATIONS_AT_RANDOM * (1 + crowding) / (1 - crowding), 0))
    return options


class SpectralSystem(MixedPrecisionSystem):
    """A system solved in the truncated eigenbasis."""

    def __init__(
        self,
        method: Spectral,
        model: LatentKroneckerGP,
        data: Observations,
        operators: OperatorFactory,
        columns: int,
    ) -> None:
        super().__init__(model, data, operators)
        self.method: Spectral = method
        grid = data.grid
        with torch.no_grad():
            self.factors: list[Factor] = model.terms[0].factors(grid.coords)
            tolerance = min(method.tolerance, COMPLETE_TOLERANCE) if self.complete else method.tolerance
            traces = [float(factor.entries_diagonal().double().sum()) for factor in self.factors]
            row_sums = [factor.largest_row_sum() for factor in self.factors]
            largest = largest_tails(traces, row_sums, float(self.noise.min()), grid.num_observed, tolerance)
            spectra = [factor.basis(*most) for factor, most in zip(self.factors, largest, strict=True)]
            shares = [s.tail / max(tail, 1e-300) for s, (tail, _) in zip(spectra, largest, strict=True)]
            self.truncation = sum(shares) * tolerance / len(shares)
            most, precision = method.max_block, method.fast_dtype
            self.space = WeightSpace(spectra, self.noise, grid, most, columns, method.rtol, precision)

    @property
    def complete(self) -> bool:
        """Whether H is diagonal: no cell is missing and the noise is constant."""
        grid = self.data.grid
        return grid.num_observed == grid.num_cells and bool((self.noise == self.noise[0]).all())

    @cached_property
    def structures(self) -> tuple[str, ...]:
        kinds = list(self.model.structures(self.data.grid))
        for axis, spectrum in zip(self.space.order, self.space.spectra, strict=True):
            points = self.data.grid.shape[axis]
            few = points >= LOW_RANK_PAYS and POINTS_PER_MODE * spectrum.rank <= points
            if kinds[axis] == DenseFactor.kind and few:
                kinds[axis] = LowRankFactor.kind
        return tuple(kinds)

    # Solving

    def equations(self, rhs: Tensor) -> WeightEquations:
        return WeightEquations(self.space, rhs)

    @property
    def spread(self) -> float:
        """Approximate norm of a posterior deviation of f over the observed cells: sqrt(n / N sum_i S_i^2 / H_ii)."""
        variance = (self.space.exact.scale / self.space.whitening.diagonal).square().sum()
        return math.sqrt(float(variance) * self.data.grid.num_observed / self.data.grid.num_cells)

    # The likelihood

    @property
    def known_logdet(self) -> Tensor:
        """log det C C^T + log det D; the rest of log det A is the trace of the log of the whitened system."""
        return self.space.whitening.logdet + self.noise.log().sum()

    def log_determinant(
        self, seed: int, num_probes: int | None = None, steps: int | None = None, max_memory: float | None = None
    ) -> tuple[Tensor, float]:
        if self.complete:
            return torch.as_tensor(self.known_logdet), 0.0
        size, generator = self.space.size, torch.Generator(self.noise.device).manual_seed(seed)
        whole = size <= FEW_DIMENSIONS
        if whole:
            probes = math.sqrt(size) * torch.eye(size, dtype=torch.float64, device=self.noise.device)
        else:
            shape = (size, num_probes or self.method.num_probes)
            normals = torch.randn(shape, generator=generator, dtype=torch.float64, device=self.noise.device)
            probes = random_signs(normals)
        left, error = trace_of_log(
            self.space.exact.__matmul__,
            probes,
            steps or self.method.lanczos_steps,
            max_memory=max_memory,
            lowest=self.space.lowest_eigenvalue,
            whole=whole,
        )
        return left + self.known_logdet, error

    @property
    def needs_probes(self) -> bool:
        return not self.complete

    def exact_trace(self) -> GradientWeights | None:
        """If H is diagonal: G_k with <G_k, dK_k> = tr(A^-1 (dK_k (x) the other factors)), and diag(A^-1)."""
        if not self.complete:
            return None
        noise, space = float(self.noise[0]), self.space
        ranks = [spectrum.rank for spectrum in space.spectra]
        squares = space.exact.scale.square().view(ranks)
        total = squares + noise
        weights: dict[int, Any] = {}
        for place, axis in enumerate(space.order):
            # sum over the other factors' modes of l' / (l l' + s^2), and of l' / s^2 outside the span of Q_k
            others = squares.movedim(place, 0)[-1].reshape(1, -1) / space.spectra[place].values[-1]
            inside = (others / total.movedim(place, 0).reshape(ranks[place], -1)).sum(dim=1)
            outside = float(others.sum()) / noise
            q = space.spectra[place].vectors
            weight = (q * (inside - outside)) @ q.mT
            weight.diagonal().add_(outside)
            weights[axis] = self.factors[axis].fold(weight)
        cells = self.data.grid.num_cells
        diagonal = (float((1 / total).sum()) + (cells - space.size) / noise) / cells
        return GradientWeights([[weights[k] for k in range(len(weights))]], torch.full_like(self.noise, diagonal))

    def quadratic_weights(self, x: Tensor, shares: Sequence[float]) -> GradientWeights:
        # With roots of the other factors, x^T P (dK_k (x) U U^T) P^T x = <Z Z^T, dK_k>, Z = U^T P^T x unfolded along
        # axis k
        weights: list[Any] = [None] * len(self.factors)
        for column, share in zip(x.mT, shares, strict=True):
            cells = self.space.scatter(column[:, None]).view(1, *self.space.shape)
            for place, axis in enumerate(self.space.order):
                part = cells
                for other, spectrum in enumerate(self.space.spectra):
                    if other != place:
                        part = along_axis(part, spectrum.root, other)
                z = unfolded(part, place)
                added = self.factors[axis].pull_back(share * z, z)
                weights[axis] = added if weights[axis] is None else weights[axis] + added
        share_of = torch.tensor(list(shares), dtype=x.dtype, device=x.device)
        return GradientWeights([weights], x.square() @ share_of)

    def prior_data(self, normals: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        # P F S F^T w + D^1/2 e: the symmetric root, and hence each draw, changes smoothly with the hyperparameters
        space = self.space
        weights = space.exact.transform.down(space.own_order(normals.mT).contiguous())
        cells = space.to_cells(weights)
        data = cells.index_select(1, space.index).mT + self.noise.sqrt()[:, None] * noise
        return data, space.grid_order(cells)

    # The posterior

    def explained_variance(self, crosses: Sequence[Tensor]) -> Tensor | None:
        if not self.complete:
            return None
        # C_k lies in the span of Q_k, so k_*^T A^-1 k_* = sum over modes of (C_1 Q_1)^2 (x) ... (x) (C_d Q_d)^2 / (S^2
        # + s^2)
        order, spectra = self.space.order, self.space.spectra
        squares = Transform([(crosses[k].double() @ s.vectors).square() for k, s in zip(order, spectra, strict=True)])
        explained = squares.up((1 / (self.space.exact.scale.square() + self.noise[0]))[:, None])
        back = [order.index(k) for k in range(len(order))]
        return explained.view([len(crosses[k]) for k in order]).permute(back)

    @property
    def exact_variance(self) -> bool:
        return self.complete

    @property
    def solve_remark(self) -> str:
        return "" if self.complete else str(self.space.whitening)
