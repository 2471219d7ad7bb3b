"""A factor stored as a plain matrix."""

from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor

from lkgp.linalg.factors.base import CovarianceFunction, Factor, all_processes, looked_up
from lkgp.linalg.markov_processes import Process, processes_of


class DenseFactor(Factor):
    """A plain matrix (..., m_k, n_k).

    parts: functions that return the parts of a sum of kernels, each (n_k, n_k)
    of_parts: the processes of each part
    """

    kind = "dense"

    def __init__(
        self,
        tensor: Tensor,
        *,
        parts: Sequence[Callable[[], Tensor]] = (),
        of_parts: Sequence[Sequence[Process]] = (),
    ) -> None:
        super().__init__(tensor, parts=parts, of_parts=of_parts)
        self.tensor, self.parts, self.of_parts = tensor, parts, of_parts

    @classmethod
    def of(cls, function: CovarianceFunction, coords: Tensor) -> "DenseFactor":
        known = [processes_of(part, coords.shape[1]) for part in function.summands]
        parts = [partial(part, coords, coords) for part in function.summands]
        return cls(function(coords, coords), parts=parts, of_parts=known)

    def rows_at(self, index: Tensor) -> Tensor:
        return self.tensor.index_select(0, index)

    def entries_diagonal(self) -> Tensor:
        return torch.diagonal(self.tensor, dim1=-2, dim2=-1)

    def dense(self) -> Tensor:
        return self.tensor

    def largest_row_sum(self) -> float:
        return float(self.tensor.abs().sum(dim=1).max())

    def transposed_product(self, z: Tensor) -> Tensor:
        # (K Z)^T = Z^T K^T, so no transposition is needed afterwards
        return z.mT @ self.tensor.mT

    def transposed_product_into(self, z: Tensor, out: Tensor) -> Tensor:
        return torch.mm(z.mT, self.tensor.mT, out=out)

    def rounded(self, dtype: torch.dtype) -> "DenseFactor":
        return DenseFactor(self.tensor.to(dtype), parts=self.parts, of_parts=self.of_parts)

    @torch.no_grad()
    def summands(self) -> Sequence[Factor]:
        if len(self.parts) < 2:
            return [self]
        pairs = zip(self.parts, self.of_parts, strict=True)
        return [DenseFactor(part().double(), of_parts=[known]) for part, known in pairs]

    @property
    def processes(self) -> Sequence[Process]:
        return all_processes(self.of_parts)

    def difference(self, other: Factor) -> "DenseFactor":
        return DenseFactor(self.tensor - other.dense())

    def fold(self, weights: Tensor) -> Tensor:
        return weights

    # Methods that `LinearOperator` requires of its subclasses.

    def _matmul(self, rhs: Tensor) -> Tensor:
        return torch.matmul(self.tensor, rhs)

    def _size(self) -> torch.Size:
        return self.tensor.shape

    def _transpose_nonbatch(self) -> "DenseFactor":
        return DenseFactor(self.tensor.mT)

    def _diagonal(self) -> Tensor:
        return self.entries_diagonal()

    def _get_indices(self, row_index: Tensor, col_index: Tensor, *batch_indices: Tensor) -> Tensor:
        if batch_indices or not self.tensor.is_contiguous():
            return self.tensor[(*batch_indices, row_index, col_index)]
        return looked_up(self.tensor.flatten(), row_index * self.tensor.shape[1] + col_index)
