"""The numbers of products, transforms and decompositions: sizes from which on one way is faster than another.

No size is a power of two: rows at such distances displace each other in caches, which slows down transposed products.
"""

import math
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import torch
from torch import Tensor

from calibration.comparing import Effort, Found, Function, crossover, fastest, ratio, replaced, seconds, times
from lkgp.data.grid import PartialGrid
from lkgp.inference import spectral
from lkgp.linalg import eigenbasis, kronecker, products, transform
from lkgp.linalg.eigenbasis import FactorBasis, largest_tails
from lkgp.linalg.factors import DenseFactor, Factor, LowRankFactor, ToeplitzFactor, toeplitz
from lkgp.linalg.factors import base as factors_base
from lkgp.linalg.kronecker import LatentKronecker
from lkgp.linalg.roots import root_by_rows
from lkgp.linalg.transform import Transform

# Columns that products are timed with: about as many as a fit solves for.
COLUMNS = 8
# Columns that a single factor is multiplied with: those, for each point of another factor.
WIDTH = 500
# Solves iterate in float32, and are judged in float64.
PRECISIONS = (torch.float32, torch.float64)
# What "minutes" means in the comment beside MOST_MODES_BY_ROWS.
ROOT_SECONDS = 120.0


def operator(shape: Sequence[int], dtype: torch.dtype, columns: int = COLUMNS) -> tuple[LatentKronecker, Tensor]:
    """A over a grid with a third of its cells missing, with factors of random numbers, and right-hand sides (n, c)."""
    observed = torch.rand(tuple(shape), generator=torch.Generator().manual_seed(0)) < 0.67
    grid = PartialGrid(tuple(torch.arange(float(n))[:, None] for n in shape), observed)
    factors = [torch.randn(n, n, dtype=dtype) / math.sqrt(n) for n in shape]
    rhs = torch.randn(grid.num_observed, columns, dtype=dtype)
    return LatentKronecker(*factors, torch.tensor(0.1, dtype=dtype), grid=grid), rhs


def gain(ways: Callable[[torch.dtype], tuple[Function, Function]], effort: Effort) -> float:
    """The time of the first way over that of the second, the geometric mean over both precisions."""
    return math.sqrt(math.prod(ratio(*ways(dtype), effort) for dtype in PRECISIONS))


def gain_of_batches(shape: Sequence[int], effort: Effort) -> float:
    """The time of products with transposed matrices over that of products in batches."""

    def ways(dtype: torch.dtype) -> tuple[Function, Function]:
        matrix, rhs = operator(shape, dtype)
        no, yes = (replaced(kronecker, "batches_pay", lambda _, b=b: b, lambda: matrix @ rhs) for b in (False, True))
        return no, yes

    return gain(ways, effort)


def short(effort: Effort) -> Found:
    """From how many points on products in batches of narrow matrices no longer pay."""
    sizes = effort.sizes(72, 120, 248, 504, 1000)
    gains = [1 / gain_of_batches((n, effort.size(120)), effort) for n in sizes]
    return crossover(sizes, gains, products.SHORT)


def narrow(effort: Effort) -> Found:
    """From which width on they pay for short factors."""
    sizes = effort.sizes(16, 40, 72, 120, 248)
    gains = [gain_of_batches((effort.size(200), n), effort) for n in sizes]
    return crossover(sizes, gains, products.NARROW)


def wide(effort: Effort) -> Found:
    """From which width on they pay for factors of any length."""
    sizes = effort.sizes(120, 248, 504, 1000)
    gains = [gain_of_batches((effort.size(1000), n), effort) for n in sizes]
    return crossover(sizes, gains, products.WIDE)


def aligned_from(effort: Effort) -> Found:
    """From how many points on it pays to fill rows with zeros up to a whole cache line, which an odd number needs."""

    def ways(n: int, dtype: torch.dtype) -> tuple[Function, Function]:
        plain, rhs = operator((n, n), dtype)
        padded, _ = operator((n, n), dtype)
        # An operator pads its factors once, at its first product.
        without = replaced(products, "ALIGNED_FROM", n + 1, lambda: plain @ rhs)
        return without, replaced(products, "ALIGNED_FROM", 1, lambda: padded @ rhs)

    sizes = effort.sizes(51, 101, 201, 401, 801)
    return crossover(sizes, [gain(partial(ways, n), effort) for n in sizes], products.ALIGNED_FROM)


def chunk_cells(effort: Effort) -> Found:
    """Cells at a time that are fastest; more take more memory."""
    matrix, rhs = operator((effort.size(600), effort.size(400)), torch.float64, 64)
    sizes = [2**power for power in (18, 20, 21, 22, 23, 24)]
    ways = [replaced(kronecker, "CHUNK_CELLS", size, lambda: matrix @ rhs) for size in sizes]
    return fastest(sizes, times(ways, effort), kronecker.CHUNK_CELLS)


def chunk_columns(effort: Effort) -> Found:
    """Columns at a time that are fastest on a grid that is larger than a chunk; more take more memory."""
    matrix, rhs = operator((effort.size(800), effort.size(400)), torch.float64, 32)
    sizes = [1, 2, 4, 8]
    ways = [replaced(kronecker, "CHUNK_COLUMNS", size, lambda: matrix @ rhs) for size in sizes]
    small = [replaced(kronecker, "CHUNK_CELLS", 1, way) for way in ways]
    return fastest(sizes, times(small, effort), kronecker.CHUNK_COLUMNS)


