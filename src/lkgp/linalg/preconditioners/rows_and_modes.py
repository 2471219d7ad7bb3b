"""Preconditioners of a triangular matrix W and modes U along an axis.

M  =  U U^T + V,      V^-1  =  W^T W,
M^-1  =  V^-1 - V^-1 U H^-1 U^T V^-1,      H = I + U^T V^-1 U.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Protocol

import torch
from torch import Tensor

from lkgp.linalg.kronecker import LatentKronecker
from lkgp.linalg.lasting_modes import ModeSet
from lkgp.linalg.preconditioners.base import Preconditioner
from lkgp.linalg.successive_blocks import Succession


class Rows(Protocol):
    """W, (n, n), triangular in some order of the observed cells."""

    def squared_times(self, x: Tensor) -> Tensor:
        """W^T W X for X (n, c)."""

    def solve(self, z: Tensor) -> Tensor:
        """W^-1 Z for Z (n, c)."""

    def log_diagonal(self) -> Tensor:
        """The sum of the logarithms of the diagonal of W, a scalar in float64."""


@dataclass(frozen=True, eq=False)
class ObservedModes:
    """U: sets of products of modes of the places and of the times, at the observed cells.

    sets: their modes of the axis are over times in ascending order
    """

    sets: Sequence[ModeSet]
    succession: Succession

    @classmethod
    def of(cls, found: Sequence[ModeSet], succession: Succession) -> "ObservedModes":
        """From modes over the times in the order of the grid."""
        order = succession.order
        return cls([ModeSet(one.others, one.axis[order], one.duals[order], one.part) for one in found], succession)

    @property
    def rank(self) -> int:
        return sum(one.rank for one in self.sets)

    def at_every_cell(self, weights: Tensor) -> Tensor:
        """Products with C (rank, c) at all times, in ascending order, and places, (t, s, c)."""
        (times, places), columns = self.succession.cells.shape, weights.shape[1]
        table = weights.new_zeros(times, places * columns)
        for one, part in zip(self.sets, weights.split([one.rank for one in self.sets]), strict=True):
            # sum over the modes of the places, then over those of the times
            inner = one.others.to(weights) @ part.reshape(one.others.shape[1], -1)
            inner = inner.view(places, -1, columns).transpose(0, 1).reshape(-1, places * columns)
            table.addmm_(one.axis.to(weights), inner)
        return table.view(times, places, columns)

    def of_cells(self, weights: Tensor) -> Tensor:
        """U C for C (rank, c), (n, c)."""
        return self.succession.observed(self.at_every_cell(weights))

    def transposed(self, values: Tensor) -> Tensor:
        """U^T X for X (n, c), (rank, c)."""
        (times, places), columns = self.succession.cells.shape, values.shape[1]
        table = self.succession.on_grid(values).view(times, places * columns)
        found = []
        for one in self.sets:
            inner = (one.axis.to(values).mT @ table).view(-1, places, columns).transpose(0, 1)
            outer = one.others.to(values).mT @ inner.reshape(places, -1)
            found.append(outer.view(one.rank, columns))
        return torch.cat([values.new_zeros(0, columns), *found])


def covariance_of_places(operator: LatentKronecker, axis: int) -> Tensor:
    """The product of the factors of all axes but one, (s, s); a grid of one axis has one place."""
    one = torch.ones(1, 1, dtype=torch.float64, device=operator.device)
    others = [factor for k, factor in enumerate(operator.factors) if k != axis]
    return reduce(torch.kron, [factor.dense().double() for factor in others], one)


def typical_noise(noise: Tensor) -> float:
    """The noise (n,) of which modes must stand out: cells with a huge noise must not mask the others."""
    return float(1 / (1 / noise.double()).mean())


class RowsAndModes(Preconditioner):
    """M^-1 for one operator with a single term.

    rows: W; modes: U; gram: H, (rank, rank)
    root_of_h: the Cholesky factor of H
    """

    def __init__(self, rows: Rows, modes: ObservedModes, gram: Tensor, observed: int) -> None:
        self.rows, self.modes = rows, modes
        self.root_of_h = torch.linalg.cholesky(gram)
        # log det M = log det V + log det H
        self.logdet = 2 * (self.root_of_h.diagonal().log().sum() - self.rows.log_diagonal())
        self.widths = (self.modes.rank, observed)

    def solve(self, rhs: Tensor) -> Tensor:
        z = self.rows.squared_times(rhs)
        if self.modes.rank == 0:
            return z
        weights = torch.cholesky_solve(self.modes.transposed(z).double(), self.root_of_h)
        return z - self.rows.squared_times(self.modes.of_cells(weights.to(rhs.dtype)))

    def root(self, weights: Tensor) -> Tensor:
        # G = [U, W^-1]
        top, rest = weights.split(self.widths)
        return self.modes.of_cells(top) + self.rows.solve(rest)
