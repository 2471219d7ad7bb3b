"""The root of one factor over a growing set of points: R R^T = K, with rows that never change."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf

import torch
from torch import Tensor

from lkgp.errors import InputError
from lkgp.linalg.factors import Factor
from lkgp.linalg.roots import TriangularRoot
from lkgp.model import Term
from lkgp.posterior.structured_roots import StructuredRoot

# Conditional variances of new points below this fraction of the largest variance, times the number of new points, are
# rounding errors.
NEGLIGIBLE = 1e-13
# The triangle of a root is kept in an array that is larger by this factor than needed when it is made, so that adding
# points seldom copies it.
SPARE = 1.5


def locate(points: Tensor, known: Tensor) -> Tensor:
    """For each of `points` (a, d), the index of the equal row of `known` (b, d), or -1; (a,)."""
    if points is known:
        return torch.arange(len(known), device=known.device)
    both = torch.cat([known, points])
    _, label = torch.unique(both, dim=0, return_inverse=True)
    row_of = torch.full((len(both),), -1, dtype=torch.long, device=points.device)
    row_of[label[: len(known)]] = torch.arange(len(known), device=points.device)
    return row_of[label[len(known) :]]


@dataclass(frozen=True, eq=False)
class FactorRoot:
    """R_k over all points so far, in blocks of rows, each of which has the columns of its own and of earlier points.

    It is never changed: more points make another root, which shares the rows of this one.

    term, factor: the term, and the index k of its factor
    blocks: the rows of the points, in the order in which they were added, (u_b, w_b) with w_1 < w_2 < ...; columns
        beyond w_b are zero
    pivots: the points whose rows form a lower triangle, (w, d_k)
    storage: an array whose leading corner (w, w) is that triangle, in float64
    """

    term: Term
    factor: int
    blocks: tuple[Tensor, ...]
    pivots: Tensor
    storage: Tensor

    @classmethod
    def of(cls, term: Term, factor: int, points: Tensor, matrix: Factor) -> "FactorRoot":
        """The root over the first points, (u, d_k), with their matrix."""
        root = matrix.triangular_root()
        triangle = root.root[root.pivots]
        return cls(term, factor, (root.root.to(points.dtype),), points[root.pivots], triangle)

    @property
    def like(self) -> Tensor:
        """A tensor with the dtype and the device of the draws."""
        return self.blocks[0]

    @property
    def width(self) -> int:
        """The number of columns, w."""
        return len(self.pivots)

    @property
    def stored_numbers(self) -> int:
        return sum(block.numel() for block in self.blocks) + self.storage.numel()

    def rows(self, index: Tensor) -> Tensor:
        """The rows `index` (a,), without the columns that are zero in all of them, (a, w')."""
        ends = torch.tensor([len(block) for block in self.blocks], device=index.device).cumsum(0)
        block_of = torch.bucketize(index, ends, right=True)
        used = torch.unique(block_of).tolist()
        rows = self.blocks[0].new_zeros(len(index), self.blocks[used[-1]].shape[1] if used else 0)
        for b in used:
            here, block = torch.nonzero(block_of == b).flatten(), self.blocks[b]
            rows[here, : block.shape[1]] = block[index[here] - (ends[b] - len(block))]
        return rows

    def coefficients(self, points: Tensor, width: int) -> Tensor:
        """C with C R^T = K(points, points so far) in the first `width` columns, (a, width), in float64."""
        cross = self.term.cross_factor(self.factor, points, self.pivots[:width]).double()
        return torch.linalg.solve_triangular(self.storage[:width, :width], cross.mT, upper=False).mT

    def extended(self, new: Tensor) -> "FactorRoot":
        """The root over these points and `new` (a, d_k): [[R, 0], [C, S]]."""
        given = self.coefficients(new, self.width)
        # S S^T = K(new, new) - C C^T; variances below the rounding of K(new, new) are zero.
        covariance = self.term.cross_factor(self.factor, new, new).double()
        left = covariance - given @ given.mT
        own = TriangularRoot.of(left, NEGLIGIBLE * len(new) * float(covariance.diagonal().max()))
        rows = torch.cat([given, own.root], dim=1)
        storage, width = self.storage, rows.shape[1]
        if len(storage) < width:
            room = int(SPARE * width)
            storage = storage.new_zeros(room, room)
            storage[: self.width, : self.width] = self.storage[: self.width, : self.width]
        storage[self.width : width, :width] = rows[own.pivots]
        return replace(
            self,
            blocks=(*self.blocks, rows.to(new.dtype)),
            pivots=torch.cat([self.pivots, new[own.pivots]]),
            storage=storage,
        )

    def given_first(self, points: Tensor, index: Tensor) -> tuple[Tensor, Tensor]:
        """The regression of `points` (a, d_k) on the first block of points, in its columns, (a, w_1).

        Also returns the variance that it explains, (a,).

        index: which of the first points each of them is, or -1, (a,)
        """
        first, new = self.blocks[0], index < 0
        rows = first[index]
        if bool(new.any()):
            rows[new] = self.coefficients(points[new], first.shape[1]).to(rows.dtype)
        variance = self.term.factor_variance(self.factor, points)
        return rows, torch.minimum(rows.square().sum(dim=1), variance)


def root_of(term: Term, factor: int, points: Tensor, max_memory: float = inf) -> FactorRoot | StructuredRoot:
    """The root over the first points (u, d_k): triangular, or by the structure of a factor that is too large.

    max_memory: limit in bytes on the memory that it takes
    """
    matrix = term.factor(factor, points, term.structure(factor, points))
    if matrix.draws_by_structure:
        if matrix.noise_root_bytes > max_memory:
            raise InputError(
                f"posterior samples, and error bars that are made of them, draw from the prior at {len(points)} "
                f"scattered points, which takes a matrix of {matrix.noise_root_bytes / 1e9:.1f} GB, more than the "
                f"limit of {max_memory / 1e9:.1f} GB; raise max_memory, use fewer points, or ask for means only "
                "(std=False, --no-std)."
            )
        return StructuredRoot.of(term, factor, points, matrix)
    return FactorRoot.of(term, factor, points, matrix)


def new_points(points: Sequence[Tensor], known: Sequence[Tensor]) -> list[Tensor]:
    """Those of the points of every factor that are not known yet, sorted and each once, (a_k, d_k)."""
    pairs = zip(points, known, strict=True)
    return [torch.unique(x[locate(x, own) < 0], dim=0) for x, own in pairs]