def gain_of_factor(n: int, structured: Callable[[torch.dtype], Factor], effort: Effort) -> float:
    """The time of a product with a dense factor over that with a structured one."""

    def ways(dtype: torch.dtype) -> tuple[Function, Function]:
        z, out = torch.randn(n, WIDTH, dtype=dtype), torch.empty(WIDTH, n, dtype=dtype)
        factors = (DenseFactor(torch.randn(n, n, dtype=dtype)), structured(dtype))
        dense, other = (partial(factor.transposed_product_into, z, out) for factor in factors)
        return dense, other

    return gain(ways, effort)


def toeplitz_pays(effort: Effort) -> Found:
    """From how many points on Fourier transforms are faster than a dense product."""
    sizes = effort.sizes(500, 1000, 2000, 4000, 8000)
    columns = {n: torch.randn(n, dtype=torch.float64) for n in sizes}
    gains = [gain_of_factor(n, lambda dtype, n=n: ToeplitzFactor(columns[n].to(dtype)), effort) for n in sizes]
    return crossover(sizes, gains, toeplitz.TOEPLITZ_PAYS)


def gain_of_root(n: int, rank: int, effort: Effort) -> float:
    return gain_of_factor(n, lambda dtype: LowRankFactor(torch.randn(n, rank, dtype=dtype)), effort)


def low_rank_pays(effort: Effort) -> Found:
    """From how many points on a product with a root is faster, at the longest spectrum that it is used for."""
    sizes = effort.sizes(125, 250, 500, 1000, 2000)
    gains = [gain_of_root(n, 2 * n // spectral.POINTS_PER_MODE, effort) for n in sizes]
    return crossover(sizes, gains, spectral.LOW_RANK_PAYS)


def points_per_mode(effort: Effort) -> Found:
    """Points per mode from which on a root pays, times how much longer its spectrum is: it ends at rounding only."""
    n, tenths = effort.size(1500), [15, 20, 25, 30, 40]
    _, at = crossover(tenths, [gain_of_root(n, 10 * n // share, effort) for share in tenths])
    longer = mean_excess_length(effort.size(800))
    words = f"a root pays from {at / 10:g} points per mode on; its spectrum is {longer:.2f} times as long"
    return words, at / 10 * longer


def mean_excess_length(n: int) -> float:
    """The modes of squared exponentials down to rounding over those that matter beside the noise, on average."""
    longer = []
    for length in (0.05, 0.1, 0.2):
        matrix = smooth(n, length)
        trace, row_sum = float(matrix.diagonal().sum()), float(matrix.sum(dim=1).max())
        # Beside another factor of 100 points, half of whose variance is in one mode, and a noise of a hundredth.
        most, _ = largest_tails([trace, 100.0], [row_sum, 50.0], 0.01, 100 * n, 1e-4)
        longer.append(FactorBasis.of(matrix).rank / FactorBasis.of(matrix, *most).rank)
    return float(np.mean(longer))


def smooth(n: int, length: float) -> Tensor:
    """A squared exponential over random places of a square, (n, n)."""
    places = torch.rand(n, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return torch.exp(-torch.cdist(places, places).square() / (2 * length**2))


def few_rows(effort: Effort) -> Found:
    """From how many rows on a product of two transposed matrices is faster than one that is transposed afterwards."""

    def ways(rows: int, dtype: torch.dtype) -> tuple[Function, Function]:
        cells, basis = torch.randn(rows, points, dtype=dtype), torch.randn(points, points // 3, dtype=dtype)
        down = partial(Transform([basis]).down, cells)
        return replaced(transform, "FEW_ROWS", rows, down), replaced(transform, "FEW_ROWS", 0, down)

    points, sizes = effort.size(3000), [8, 24, 72, 120, 248, 504, 1000]
    return crossover(sizes, [gain(partial(ways, rows), effort) for rows in sizes], transform.FEW_ROWS)


def pivoted_pays(effort: Effort) -> Found:
    """From how many points on the attempt pays if half of all factors have a low rank."""
    sizes, gains = effort.sizes(125, 250, 500, 1000), []
    for n in sizes:
        ways = []
        for first in (n + 1, 1):
            for matrix in (smooth(n, 0.3), smooth(n, 1e-3)):
                basis = partial(FactorBasis.of, matrix, 1e-4 * n)
                ways.append(replaced(eigenbasis, "PIVOTED_PAYS", first, basis))
        taken = times(ways, effort)
        gains.append(float(np.median(taken[:, :2].sum(axis=1) / taken[:, 2:].sum(axis=1))))
    return crossover(sizes, gains, eigenbasis.PIVOTED_PAYS)


def most_modes_by_rows(effort: Effort) -> Found:
    """Modes that are found row by row in `ROOT_SECONDS`; that time grows with their square."""
    n, modes, largest = effort.size(20000), effort.size(300), factors_base.MOST_MODES_BY_ROWS
    row, diagonal = torch.zeros(n, dtype=torch.float64), torch.ones(n, dtype=torch.float64)

    def rows(index: Tensor) -> Tensor:
        return row.index_fill(0, index, 1.0)[None]

    taken = seconds(lambda: root_by_rows(rows, diagonal, 0.0, modes), effort)
    return f"{taken * (largest / modes) ** 2:.0f} s at {n} points", modes * math.sqrt(ROOT_SECONDS / taken)
