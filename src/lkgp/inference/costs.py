"""What each way of inference would cost: multiplications and memory, from shapes, gaps and ranks, before anything large is computed.

Multiplications are counted in float64; those in float32 take half the time and count half. One likelihood with its gradient is what
a fit pays again and again; one posterior with its samples is what comes after.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import numpy as np
import torch
from torch import Tensor

from lkgp.data.grid import PartialGrid
from lkgp.inference.direct import reduced_size
from lkgp.inference.observation_space import MOST_MODES
from lkgp.linalg.eigenbasis import PIVOTED_PAYS, RANK_OF_REST, pivoted_root
from lkgp.linalg.whitening import (
    ITERATIONS_PER_ROOT,
    block_multiplications,
    cheapest_block,
    cheapest_order,
    transform_multiplications,
)
from lkgp.machine import usable_memory as memory_of_machine  # noqa: F401

# Multiplications of a symmetric eigendecomposition, over n^3, as measured by its time beside that of a matrix product.
EIGH = 5.0
# Passes over float64 arrays that the checks of a solve take, each of two transforms.
CHECKS = 4
# Iterations with the diagonal alone where cells are missing at random and there are far fewer modes than observations.
ITERATIONS_AT_RANDOM = 8.0
# Fibres' shares of observed cells may vary by so many times what chance would make of them.
BY_CHANCE = 3.0
# Multiplications in float32 that take as long as reading one number from memory.
READING = 30.0
# Arrays of m x m that a factorisation with its gradient holds at once.
DIRECT_ARRAYS = 6
# Arrays of the size of the grid, in float64, that a solve holds at once for every right-hand side.
SOLVE_ARRAYS = 12
# Bytes of them in a posterior, where the caller sets no limit: its right-hand sides are solved for some at a time.
COLUMN_BYTES = 2e9


@dataclass(frozen=True)
class Cost:
    """multiplications: of one evaluation; memory: bytes at its peak."""

    multiplications: float
    memory: float

    def __str__(self) -> str:
        return f"about {self.multiplications / 1e9:.3g} billion multiplications and {self.memory / 1e9:.2g} GB"


@dataclass(frozen=True, eq=False)
class FactorRanks:
    """The spectrum of one factor, about.

    values: descending, (r,): eigenvalues, or for long factors the pivots of a Cholesky factorisation, which follow them
    low: whether a pivoted factorisation finds the truncated spectrum without an eigendecomposition of all points
    """

    points: int
    values: Tensor
    low: bool

    @property
    def rank(self) -> int:
        return len(self.values)

    @classmethod
    def of(cls, matrix: Tensor, largest_tail: float, largest_value: float = math.inf) -> "FactorRanks":
        """Of K_k (n_k, n_k), less what `FactorBasis.of` would leave out."""
        n = len(matrix)
        if n >= PIVOTED_PAYS:
            most = min(largest_tail, RANK_OF_REST * largest_value) / 2
            values = np.square(pivoted_root(matrix.double(), most / n)[0]).sum(axis=0)
            low = len(values) <= n // 2
        else:
            values = torch.linalg.eigvalsh(matrix.double()).clamp(min=0).cpu().numpy()
            low = False
        descending = torch.from_numpy(np.sort(values)[::-1].copy())
        left = descending.flip(0).cumsum(0).flip(0)
        keep = ((left > largest_tail) | (descending > largest_value)) & (
            descending > n * torch.finfo(torch.float64).eps * descending[0]
        )
        keep[0] = True
        return cls(n, descending[keep], low)

    @property
    def decomposition(self) -> float:
        """Multiplications of finding its eigenpairs."""
        return self.points * self.rank**2 * 3 if self.low else EIGH * self.points**3


def missing_at_random(grid: PartialGrid) -> bool:
    """Whether the numbers of observed cells in the fibres vary no more than chance would have it."""
    share = grid.num_observed / grid.num_cells
    if share == 1:
        return True
    for k, n in enumerate(grid.shape):
        others = [j for j in range(len(grid.shape)) if j != k]
        if not others or n < 3:
            continue
        counts = grid.observed.sum(dim=others).double()
        if float(counts.var()) > BY_CHANCE * share * (1 - share) * grid.num_cells / n:
            return False
    return True


def product_spectrum(ranks: Sequence[FactorRanks], most: int | None = None) -> Tensor:
    """The eigenvalues of the product of the factors, descending, of each factor `most` at the most."""
    values = torch.ones(1, dtype=torch.float64)
    for factor in ranks:
        values = (values[:, None] * factor.values[:most]).flatten()
    return values.sort(descending=True).values


def columns_at_once(cells: int, max_memory: float | None) -> int:
    """How many right-hand sides of a posterior are solved for at a time, or functions evaluated, on a grid of so many cells."""
    budget = COLUMN_BYTES if max_memory is None else max_memory / 4
    return max(1, int(budget / (SOLVE_ARRAYS * 8 * cells)))


def _column_memory(grid: PartialGrid, columns: int, at_once: int) -> float:
    """Bytes of solves for `columns` right-hand sides, so many at a time, and of their results."""
    return 8.0 * SOLVE_ARRAYS * grid.num_cells * min(columns, at_once) + 8.0 * 2 * grid.num_observed * columns


def direct_cost(grid: PartialGrid, axis: int, rank: int, posterior: bool) -> tuple[Cost, int]:
    """Of a factorisation after a reduction along `axis`, and the number of unknowns."""
    size = reduced_size(grid, axis, rank)
    # Cholesky: m^3 / 6 multiplications. Its inverse: m^3 / 3; or for the variance, a triangular solve for every fibre and mode.
    after = size**2 / 2 * rank * grid.num_cells / grid.shape[axis] if posterior else size**3 / 3
    return Cost(size**3 / 6 + after, DIRECT_ARRAYS * 8.0 * size**2), size


def modes_cost(
    grid: PartialGrid, ranks: Sequence[FactorRanks], noise: float, max_block: int, columns: int, at_once: int
) -> Cost:
    """Of solves for `columns` right-hand sides in the truncated eigenbasis."""
    shapes = [(f.points, f.rank) for f in ranks]
    transform = transform_multiplications([shapes[k] for k in cheapest_order(shapes)])
    share = grid.num_observed / grid.num_cells
    diagonal = 1 + product_spectrum(ranks) * share / noise
    iterations, block, build = _iterations(diagonal, transform, grid, [f.rank for f in ranks], max_block, columns)
    work = columns * (iterations * (transform + block**2) / 2 + CHECKS * transform)
    memory = 8.0 * (3 * sum(f.points**2 for f in ranks) + 3 * block**2) + _column_memory(grid, columns, at_once)
    return Cost(sum(f.decomposition for f in ranks) + build + work, memory)


def cells_cost(
    grid: PartialGrid,
    ranks: Sequence[FactorRanks],
    noise: float,
    max_block: int,
    columns: int,
    at_once: int,
    dense: bool,
) -> Cost:
    """Of solves for `columns` right-hand sides in the space of the observations, with or without use of the grid."""
    n, cells = grid.num_observed, grid.num_cells
    # A dense matrix is read from memory for every product, however few the columns.
    product = max(float(n**2), READING * n**2 / columns) if dense else float(cells * sum(grid.shape))
    share = n / cells
    diagonal = 1 + product_spectrum(ranks, MOST_MODES) * share / noise
    leading = [min(MOST_MODES, f.rank) for f in ranks]
    block = cheapest_block(diagonal, product, grid.shape, leading, max_block, columns)
    left = float(diagonal[block]) if block < len(diagonal) else 1.0
    transform = 2.0 * sum(cells * r for r in leading)
    build = sum(
        f.points**3 / 6 + 3 * f.points * r**2 for f, r in zip(ranks, leading, strict=True)
    ) + block_multiplications(grid.shape, leading, block)
    roots = sum(f.points**3 / 6 for f in ranks)
    iterations = ITERATIONS_PER_ROOT * math.sqrt(left)
    # The preconditioner is applied in float64.
    work = columns * (iterations * (product / 2 + transform + block**2) + CHECKS * cells * sum(grid.shape))
    memory = 8.0 * (6 * sum(f.points**2 for f in ranks) + 3 * block**2) + _column_memory(grid, columns, at_once)
    return Cost(build + roots + work, memory + (12.0 * n**2 if dense else 0.0))


def _iterations(
    diagonal: Tensor, product: float, grid: PartialGrid, ranks: Sequence[int], max_block: int, columns: int
) -> tuple[float, int, float]:
    """Iterations with the cheapest whitening, modes in its block, and multiplications of making it.

    diagonal: of H, (R,), descending
    """
    # By the law of Marchenko and Pastur, when c = modes / observations and cells are missing at random.
    crowding = math.sqrt(float((diagonal > 2).sum()) / grid.num_observed)
    if grid.num_observed == grid.num_cells:
        return 2.0, 0, 0.0
    if crowding < 0.8 and missing_at_random(grid):
        return ITERATIONS_AT_RANDOM * (1 + crowding) / (1 - crowding), 0, 0.0
    block = cheapest_block(diagonal, product, grid.shape, ranks, max_block, columns)
    left = float(diagonal[block]) if block < len(diagonal) else 1.0
    return ITERATIONS_PER_ROOT * math.sqrt(left), block, 4 * block_multiplications(grid.shape, ranks, block)


def break_even(shape: Sequence[int]) -> float:
    """The share of missing cells beyond which a dense product is cheaper than one with the grid: 1 - sqrt(sum_k n_k / N)."""
    return 1 - math.sqrt(sum(shape) / prod(shape))
