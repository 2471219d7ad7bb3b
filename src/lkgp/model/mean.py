"""Means: what is expected where nothing is known. Each kind is a subclass of `Mean`."""

from abc import abstractmethod
from collections.abc import Sequence

import gpytorch
from torch import Tensor

from lkgp.data.readers import Observations


class Mean(gpytorch.Module):
    """The mean of the process, at observed cells and anywhere else."""

    @abstractmethod
    def of(self, data: Observations) -> Tensor:
        """At every observed cell, a scalar or (n,)."""

    @abstractmethod
    def at(self, coords: Sequence[Tensor]) -> Tensor:
        """At the cells of the product of `coords`, broadcast to (n'_1, ..., n'_d)."""

    @abstractmethod
    def at_rows(self, columns: Sequence[Tensor]) -> Tensor:
        """At single cells, row i of every one of `columns` (m, d_k), a scalar or (m,)."""


class ConstantMean(gpytorch.means.ConstantMean, Mean):
    """One number everywhere.

    value: fixes it; None learns it, starting at zero
    """

    def __init__(self, value: float | None = None) -> None:
        super().__init__()
        if value is not None:
            self.constant.requires_grad_(False).fill_(float(value))

    def of(self, data: Observations) -> Tensor:
        return self.constant

    def at(self, coords: Sequence[Tensor]) -> Tensor:
        return self.constant

    def at_rows(self, columns: Sequence[Tensor]) -> Tensor:
        return self.constant
