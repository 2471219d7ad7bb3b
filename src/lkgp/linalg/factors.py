"""The factors of a Kronecker product: dense tensors, or one of the structured kinds below.

Each kind is a `LinearOperator`, so that `@`, `diagonal()` and indexing are spelled as in the rest of that library.
A low-rank factor is that library's own `RootLinearOperator`.
"""

from collections.abc import Callable
from typing import TypeAlias

import torch
from linear_operator.operators import LinearOperator
from scipy.fft import next_fast_len
from torch import Tensor
from torch.utils.checkpoint import checkpoint

Factor: TypeAlias = Tensor | LinearOperator

# Work arrays of structured products are kept near this many entries, so that they stay small beside the grid.
WORK_ENTRIES = 2**22
# Rows of products begin at multiples of this many numbers, where there are enough of them for the zeros between not to matter.
ALIGNED_ROWS = 8
ALIGNED_FROM = 400
# Products in which a matrix is transposed take up to twice as long where factors have fewer points than SHORT. Products in batches take
# longer where the matrices of a batch are narrower than WIDE, and far longer where they are narrower than NARROW.
SHORT, NARROW, WIDE = 256, 64, 512


class ToeplitzFactor(LinearOperator):
    """A symmetric Toeplitz matrix, given by its first column (..., n_k); products take O(n_k log n_k) by FFT."""

    def __init__(self, column: Tensor) -> None:
        super().__init__(column)
        self.column = column

    def _matmul(self, rhs: Tensor) -> Tensor:
        if rhs.ndim == 1:
            return self._matmul(rhs[:, None])[..., 0]
        n = self.column.shape[-1]
        # The Toeplitz matrix is the corner of a circulant one, which the Fourier transform makes diagonal.
        length = next_fast_len(2 * n - 1, real=True)
        padding = self.column.new_zeros(*self.column.shape[:-1], length - 2 * n + 1)
        spectrum = torch.fft.rfft(torch.cat([self.column, padding, self.column[..., 1:].flip(-1)], dim=-1))[..., None]
        parts = [
            torch.fft.irfft(spectrum * torch.fft.rfft(part, n=length, dim=-2), n=length, dim=-2)[..., :n, :]
            for part in rhs.split(max(1, WORK_ENTRIES // length), dim=-1)
        ]
        return torch.cat(parts, dim=-1)

    def _size(self) -> torch.Size:
        return torch.Size((*self.column.shape, self.column.shape[-1]))

    def _transpose_nonbatch(self) -> "ToeplitzFactor":
        return self

    def _diagonal(self) -> Tensor:
        return self.column[..., :1].expand(self.column.shape)

    def _get_indices(self, row_index: Tensor, col_index: Tensor, *batch_indices: Tensor) -> Tensor:
        return self.column[(*batch_indices, (row_index - col_index).abs())]


class LazyFactor(LinearOperator):
    """A kernel matrix whose values are computed block by block at every product and then forgotten.

    evaluate: (a, d_k), (b, d_k) -> (a, b), the kernel
    rows, columns: (n_k, d_k) and (m_k, d_k), the points of its rows and columns
    """

    def __init__(self, rows: Tensor, columns: Tensor, *, evaluate: Callable[[Tensor, Tensor], Tensor]) -> None:
        super().__init__(rows, columns, evaluate=evaluate)
        self.rows, self.columns, self.evaluate = rows, columns, evaluate

    def _matmul(self, rhs: Tensor) -> Tensor:
        def product(points: Tensor) -> Tensor:
            return self.evaluate(points, self.columns) @ rhs

        blocks = self.rows.split(max(1, WORK_ENTRIES // len(self.columns)))
        if not torch.is_grad_enabled():
            return torch.cat([product(points) for points in blocks])
        # Checkpointing recomputes each block on the way back, so gradients take no more memory than values.
        return torch.cat([checkpoint(product, points, use_reentrant=False) for points in blocks])

    def _size(self) -> torch.Size:
        return torch.Size((len(self.rows), len(self.columns)))

    def _transpose_nonbatch(self) -> "LazyFactor":
        return LazyFactor(self.columns, self.rows, evaluate=lambda a, b: self.evaluate(b, a).mT)

    def _diagonal(self) -> Tensor:
        blocks = zip(self.rows.split(64), self.columns.split(64), strict=True)
        return torch.cat([self.evaluate(a, b).diagonal() for a, b in blocks])

    def _get_indices(self, row_index: Tensor, col_index: Tensor, *batch_indices: Tensor) -> Tensor:
        pairs = zip(self.rows[row_index.flatten()].split(64), self.columns[col_index.flatten()].split(64), strict=True)
        return torch.cat([self.evaluate(a, b).diagonal() for a, b in pairs]).view(row_index.shape)


def factor_rows(factor: Factor, index: Tensor) -> Tensor:
    """Rows `index` (b,) of a factor, dense, (b, n_k)."""
    if isinstance(factor, Tensor):
        return factor.index_select(0, index)
    if isinstance(factor, LazyFactor):
        return factor.evaluate(factor.rows[index], factor.columns)
    if isinstance(factor, ToeplitzFactor):
        return factor.column[(index[:, None] - torch.arange(len(factor.column), device=index.device)).abs()]
    return factor[index, :].to_dense()


def factor_diagonal(factor: Factor) -> Tensor:
    """The diagonal of a factor, (n_k,)."""
    return factor.diagonal() if isinstance(factor, Tensor) else factor.diagonal(dim1=-2, dim2=-1)


def factor_dense(factor: Factor) -> Tensor:
    """A factor as a dense tensor, (n_k, m_k)."""
    return (
        factor
        if isinstance(factor, Tensor)
        else factor_rows(factor, torch.arange(factor.shape[-2], device=factor.device))
    )


def aligned_rows(factor: Factor) -> Factor:
    """A dense factor (m_k, n_k) with rows of zeros up to a multiple of `ALIGNED_ROWS`; others as they are.

    Matrix products are up to a quarter slower where the rows of their result begin anywhere in memory.
    """
    missing = -factor.shape[-2] % ALIGNED_ROWS
    if not isinstance(factor, Tensor) or factor.shape[-2] < ALIGNED_FROM or missing == 0:
        return factor
    return torch.nn.functional.pad(factor, (0, 0, 0, missing))


def kronecker_matmul(factors: tuple[Factor, ...], cells: Tensor) -> Tensor:
    """(K_1 (x) ... (x) K_d) X, one matrix product a factor for all columns at once.

    factors: factor k is (..., m_k, n_k)
    cells: X, (..., n_1 ... n_d, c), row-major
    Returns (..., c, m_1 ... m_d): the columns of the result as rows.
    """
    batch, columns = cells.shape[:-2], cells.shape[-1]
    for factor in factors:
        # Z has shape (n_k, axes to come, columns, axes done). Writing the product transposed moves axis k to the end, so
        # that the next axis is in front and no array is ever permuted: (K_k Z)^T = Z^T K_k^T.
        z = cells.reshape(*batch, factor.shape[-1], -1)
        # Structured factors return (m_k, rest) and are turned round afterwards.
        cells = z.mT @ factor.mT if isinstance(factor, Tensor) else factor.matmul(z).mT.contiguous()
        batch = cells.shape[:-2]
    return cells.reshape(*batch, columns, -1)


def kronecker_matmul_in_place(
    factors: tuple[Factor, ...], cells: Tensor, front: Tensor, back: Tensor
) -> tuple[Tensor, Tensor]:
    """`kronecker_matmul`, computed to and fro between two flat arrays, `cells` being in the first.

    Returns the result (c, m_1 ... m_d), and the array that it is not in.
    """
    columns = cells.shape[1]
    for factor in factors:
        z = cells.view(factor.shape[-1], -1)
        here = back[: z.shape[1] * factor.shape[-2]].view(z.shape[1], factor.shape[-2])
        cells = torch.mm(z.mT, factor.mT, out=here) if isinstance(factor, Tensor) else here.copy_(factor.matmul(z).mT)
        front, back = back, front
    return cells.view(columns, -1), back


def batches_pay(factors: tuple[Factor, ...]) -> bool:
    """Whether `kronecker_matmul_in_batches` is faster: its matrices are wide, or all factors are short and they not too narrow."""
    narrowest, longest = factors[-1].shape[-1], max(max(factor.shape) for factor in factors)
    dense = all(isinstance(factor, Tensor) for factor in factors)
    return dense and (narrowest >= WIDE or (narrowest >= NARROW and longest < SHORT))


def kronecker_matmul_in_batches(
    factors: tuple[Factor, ...], cells: Tensor, front: Tensor, back: Tensor
) -> tuple[Tensor, Tensor]:
    """The same for dense factors and X with its columns as rows, (c, n_1 ... n_d): no axis moves, and no matrix is transposed."""
    columns, rest = cells.shape
    for factor in factors:
        # Z has shape (columns and axes done, n_k, axes to come), and K_k multiplies each of its matrices from the left.
        rows, points = factor.shape
        rest //= points
        z = cells.view(-1, points, rest)
        here = back[: len(z) * rows * rest].view(len(z), rows, rest)
        if rest == 1:
            torch.mm(z[..., 0], factor.mT, out=here[..., 0])
        else:
            torch.bmm(factor.expand(len(z), rows, points), z, out=here)
        cells, front, back = here, back, front
    return cells.view(columns, -1), back
