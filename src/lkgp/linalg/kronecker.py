"""The covariance of the observed cells, P (K_1 (x) ... (x) K_d) P^T + D, and its cross-covariance to other cells."""

from dataclasses import dataclass
from functools import cached_property
from math import prod

import torch
from linear_operator.operators import LinearOperator
from torch import Tensor

from lkgp.data.grid import PartialGrid
from lkgp.linalg.factors import (
    Factor,
    aligned_rows,
    batches_pay,
    factor_diagonal,
    factor_rows,
    kronecker_matmul,
    kronecker_matmul_in_batches,
    kronecker_matmul_in_place,
)

# Products work on about this many cells at a time: enough for full speed, little beside the factors.
CHUNK_CELLS = 2**22
# But on up to this many columns, because reading and writing a single column of a matrix of rows takes as long as four.
CHUNK_COLUMNS = 4


class LatentKronecker(LinearOperator):
    """A = P (K_1 (x) ... (x) K_d) P^T + D, n x n and never formed.

    factors_and_noise: K_1, ..., K_d, each (n_k, n_k), then the diagonal of D: a scalar tensor, or (n,) for one variance a cell
    grid: which cells are observed

    Leading batch dimensions of the factors are allowed, as `LinearOperator` asks.
    """

    def __init__(self, *factors_and_noise: Factor, grid: PartialGrid) -> None:
        super().__init__(*factors_and_noise, grid=grid)
        self.grid = grid
        self.factors: tuple[Factor, ...] = factors_and_noise[:-1]
        noise: Tensor = factors_and_noise[-1]
        self.noise = noise[None] if noise.ndim == 0 else noise  # (1,) or (n,)

    def product(self, rhs: Tensor) -> Tensor:
        """A X for X (n, c), as plain autograd: gradients reach the parameters of lazy factors too."""
        if torch.is_grad_enabled() or rhs.ndim > 2 or len(self.batch_shape):
            cells = rhs.new_zeros(*rhs.shape[:-2], self.grid.num_cells, rhs.shape[-1]).index_copy(
                -2, self.grid.index, rhs
            )
            result = kronecker_matmul(self.factors, cells).index_select(-1, self.grid.index).mT
        else:
            result = self._product_in_chunks(rhs)
        return (
            torch.addcmul(result, rhs, self.noise[..., None])
            if result.requires_grad
            else result.addcmul_(rhs, self.noise[..., None])
        )

    def _product_in_chunks(self, rhs: Tensor) -> Tensor:
        """P K P^T X for X (n, c), some columns at a time.

        Fresh pages cost as much as the arithmetic on them, so all chunks and all factors share the same two arrays.
        """
        factors, index = self._aligned
        in_batches = batches_pay(factors)
        num_cells, columns = self.grid.num_cells, rhs.shape[1]
        # On large grids a quarter of the columns at most, so that the two arrays are about half of what all cells would take.
        chunk = max(1, min(CHUNK_COLUMNS, columns // 4), min(columns, CHUNK_CELLS // num_cells))
        work = chunk * prod(max(factor.shape) for factor in factors)
        front, back = rhs.new_empty(work), rhs.new_empty(work)
        result = rhs.new_empty(rhs.shape) if columns > 1 else rhs  # one column is returned where it was computed
        for start in range(0, columns, chunk):
            part = rhs[:, start : start + chunk]
            width = part.shape[1]
            if in_batches:
                cells = front[: num_cells * width].view(width, num_cells).zero_()
                for column, observed in zip(
                    cells, part.mT, strict=True
                ):  # each on its own: along a second axis that is slower
                    column.index_copy_(0, self.grid.index, observed)
                cells, spare = kronecker_matmul_in_batches(factors, cells, front, back)
            else:
                cells = front[: num_cells * width].view(num_cells, width).zero_().index_copy_(0, self.grid.index, part)
                cells, spare = kronecker_matmul_in_place(factors, cells, front, back)
            values = spare[: width * len(index)].view(width, len(index))
            for column, observed in zip(cells, values, strict=True):
                torch.index_select(column, 0, index, out=observed)
            if columns == 1:
                return values.mT
            result[:, start : start + chunk] = values.mT
        return result

    @cached_property
    def _aligned(self) -> tuple[tuple[Factor, ...], Tensor]:
        """The factors with aligned rows, and where the observed cells are in their product, (n,)."""
        factors = tuple(aligned_rows(factor) for factor in self.factors)
        if all(factor.shape[-2] == factor.shape[-1] for factor in factors):
            return self.factors, self.grid.index
        index = torch.zeros_like(self.grid.index)
        for factor, axis in zip(factors, self.grid.axis_index, strict=True):
            index.mul_(factor.shape[-2]).add_(axis)
        return factors, index

    def rows(self, index: Tensor) -> Tensor:
        """Rows `index` (b,) of A, dense, (b, n)."""
        here = torch.arange(len(index), device=index.device)
        return self.latent_rows(index).index_put((here, index), self.noise_diagonal()[index], accumulate=True)

    def latent_rows(self, index: Tensor) -> Tensor:
        """Rows `index` (b,) of P K P^T, dense, (b, n)."""
        rows = torch.ones((), dtype=self.dtype, device=self.device)
        for factor, axis in zip(self.factors, self.grid.axis_index, strict=True):
            rows = rows * factor_rows(factor, axis[index]).index_select(1, axis)
        return rows

    def latent_diagonal(self) -> Tensor:
        """The diagonal of P K P^T, (n,)."""
        diagonal = torch.ones((), dtype=self.dtype, device=self.device)
        for factor, axis in zip(self.factors, self.grid.axis_index, strict=True):
            diagonal = diagonal * factor_diagonal(factor)[..., axis]
        return diagonal

    def noise_diagonal(self) -> Tensor:
        """The diagonal of D, (n,)."""
        return self.noise.expand(*self.noise.shape[:-1], self.grid.num_observed)

    # What `LinearOperator` asks of its subclasses.

    def _matmul(self, rhs: Tensor) -> Tensor:
        if rhs.ndim == 1:
            return self.product(rhs[:, None])[..., 0]
        return self.product(rhs)

    def _size(self) -> torch.Size:
        batch = torch.broadcast_shapes(*(factor.shape[:-2] for factor in self.factors))
        return torch.Size((*batch, self.grid.num_observed, self.grid.num_observed))

    def _transpose_nonbatch(self) -> "LatentKronecker":
        return LatentKronecker(*(factor.mT for factor in self.factors), self._args[-1], grid=self.grid)

    def _diagonal(self) -> Tensor:
        return self.latent_diagonal() + self.noise

    def _get_indices(self, row_index: Tensor, col_index: Tensor, *batch_indices: Tensor) -> Tensor:
        noise = self.noise_diagonal().expand(*self.batch_shape, -1)[(*batch_indices, row_index)]
        latent = torch.ones((), dtype=self.dtype, device=self.device)
        for factor, axis in zip(self.factors, self.grid.axis_index, strict=True):
            latent = latent * factor[(*batch_indices, axis[row_index], axis[col_index])]
        return latent + torch.where(row_index == col_index, noise, 0.0)


@dataclass(frozen=True, eq=False)
class CrossKronecker:
    """(C_1 (x) ... (x) C_d) P^T: the covariance of the cells of another grid with the observed ones, N' x n.

    factors: C_k, (n'_k, n_k), from the points of factor k to those of the other grid
    """

    factors: tuple[Factor, ...]
    grid: PartialGrid

    def __matmul__(self, rhs: Tensor) -> Tensor:
        """The product with (n, c), as (N', c)."""
        return kronecker_matmul(self.factors, self.grid.scatter(rhs)).mT

    def rows(self, index: Tensor) -> Tensor:
        """Rows `index` (b,) of the cross-covariance, dense, (b, n)."""
        axes = torch.unravel_index(index, tuple(factor.shape[-2] for factor in self.factors))
        rows = torch.ones((), dtype=self.factors[0].dtype, device=index.device)
        for factor, axis, observed in zip(self.factors, axes, self.grid.axis_index, strict=True):
            rows = rows * factor_rows(factor, axis).index_select(1, observed)
        return rows
