"""Products with K_1 (x) ... (x) K_d, one factor after the other."""

from collections.abc import Sequence

import torch
from linear_operator.operators import LinearOperator
from torch import Tensor

from lkgp.linalg.factors import DenseFactor, Factor, as_factor

# Rows of products begin at multiples of this many numbers (64 bytes in float64, a cache line), where there are enough
# of them for the zeros between not to matter.
ALIGNED_ROWS = 8
ALIGNED_FROM = 400
# Products in which a matrix is transposed take up to twice as long where factors have fewer points than SHORT. Products
# in batches take longer where the matrices of a batch are narrower than WIDE, and far longer where they are narrower
# than NARROW. `scripts/calibrate_costs.py` measures all three.
SHORT, NARROW, WIDE = 256, 64, 512


def aligned_rows(factor: Factor) -> Factor:
    """A dense factor (m_k, n_k) with rows of zeros up to a multiple of `ALIGNED_ROWS`; others as they are.

    Matrix products are up to a quarter slower where the rows of their result begin anywhere in memory.
    """
    missing = -factor.shape[-2] % ALIGNED_ROWS
    if not isinstance(factor, DenseFactor) or factor.shape[-2] < ALIGNED_FROM or missing == 0:
        return factor
    return DenseFactor(torch.nn.functional.pad(factor.tensor, (0, 0, 0, missing)))


def kronecker_matmul(factors: Sequence[Tensor | LinearOperator], cells: Tensor) -> Tensor:
    """(K_1 (x) ... (x) K_d) X, one matrix product per factor for all columns at once.

    factors: factor k is (..., m_k, n_k)
    cells: X, (..., n_1 ... n_d, c), row-major
    Returns (..., c, m_1 ... m_d): the columns of the result as rows.
    """
    batch, columns = cells.shape[:-2], cells.shape[-1]
    for factor in map(as_factor, factors):
        # Z has shape (n_k, axes to come, columns, axes done). Writing the product transposed moves axis k to the end,
        # so that the next axis is in front and no array is ever permuted: (K_k Z)^T = Z^T K_k^T.
        cells = factor.transposed_product(cells.reshape(*batch, factor.shape[-1], -1))
        batch = cells.shape[:-2]
    return cells.reshape(*batch, columns, -1)


def kronecker_matmul_in_place(
    factors: Sequence[Factor], cells: Tensor, front: Tensor, back: Tensor
) -> tuple[Tensor, Tensor]:
    """`kronecker_matmul`, computed to and fro between two flat arrays, `cells` being in the first.

    Returns the result (c, m_1 ... m_d), and the array that it is not in.
    """
    columns = cells.shape[1]
    for factor in factors:
        z = cells.view(factor.shape[-1], -1)
        here = back[: z.shape[1] * factor.shape[-2]].view(z.shape[1], factor.shape[-2])
        cells = factor.transposed_product_into(z, here)
        front, back = back, front
    return cells.view(columns, -1), back


def batches_pay(factors: Sequence[Factor]) -> bool:
    """Whether `kronecker_matmul_in_batches` is faster: its matrices are wide, or all factors are short and they not
    too narrow.
    """
    narrowest, longest = factors[-1].shape[-1], max(max(factor.shape) for factor in factors)
    dense = all(isinstance(factor, DenseFactor) for factor in factors)
    return dense and (narrowest >= WIDE or (narrowest >= NARROW and longest < SHORT))


def kronecker_matmul_in_batches(
    factors: Sequence[Factor], cells: Tensor, front: Tensor, back: Tensor
) -> tuple[Tensor, Tensor]:
    """The same for dense factors and X with its columns as rows, (c, n_1 ... n_d): no axis moves, no matrix is
    transposed.
    """
    columns, rest = cells.shape
    for factor in factors:
        # Z has shape (columns and axes done, n_k, axes to come), and K_k multiplies each of its matrices from the left.
        matrix = factor.dense()
        rows, points = matrix.shape
        rest //= points
        z = cells.view(-1, points, rest)
        here = back[: len(z) * rows * rest].view(len(z), rows, rest)
        if rest == 1:
            torch.mm(z[..., 0], matrix.mT, out=here[..., 0])
        else:
            torch.bmm(matrix.expand(len(z), rows, points), z, out=here)
        cells, front, back = here, back, front
    return cells.view(columns, -1), back


def unfolded(cells: Tensor, axis: int) -> Tensor:
    """Arrays (c, n_1, ..., n_d) as a matrix (n_axis, c times the other points)."""
    return cells.movedim(axis + 1, 0).reshape(cells.shape[axis + 1], -1)


def along_axis(cells: Tensor, matrix: Tensor, axis: int) -> Tensor:
    """Arrays (c, n_1, ..., n_d) with one axis multiplied by a matrix (n_axis, m) from the right."""
    return torch.tensordot(cells, matrix, dims=([axis + 1], [0])).movedim(-1, axis + 1)
