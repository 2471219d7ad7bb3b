"""The root of a factor that is too large for a triangle: its values at the fitted points are drawn by its structure.

Draws are then kept as values at these points, and points outside them are predicted from those values by solving
K w = c, which is exact up to the tolerance of the solve.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from lkgp.errors import InputError
from lkgp.linalg.factors import Factor
from lkgp.linalg.factors.base import CovarianceFunction
from lkgp.linalg.noise_roots import NoiseRoot
from lkgp.linalg.roots import TriangularRoot
from lkgp.model import Term

# Covariances of new points with the fitted ones are met up to this fraction of the variance.
TOLERANCE = 1e-6
MOST_ITERATIONS = 2000
# Limit on the number of weights kept for new points (1 GB in float64).
MOST_WEIGHTS = 2**27
# Conditional variances of new points below this fraction of the largest variance are errors of the solve.
NEGLIGIBLE = 1e-10


class RowsAtPoints(Factor):
    """Rows of [[I, 0], [W, S]]: values at fitted points are kept, those at new points follow from numbers kept.

    more: [W, S], (b, w)
    place: for every row, a fitted point i < fitted, or fitted + the row of `more`, (a,)
    """

    def __init__(self, more: Tensor, *, place: Tensor, fitted: int) -> None:
        super().__init__(more, place=place, fitted=fitted)
        self.more, self.place, self.fitted = more, place, fitted

    @classmethod
    def of(cls, function: CovarianceFunction, coords: Tensor) -> "RowsAtPoints":
        raise NotImplementedError

    def columns(self, start: int, count: int) -> "RowsAtPoints":
        """The columns from `start` on; those of the fitted points are not divided."""
        fitted = self.fitted if start == 0 else 0
        # Without the columns of the fitted points, their rows are zero: those of one more row.
        more = self.more[:, start : start + count]
        place = self.place
        if start:
            more = torch.cat([more, torch.zeros_like(more[:1]) if len(more) else more.new_zeros(1, count)])
            place = torch.where(place < self.fitted, len(more) - 1, place - self.fitted)
        return RowsAtPoints(more, place=place, fitted=fitted)

    def rows_at(self, index: Tensor) -> Tensor:
        unit = torch.eye(self.shape[1], dtype=self.dtype, device=self.device)
        return self.transposed_product(unit).mT[index]

    def rounded(self, dtype: torch.dtype) -> "RowsAtPoints":
        return RowsAtPoints(self.more.to(dtype), place=self.place, fitted=self.fitted)

    def transposed_product(self, z: Tensor) -> Tensor:
        if bool((self.place < self.fitted).all()):
            return z.index_select(-2, self.place).mT
        both = torch.cat([z.narrow(-2, 0, self.fitted), self.more @ z], dim=-2)
        return both.index_select(-2, self.place).mT

    # Methods that `LinearOperator` requires of its subclasses.

    def _matmul(self, rhs: Tensor) -> Tensor:
        return self.transposed_product(rhs).mT

    def _size(self) -> torch.Size:
        return torch.Size((len(self.place), self.more.shape[1]))

    def _transpose_nonbatch(self) -> Any:
        raise NotImplementedError


@dataclass(frozen=True, eq=False)
class StructuredRoot:
    """The values at the fitted points, and [W, S] for new ones; it has the interface of `FactorRoot`.

    It is never changed: more points make another root.

    term, factor: the term, and the index k of its factor
    fitted: the fitted points, (n_k, d_k)
    matrix: K_k over them; noise_root: its root
    new: the points added so far, (b, d_k)
    weights: K w = c for each of them, (n_k, b), in float64
    more: [W, S], (b, n_k + r)
    pivots: the new points whose rows of S form a lower triangle, (r,)
    """

    term: Term
    factor: int
    fitted: Tensor
    matrix: Factor
    noise_root: NoiseRoot
    new: Tensor
    weights: Tensor
    more: Tensor
    pivots: Tensor

    @classmethod
    def of(cls, term: Term, factor: int, points: Tensor, matrix: Factor) -> "StructuredRoot":
        """The root over the fitted points (n_k, d_k), with their matrix."""
        n = len(points)
        none = torch.zeros(0, dtype=torch.long, device=points.device)
        weights = torch.zeros(n, 0, dtype=torch.float64, device=points.device)
        root = matrix.noise_root()
        precise = matrix.rounded(torch.float64)
        return cls(term, factor, points, precise, root, points[:0], weights, points.new_zeros(0, n), none)

    @property
    def like(self) -> Tensor:
        """A tensor with the dtype and the device of the draws."""
        return self.more

    @property
    def width(self) -> int:
        return self.more.shape[1]

    @property
    def stored_numbers(self) -> int:
        return self.more.numel() + self.weights.numel()

    def noise_width(self) -> int:
        """How many standard normal numbers a draw takes along this axis."""
        return self.noise_root.width + self.width - len(self.fitted)

    def first_numbers(self, normals: Tensor) -> Tensor:
        """What is kept along this axis, (w, c): the values at the fitted points, and the numbers of new points."""
        values = self.noise_root.times(normals[: self.noise_root.width])
        return torch.cat([values, normals[self.noise_root.width :]])

    def rows(self, index: Tensor) -> RowsAtPoints:
        """The rows `index` (a,), of the fitted points and then of the new ones."""
        return RowsAtPoints(self.more, place=index, fitted=len(self.fitted))

    def extended(self, new: Tensor) -> "StructuredRoot":
        """The root over these points and `new` (a, d_k)."""
        n, before = len(self.fitted), len(self.new)
        weights, cross = self._solve(new)
        every, points = torch.cat([self.weights, weights], dim=1), torch.cat([self.new, new])
        # Cov(f(x) - w^T f, f(x') - w'^T f) of the added points x with all new points x'
        known = self.term.cross_factor(self.factor, points, self.fitted).double().mT
        image = _product(self.matrix, weights)
        covariance = self.term.cross_factor(self.factor, new, points).double()
        left = covariance - weights.mT @ known - cross.mT @ every + image.mT @ every
        given = left.new_zeros(len(new), self.width - n)
        if len(self.pivots):
            triangle = self.more[self.pivots, n:].double()
            given = torch.linalg.solve_triangular(triangle, left[:, self.pivots].mT, upper=False).mT
        remaining = left[:, before:] - given @ given.mT
        largest = float(covariance[:, before:].diagonal().max())
        own = TriangularRoot.of((remaining + remaining.mT) / 2, NEGLIGIBLE * len(new) * largest)
        rows = torch.cat([weights.mT, given, own.root], dim=1).to(self.more.dtype)
        older = torch.nn.functional.pad(self.more, (0, own.rank))
        return replace(
            self,
            new=points,
            weights=every,
            more=torch.cat([older, rows]),
            pivots=torch.cat([self.pivots, own.pivots + before]),
        )

    def given_first(self, points: Tensor, index: Tensor) -> tuple[RowsAtPoints, Tensor]:
        """The regression of `points` (a, d_k) on the fitted points, (a, n_k), and the variance it explains, (a,).

        index: which of the fitted points each of them is, or -1, (a,)
        """
        n, new = len(self.fitted), index < 0
        variance = self.term.factor_variance(self.factor, points)
        weights, cross = self._solve(points[new])
        place = torch.where(new, n + new.long().cumsum(0) - 1, index)
        explained = variance.clone()
        explained[new] = torch.minimum((weights * cross).sum(dim=0).to(variance.dtype), variance[new])
        return RowsAtPoints(weights.mT.to(self.more.dtype), place=place, fitted=n), explained

    def _solve(self, points: Tensor) -> tuple[Tensor, Tensor]:
        """w with K w = c for the covariances c of `points` (a, d_k) with the fitted ones, and c, both (n_k, a)."""
        n, a = len(self.fitted), len(points)
        if n * (a + len(self.new)) > MOST_WEIGHTS:
            raise InputError(
                f"draws at {a} points outside a factor of {n} fitted points need {n * (a + len(self.new)):.2g} "
                f"weights, more than the limit of {MOST_WEIGHTS:.2g}; request fewer points at a time, or "
                "add them to the grid."
            )
        cross = self.term.cross_factor(self.factor, points, self.fitted).double().mT
        if a == 0:
            return cross, cross
        variance = float(self.matrix.entries_diagonal().max())
        weights, worst = conjugate_gradients(lambda x: _product(self.matrix, x), cross, TOLERANCE * variance)
        if worst > TOLERANCE * variance:
            raise InputError(
                f"draws at points outside a factor of {n} fitted points did not converge: after {MOST_ITERATIONS} "
                f"iterations their covariances are off by {worst / variance:.1e} of the variance, and the limit is "
                f"{TOLERANCE:.0e}; request points of the grid, or add these points to it."
            )
        return weights, cross


def _product(matrix: Factor, x: Tensor) -> Tensor:
    """K X in float64, for X (n_k, c)."""
    return matrix.transposed_product(x).mT


def conjugate_gradients(product: Callable[[Tensor], Tensor], rhs: Tensor, goal: float) -> tuple[Tensor, float]:
    """Solve K X = B for B (n, c) until no entry of the residual exceeds `goal`; also returns the largest entry."""
    found, residual = torch.zeros_like(rhs), rhs.clone()
    direction, squares = residual.clone(), residual.square().sum(dim=0)
    for _ in range(MOST_ITERATIONS):
        if float(residual.abs().max()) <= goal:
            break
        image = product(direction)
        step = squares / (direction * image).sum(dim=0).clamp(min=torch.finfo(rhs.dtype).tiny)
        found += step * direction
        residual -= step * image
        before, squares = squares, residual.square().sum(dim=0)
        direction = residual + squares / before.clamp(min=torch.finfo(rhs.dtype).tiny) * direction
    return found, float((rhs - product(found)).abs().max())
