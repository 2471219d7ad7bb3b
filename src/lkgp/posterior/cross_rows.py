"""Covariances of other points with the fitted points of a factor that is too large for a dense matrix of them."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from lkgp.linalg.factors import Factor
from lkgp.linalg.factors.base import WORK_ENTRIES, CovarianceFunction
from lkgp.model import Term


class CrossRows(Factor):
    """C, (n'_k, n_k): rows of K_k for points that are fitted ones, computed rows for all others.

    Products take those of K_k, by its structure, for the fitted points, and go through the other rows block by block.

    points: (n'_k, d_k); place: which of the fitted points each of them is, or -1, (n'_k,)
    term, factor: the term, and the index k of its factor; fitted: its points, (n_k, d_k)
    matrix: K_k over them
    """

    def __init__(
        self, points: Tensor, *, place: Tensor, term: Term, factor: int, fitted: Tensor, matrix: Factor
    ) -> None:
        super().__init__(points, place=place, term=term, factor=factor, fitted=fitted, matrix=matrix)
        self.points, self.place, self.term, self.factor = points, place, term, factor
        self.fitted, self.matrix = fitted, matrix
        self.new = torch.nonzero(place < 0).flatten()

    @classmethod
    def of(cls, function: CovarianceFunction, coords: Tensor) -> "CrossRows":
        raise NotImplementedError

    def rows_at(self, index: Tensor) -> Tensor:
        rows, new = self.matrix.rows_at(self.place[index].clamp(min=0)), self.place[index] < 0
        if bool(new.any()):
            rows[new] = self.term.cross_factor(self.factor, self.points[index[new]], self.fitted)
        return rows

    def rounded(self, dtype: torch.dtype) -> "CrossRows":
        raise NotImplementedError

    def transposed_product(self, z: Tensor) -> Tensor:
        result = z.new_empty(*z.shape[:-2], z.shape[-1], len(self.points))
        known = torch.nonzero(self.place >= 0).flatten()
        if len(known):
            result[..., known] = self.matrix.transposed_product(z).index_select(-1, self.place[known])
        for index, rows in self._blocks():
            result[..., index] = z.mT @ rows.mT.to(z.dtype)
        return result

    def _blocks(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Blocks of the points that are not fitted, and their rows, (b, n_k)."""
        for index in self.new.split(max(1, WORK_ENTRIES // len(self.fitted))):
            if len(index):
                yield index, self.term.cross_factor(self.factor, self.points[index], self.fitted)

    # Methods that `LinearOperator` requires of its subclasses.

    def _matmul(self, rhs: Tensor) -> Tensor:
        return self.transposed_product(rhs).mT

    def _size(self) -> torch.Size:
        return torch.Size((len(self.points), len(self.fitted)))

    def _transpose_nonbatch(self) -> Any:
        raise NotImplementedError
