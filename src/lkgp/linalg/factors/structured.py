"""What the symmetric factors that are never formed as a matrix have in common."""

from abc import abstractmethod
from typing import Self

import torch
from torch import Tensor

from lkgp.linalg.factors.base import Factor


class StructuredFactor(Factor):
    """A symmetric factor whose product is `transposed_product`."""

    @property
    @abstractmethod
    def num_points(self) -> int:
        """n_k."""

    # Methods that `LinearOperator` requires of its subclasses.

    def _matmul(self, rhs: Tensor) -> Tensor:
        if rhs.ndim == 1:
            return self._matmul(rhs[:, None])[:, 0]
        return self.transposed_product(rhs).mT

    def _size(self) -> torch.Size:
        return torch.Size((self.num_points, self.num_points))

    def _transpose_nonbatch(self) -> Self:
        return self
