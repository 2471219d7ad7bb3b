"""The covariance of the observed cells: a sum of products of factors, plus noise."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any, Protocol

import torch
from linear_operator.operators import LinearOperator
from torch import Tensor

from lkgp.data.grid import PartialGrid
from lkgp.linalg.factors import Factor, as_factor
from lkgp.linalg.products import (
    aligned_rows,
    batches_pay,
    kronecker_matmul,
    kronecker_matmul_in_batches,
    kronecker_matmul_in_place,
)

# Products work on about this many cells at a time (32 MB in float64): enough for full speed, and little compared with
# the factors.
CHUNK_CELLS = 2**22
# They work on up to this many columns at a time in any case, because accessing a single column of a row-major matrix
# takes as long as accessing four: a cache line holds eight numbers.
CHUNK_COLUMNS = 4


class OperatorFactory(Protocol):
    """Makes A: `LatentKronecker`, or another class with the same arguments, for example a distributed one."""

    def __call__(self, *factors_and_noise: Tensor | LinearOperator, grid: PartialGrid, num_terms: int = 1) -> Any: ...


class LatentKronecker(LinearOperator):
    """A = P (sum_t K_t1 (x) ... (x) K_td) P^T + D, n x n and never formed.

    factors_and_noise: the factors of the first term, K_11, ..., K_1d, each (n_k, n_k), then those of the next terms,
        and finally the diagonal of D: a scalar tensor, or (n,) for one variance per cell
    grid: which cells are observed
    num_terms: number of products in the sum

    Leading batch dimensions of the factors are allowed, as `LinearOperator` requires.
    """

    def __init__(self, *factors_and_noise: Tensor | LinearOperator, grid: PartialGrid, num_terms: int = 1) -> None:
        super().__init__(*factors_and_noise, grid=grid, num_terms=num_terms)
        self.grid = grid
        factors = tuple(as_factor(factor) for factor in factors_and_noise[:-1])
        width = len(factors) // num_terms
        self.terms = tuple(factors[start : start + width] for start in range(0, len(factors), width))
        noise: Tensor = factors_and_noise[-1]
        self.noise = noise[None] if noise.ndim == 0 else noise  # (1,) or (n,)

    @property
    def factors(self) -> tuple[Factor, ...]:
        """The factors of the first term."""
        return self.terms[0]

    def product(self, rhs: Tensor) -> Tensor:
        """A X for X (n, c), differentiable by autograd: gradients also reach the parameters of lazy factors."""
        if torch.is_grad_enabled() or rhs.ndim > 2 or len(self.batch_shape):
            cells = rhs.new_zeros(*rhs.shape[:-2], self.grid.num_cells, rhs.shape[-1])
            cells = cells.index_copy(-2, self.grid.index, rhs)
            result = self.latent_product(cells).index_select(-1, self.grid.index).mT
        else:
            result = self._product_in_chunks(0, rhs)
            for term in range(1, len(self.terms)):
                result = result + self._product_in_chunks(term, rhs)
        noise = self.noise[..., None]
        return torch.addcmul(result, rhs, noise) if result.requires_grad else result.addcmul_(rhs, noise)

    def latent_product(self, cells: Tensor) -> Tensor:
        """K X on the whole grid, for X (..., N, c), as (..., c, N)."""
        return sum_of(kronecker_matmul(factors, cells) for factors in self.terms)

    def _product_in_chunks(self, term: int, rhs: Tensor) -> Tensor:
        """P K_t P^T X for X (n, c), a few columns at a time.

        New memory pages cost as much as the arithmetic on them, so all chunks and factors share the same two arrays.
        """
        factors, index = self._aligned[term]
        in_batches = batches_pay(factors)
        num_cells, columns = self.grid.num_cells, rhs.shape[1]
        # On large grids at most a quarter of the columns, so that the two arrays take about half as much memory as all
        # columns on the whole grid.
        chunk = max(1, min(CHUNK_COLUMNS, columns // 4), min(columns, CHUNK_CELLS // num_cells))
        work = chunk * prod(max(factor.shape) for factor in factors)
        front, back = rhs.new_empty(work), rhs.new_empty(work)
        result = rhs.new_empty(rhs.shape) if columns > 1 else rhs  # a single column is returned without a copy
        for start in range(0, columns, chunk):
            part = rhs[:, start : start + chunk]
            width = part.shape[1]
            if in_batches:
                cells = front[: num_cells * width].view(width, num_cells).zero_()
                # one column at a time: index_copy_ along the second axis is slower
                for column, observed in zip(cells, part.mT, strict=True):
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
    def _aligned(self) -> list[tuple[tuple[Factor, ...], Tensor]]:
        """For each term, its factors with aligned rows, and the indices (n,) of the observed cells in their product."""
        found = []
        for term in self.terms:
            factors = tuple(aligned_rows(factor) for factor in term)
            if all(factor.shape[-2] == factor.shape[-1] for factor in factors):
                found.append((term, self.grid.index))
                continue
            index = torch.zeros_like(self.grid.index)
            for factor, axis in zip(factors, self.grid.axis_index, strict=True):
                index.mul_(factor.shape[-2]).add_(axis)
            found.append((factors, index))
        return found

    def rows(self, index: Tensor) -> Tensor:
        """Rows `index` (b,) of A, dense, (b, n)."""
        here = torch.arange(len(index), device=index.device)
        return self.latent_rows(index).index_put((here, index), self.noise_diagonal()[index], accumulate=True)

    def latent_rows(self, index: Tensor) -> Tensor:
        """Rows `index` (b,) of P K P^T, dense, (b, n)."""
        pairs = [[(factor.rows_at, axis) for factor, axis in self._with_axes(term)] for term in self.terms]
        return sum_of(_product([rows(axis[index]).index_select(1, axis) for rows, axis in term]) for term in pairs)

    def latent_entries(self, rows: Tensor, columns: Tensor) -> Tensor:
        """Entries of P K P^T at index tensors that broadcast against each other, in the shape that results."""
        parts = [
            [factor.entries(axis[rows], axis[columns]) for factor, axis in self._with_axes(term)] for term in self.terms
        ]
        return sum_of(_product(part) for part in parts)

    def entry_weights(self, rows: Tensor, columns: Tensor, weights: Tensor) -> list[list[Any]]:
        """The weights of the entries of every factor of every term in sum_i w_i (P K P^T)[rows_i, columns_i].

        rows, columns, weights: (m,)
        """
        found = []
        for term in self.terms:
            places = [(axis[rows], axis[columns]) for _, axis in self._with_axes(term)]
            values = [factor.entries(*place) for factor, place in zip(term, places, strict=True)]
            of_term = []
            for k, (factor, place) in enumerate(zip(term, places, strict=True)):
                of_term.append(factor.gather_weights(*place, _product([weights, *values[:k], *values[k + 1 :]])))
            found.append(of_term)
        return found

    def rounded(self, dtype: torch.dtype) -> "LatentKronecker":
        """A in another precision."""
        factors = [factor.rounded(dtype) for term in self.terms for factor in term]
        return LatentKronecker(*factors, self.noise.to(dtype), grid=self.grid, num_terms=len(self.terms))

    def latent_diagonal(self) -> Tensor:
        """The diagonal of P K P^T, (n,)."""
        parts = [
            [factor.entries_diagonal()[..., axis] for factor, axis in self._with_axes(term)] for term in self.terms
        ]
        return sum_of(_product(part) for part in parts)

    def _with_axes(self, term: Sequence[Factor]) -> list[tuple[Factor, Tensor]]:
        return list(zip(term, self.grid.axis_index, strict=True))

    def noise_diagonal(self) -> Tensor:
        """The diagonal of D, (n,)."""
        return self.noise.expand(*self.noise.shape[:-1], self.grid.num_observed)

    def matmul(self, other: Any) -> Any:
        """A X for X (n, c) or (n,); the same operator, so that factors keep what they computed for earlier products."""
        if isinstance(other, Tensor) and not torch.is_grad_enabled():
            return self._matmul(other)
        return super().matmul(other)

    # Methods that `LinearOperator` requires of its subclasses.

    def _matmul(self, rhs: Tensor) -> Tensor:
        if rhs.ndim == 1:
            return self.product(rhs[:, None])[..., 0]
        return self.product(rhs)

    def _size(self) -> torch.Size:
        batch = torch.broadcast_shapes(*(factor.shape[:-2] for term in self.terms for factor in term))
        return torch.Size((*batch, self.grid.num_observed, self.grid.num_observed))

    def _transpose_nonbatch(self) -> "LatentKronecker":
        factors = (factor.mT for term in self.terms for factor in term)
        return LatentKronecker(*factors, self._args[-1], grid=self.grid, num_terms=len(self.terms))

    def _diagonal(self) -> Tensor:
        return self.latent_diagonal() + self.noise

    def _get_indices(self, row_index: Tensor, col_index: Tensor, *batch_indices: Tensor) -> Tensor:
        noise = self.noise_diagonal().expand(*self.batch_shape, -1)[(*batch_indices, row_index)]
        latent = sum_of(
            _product(
                [factor[(*batch_indices, axis[row_index], axis[col_index])] for factor, axis in self._with_axes(term)]
            )
            for term in self.terms
        )
        return latent + torch.where(row_index == col_index, noise, 0.0)


def sum_of(parts: Iterable[Tensor]) -> Tensor:
    """The sum of the terms; a single term is returned unchanged."""
    first, *others = parts
    for other in others:
        first = first + other
    return first


def _product(parts: Sequence[Tensor]) -> Tensor:
    whole = parts[0]
    for part in parts[1:]:
        whole = whole * part
    return whole


@dataclass(frozen=True, eq=False)
class CrossKronecker:
    """(sum_t C_t1 (x) ... (x) C_td) P^T: covariance of the cells of another grid with the observed cells, N' x n.

    terms: for each term, the matrices C_k, (n'_k, n_k), of covariances of the other grid's points with factor k
    """

    terms: Sequence[Sequence[Factor | Tensor]]
    grid: PartialGrid

    def __matmul__(self, rhs: Tensor) -> Tensor:
        """The product with (n, c), as (N', c)."""
        cells = self.grid.scatter(rhs)
        return sum_of(kronecker_matmul(factors, cells) for factors in self.terms).mT

    def rows(self, index: Tensor) -> Tensor:
        """Rows `index` (b,) of the cross-covariance, dense, (b, n)."""
        parts = []
        for term in self.terms:
            factors = [as_factor(factor) for factor in term]
            axes = torch.unravel_index(index, tuple(factor.shape[-2] for factor in factors))
            triples = zip(factors, axes, self.grid.axis_index, strict=True)
            parts.append(_product([f.rows_at(axis).index_select(1, observed) for f, axis, observed in triples]))
        return sum_of(parts)
