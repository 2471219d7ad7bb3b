"""A low-rank factor, stored as its root."""

import torch
from torch import Tensor

from lkgp.linalg.eigenbasis import FactorBasis
from lkgp.linalg.factors.base import CovarianceFunction, Factor


class LowRankFactor(Factor):
    """K = U U^T for U (..., n_k, r), exact up to rounding; products take O(n_k r)."""

    kind = "low_rank"

    def __init__(self, root: Tensor) -> None:
        super().__init__(root)
        self.low_rank_root = root

    @classmethod
    def of(cls, function: CovarianceFunction, coords: Tensor) -> "LowRankFactor":
        matrix = function(coords, coords)
        return cls(FactorBasis.of(matrix).root.to(matrix.dtype))

    def rows_at(self, index: Tensor) -> Tensor:
        return self.low_rank_root[index] @ self.low_rank_root.mT

    def rounded(self, dtype: torch.dtype) -> "LowRankFactor":
        return LowRankFactor(self.low_rank_root.to(dtype))

    # Methods that `LinearOperator` requires of its subclasses.

    def _matmul(self, rhs: Tensor) -> Tensor:
        return self.low_rank_root @ (self.low_rank_root.mT @ rhs)

    def _size(self) -> torch.Size:
        rows = self.low_rank_root.shape[-2]
        return torch.Size((*self.low_rank_root.shape[:-2], rows, rows))

    def _transpose_nonbatch(self) -> "LowRankFactor":
        return self

    def _diagonal(self) -> Tensor:
        return self.low_rank_root.square().sum(dim=-1)

    def _get_indices(self, row_index: Tensor, col_index: Tensor, *batch_indices: Tensor) -> Tensor:
        rows = self.low_rank_root[(*batch_indices, row_index)]
        return (rows * self.low_rank_root[(*batch_indices, col_index)]).sum(dim=-1)
