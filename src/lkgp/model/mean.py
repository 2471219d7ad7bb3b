"""Prior mean functions. Each kind is a subclass of `Mean`."""

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

import gpytorch
from torch import Tensor

from lkgp.data.readers import Observations
from lkgp.errors import InputError


class Mean(gpytorch.Module):
    """The mean of the process, at observed cells and anywhere else.

    known: the kinds by name, for model files
    """

    known: ClassVar[dict[str, type["Mean"]]] = {}

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        Mean.known[cls.__name__] = cls

    def describe(self) -> dict[str, Any]:
        """The arguments of the constructor as plain data, for a model file; parameter values are stored separately."""
        raise InputError(f"the mean {type(self).__name__} cannot be saved because it has no describe().")

    @abstractmethod
    def of(self, data: Observations) -> Tensor:
        """The mean at every observed cell, a scalar or (n,)."""

    @abstractmethod
    def at(self, coords: Sequence[Tensor]) -> Tensor:
        """The mean at the cells of the product of `coords`, broadcast to (n'_1, ..., n'_d)."""

    @abstractmethod
    def at_rows(self, columns: Sequence[Tensor]) -> Tensor:
        """The mean at single cells, a scalar or (m,); cell i is row i of each of `columns` (m, d_k)."""


class ConstantMean(gpytorch.means.ConstantMean, Mean):
    """A constant mean.

    value: a fixed value; None learns it, starting at zero
    """

    def __init__(self, value: float | None = None) -> None:
        super().__init__()
        if value is not None:
            # Set in float64: a value rounded to float32 would be another one, and move the likelihood by 1e-7 nats.
            self.double()
            self.constant.requires_grad_(False).fill_(float(value))

    def describe(self) -> dict[str, Any]:
        return {}

    def of(self, data: Observations) -> Tensor:
        return self.constant

    def at(self, coords: Sequence[Tensor]) -> Tensor:
        return self.constant

    def at_rows(self, columns: Sequence[Tensor]) -> Tensor:
        return self.constant
