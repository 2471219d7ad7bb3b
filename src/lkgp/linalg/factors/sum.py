"""A sum of kernels over one column of irregular points: Matern kernels in linear time, and others through few modes."""

from collections.abc import Sequence
from functools import reduce
from typing import Any

import torch
from torch import Tensor

from lkgp.linalg.factors.base import CovarianceFunction, Factor, all_processes
from lkgp.linalg.factors.few_modes import FewModesFactor, has_few_modes
from lkgp.linalg.factors.markov import MARKOV_PAYS, MarkovFactor
from lkgp.linalg.factors.structured import StructuredFactor
from lkgp.linalg.factors.toeplitz import is_regular
from lkgp.linalg.markov_processes import Process, components
from lkgp.linalg.noise_roots import NoiseRoot, SumRoot

# Multiplications per cell that take as long as a product, with a few hundred modes.
PRODUCT = 1500.0


class PartWeights(tuple[Any, ...]):
    """The weights of all parts of a sum."""

    def __add__(self, other: Any) -> "PartWeights":
        return PartWeights(a + b for a, b in zip(self, other, strict=True))

    def __mul__(self, share: Any) -> "PartWeights":
        return PartWeights(a * share for a in self)


class SumFactor(StructuredFactor):
    """K = K_1 + K_2 + ..., each a factor of its own kind."""

    kind = "sum"

    def __init__(self, *parts: Factor) -> None:
        super().__init__(*parts)
        self.parts = parts

    @classmethod
    def of(cls, function: CovarianceFunction, coords: Tensor) -> "SumFactor":
        return cls(*(_kind_of(part).of(part, coords) for part in function.summands))

    @classmethod
    def suits(cls, function: CovarianceFunction, coords: Tensor) -> bool:
        parts = function.summands
        if len(coords) < MARKOV_PAYS or coords.shape[1] != 1 or len(parts) < 2 or is_regular(coords):
            return False
        others = [part for part in parts if components(part.kernel) is None]
        return all(has_few_modes(part, coords) for part in others)

    @classmethod
    def product_cost(cls, points: int) -> float:
        return PRODUCT

    @classmethod
    def stored_numbers(cls, points: int) -> float:
        return PRODUCT * points

    def rows_at(self, index: Tensor) -> Tensor:
        return reduce(torch.add, (part.rows_at(index) for part in self.parts))

    def largest_row_sum(self) -> float:
        if all(getattr(part, "nonnegative", True) for part in self.parts):
            return float(self.transposed_product(self.parts[0].entries_diagonal().new_ones(self.num_points, 1)).max())
        return sum(part.largest_row_sum() for part in self.parts)

    def rounded(self, dtype: torch.dtype) -> "SumFactor":
        return SumFactor(*(part.rounded(dtype) for part in self.parts))

    def summands(self) -> Sequence[Factor]:
        return self.parts

    @property
    def processes(self) -> Sequence[Process]:
        return all_processes([part.processes for part in self.parts])

    def transposed_product(self, z: Tensor) -> Tensor:
        return reduce(torch.add, (part.transposed_product(z) for part in self.parts))

    def pull_back(self, left: Tensor, right: Tensor) -> PartWeights:
        return PartWeights(part.pull_back(left, right) for part in self.parts)

    def gather_weights(self, rows: Tensor, columns: Tensor, weights: Tensor) -> PartWeights:
        return PartWeights(part.gather_weights(rows, columns, weights) for part in self.parts)

    def inner(self, weights: PartWeights) -> Tensor:
        return reduce(torch.add, (part.inner(own) for part, own in zip(self.parts, weights, strict=True)))

    def noise_root(self) -> NoiseRoot:
        return SumRoot([part.noise_root() for part in self.parts])

    @property
    def num_points(self) -> int:
        return int(self.parts[0].shape[-2])

    # Methods that `LinearOperator` requires of its subclasses.

    def _diagonal(self) -> Tensor:
        return reduce(torch.add, (part.entries_diagonal() for part in self.parts))

    def _get_indices(self, row_index: Tensor, col_index: Tensor, *batch_indices: Tensor) -> Tensor:
        return reduce(torch.add, (part.entries(row_index, col_index) for part in self.parts))


def _kind_of(part: CovarianceFunction) -> type[Factor]:
    return FewModesFactor if components(part.kernel) is None else MarkovFactor
