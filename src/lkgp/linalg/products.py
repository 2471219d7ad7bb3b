"""Products with K_1 (x) ... (x) K_d, one factor at a time."""

from collections.abc import Sequence
from math import prod

import torch
from linear_operator.operators import LinearOperator
from torch import Tensor

from lkgp.linalg.factors import DenseFactor, Factor, as_factor

# The rows of products start at multiples of ALIGNED_ROWS numbers (64 bytes in float64, a cache line) if a factor has at
# least ALIGNED_FROM rows, so that the zeros added for this hardly matter.
ALIGNED_ROWS = 8
ALIGNED_FROM = 400
# Products with a transposed matrix take up to twice as long if factors have fewer than SHORT points. Batched products
# take longer if the matrices of a batch are narrower than WIDE, and far longer if they are narrower than NARROW.
# `scripts/calibrate_costs.py` measures all three.
SHORT, NARROW, WIDE = 256, 64, 512


def aligned_rows(factor: Factor) -> Factor:
    """Pad a dense factor (m_k, n_k) with zero rows to a multiple of `ALIGNED_ROWS`; return others unchanged.

    Matrix products are up to a quarter slower if the rows of their result are not aligned in memory.
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
    made = [as_factor(factor) for factor in factors]
    # The roots of a factor that is zero have no columns, so sizes are counted, not inferred.
    done = 1
    for k, factor in enumerate(made):
        # Z has shape (n_k, axes to come, columns, axes done). Writing the product transposed moves axis k to the end,
        # so the next axis comes first and no array is ever permuted: (K_k Z)^T = Z^T K_k^T.
        rest = columns * prod(other.shape[-1] for other in made[k + 1 :]) * done
        cells = factor.transposed_product(cells.reshape(*batch, factor.shape[-1], rest))
        batch, done = cells.shape[:-2], done * factor.shape[-2]
    return cells.reshape(*batch, columns, done)


def kronecker_matmul_in_place(
    factors: Sequence[Factor], cells: Tensor, front: Tensor, back: Tensor
) -> tuple[Tensor, Tensor]:
    """Compute `kronecker_matmul` by alternating between two flat arrays; `cells` is a view of `front`.

    Returns the result (c, m_1 ... m_d), and the array that does not hold it.
    """
    columns = cells.shape[1]
    for factor in factors:
        z = cells.view(factor.shape[-1], -1)
        here = back[: z.shape[1] * factor.shape[-2]].view(z.shape[1], factor.shape[-2])
        cells = factor.transposed_product_into(z, here)
        front, back = back, front
    return cells.view(columns, -1), back


def batches_pay(factors: Sequence[Factor]) -> bool:
    """Whether `kronecker_matmul_in_batches` is faster.

    It is if the matrices of its batches are wide, or if all factors are short and the matrices not too narrow.
    """
    narrowest, longest = factors[-1].shape[-1], max(max(factor.shape) for factor in factors)
    dense = all(isinstance(factor, DenseFactor) for factor in factors)
    return dense and (narrowest >= WIDE or (narrowest >= NARROW and longest < SHORT))


def kronecker_matmul_in_batches(
    factors: Sequence[Factor], cells: Tensor, front: Tensor, back: Tensor
) -> tuple[Tensor, Tensor]:
    """Like `kronecker_matmul_in_place`, for dense factors and X with its columns as rows, (c, n_1 ... n_d).

    No axis is moved and no matrix is transposed.
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
    """Reshape arrays (c, n_1, ..., n_d) to a matrix (n_axis, c times the other points)."""
    return cells.movedim(axis + 1, 0).reshape(cells.shape[axis + 1], -1)


def along_axis(cells: Tensor, matrix: Tensor, axis: int) -> Tensor:
    """Multiply one axis of arrays (c, n_1, ..., n_d) by a matrix (n_axis, m) from the right."""
    return torch.tensordot(cells, matrix, dims=([axis + 1], [0])).movedim(-1, axis + 1)
