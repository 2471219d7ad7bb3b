"""Draws from the prior, as functions of coordinates.

A draw on a product of points is (R_1 (x) ... (x) R_d) w with R_k R_k^T = K_k and w standard normal. Where new points are asked
for, R_k gets new rows and columns, [[R, 0], [C, S]], and w new entries, so that the joint covariance of old and new points is exact
in every combination of factors, and what was drawn before does not change.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from lkgp.linalg import kronecker_matmul
from lkgp.linalg.eigenbasis import TriangularRoot
from lkgp.model.model import LatentKroneckerGP


def locate(points: Tensor, known: Tensor) -> Tensor:
    """For each of `points` (a, d) the row of `known` (b, d) that equals it, or -1, as (a,)."""
    both = torch.cat([known, points])
    _, label = torch.unique(both, dim=0, return_inverse=True)
    row_of = torch.full((len(both),), -1, dtype=torch.long, device=points.device)
    row_of[label[: len(known)]] = torch.arange(len(known), device=points.device)
    return row_of[label[len(known) :]]


@dataclass
class FactorRoot:
    """R_k over the points seen so far: blocks of points, each with its root given the blocks before it.

    model, factor: whose kernel
    points: (u, d_k), all points so far
    root: R, (u, w)
    """

    model: LatentKroneckerGP
    factor: int
    points: Tensor
    root: Tensor = field(init=False)
    bases: list[tuple[slice, slice, TriangularRoot]] = field(init=False)

    def __post_init__(self) -> None:
        basis = TriangularRoot.of(self.model.cross_factor(self.factor, self.points, self.points))
        self.root = basis.root.to(self.points.dtype)
        self.bases = [(slice(0, len(self.points)), slice(0, basis.rank), basis)]

    def coefficients(self, points: Tensor) -> Tensor:
        """C with C R^T = K(points, points so far), (a, w): what the points so far tell of other points."""
        parts: list[Tensor] = []
        for rows, columns, basis in self.bases:
            cross = self.model.cross_factor(self.factor, points, self.points[rows])
            if parts:
                cross = cross - torch.cat(parts, dim=1) @ self.root[rows, : columns.start].mT
            parts.append(basis.coefficients(cross.double()).to(points.dtype))
        return torch.cat(parts, dim=1)

    def rows(self, points: Tensor) -> Tensor:
        """R at `points` (a, d_k), (a, w), after adding those that are new."""
        index = locate(points, self.points)
        new = torch.unique(points[index < 0], dim=0)
        if len(new):
            self._add(new)
            index = locate(points, self.points)
        return self.root[index]

    def _add(self, new: Tensor) -> None:
        given = self.coefficients(new)
        # S S^T = K(new, new) - C C^T; variances below the rounding of K(new, new) are zero.
        covariance = self.model.cross_factor(self.factor, new, new).double()
        left = covariance - given.double() @ given.double().mT
        basis = TriangularRoot.of(left, 1e-13 * len(new) * float(covariance.diagonal().max()))
        old_rows, old_columns = self.root.shape
        root = self.root.new_zeros(old_rows + len(new), old_columns + basis.rank)
        root[:old_rows, :old_columns] = self.root
        root[old_rows:, :old_columns] = given
        root[old_rows:, old_columns:] = basis.root.to(root.dtype)
        self.bases.append((slice(old_rows, len(root)), slice(old_columns, root.shape[1]), basis))
        self.points, self.root = torch.cat([self.points, new]), root


class PriorDraws:
    """`num` draws of f - mean from the prior: functions that agree with themselves wherever and whenever they are asked."""

    @torch.no_grad()
    def __init__(
        self, model: LatentKroneckerGP, coords: Sequence[Tensor], num: int, generator: torch.Generator
    ) -> None:
        self.generator, self.num = generator, num
        self.factors = [FactorRoot(model, k, points) for k, points in enumerate(coords)]
        self.num_given = [factor.root.shape[1] for factor in self.factors]
        self.normals = self._standard_normal([num, *self.num_given])
        self.asked: list[Sequence[Tensor]] = []  # the coordinates that brought new points, in their order

    def _standard_normal(self, shape: Sequence[int]) -> Tensor:
        like = self.factors[0].root
        return torch.randn(*shape, generator=self.generator, dtype=like.dtype, device=like.device)

    @torch.no_grad()
    def __call__(self, coords: Sequence[Tensor], columns: slice = slice(None)) -> Tensor:
        """The draws, or some of them, at every cell of the product of `coords`, (N', num)."""
        roots, before = [], self.normals.shape
        for k, (factor, points) in enumerate(zip(self.factors, coords, strict=True)):
            roots.append(factor.rows(points))
            added = factor.root.shape[1] - self.normals.shape[k + 1]
            if added:
                shape = list(self.normals.shape)
                shape[k + 1] = added
                self.normals = torch.cat([self.normals, self._standard_normal(shape)], dim=k + 1)
        if self.normals.shape != before:
            self.asked.append(list(coords))
        return self._evaluate(roots, self.normals[columns])

    def replay(self, asked: Sequence[Sequence[Tensor]]) -> None:
        """Draw what other draws of the same seed had drawn after these questions."""
        for coords in asked:
            self(coords, slice(0, 1))

    @torch.no_grad()
    def given_training(self, coords: Sequence[Tensor]) -> tuple[Callable[[slice], Tensor], Tensor]:
        """What the draws on the first points tell of other cells, without drawing anything.

        Returns a function from some of the draws to their conditional means (N', c), and the prior variance that is left,
        (n'_1, ..., n'_d). Neither depends on which other cells were asked for.
        """
        given, told, total = [], self.normals.new_ones(()), self.normals.new_ones(())
        for factor, points, width in zip(self.factors, coords, self.num_given, strict=True):
            first = factor.bases[0][0]
            index = locate(points, factor.points[first])
            rows = factor.root[index, :width]
            if bool((index < 0).any()):
                new = points[index < 0]
                cross = factor.model.cross_factor(factor.factor, new, factor.points[first])
                rows = rows.index_put(
                    (torch.nonzero(index < 0).flatten(),),
                    factor.bases[0][2].coefficients(cross.double()).to(rows.dtype),
                )
            given.append(rows)
            explained = rows.square().sum(dim=1)
            variance = factor.model.kernels[factor.factor](points, diag=True)
            told = told[..., None] * torch.minimum(explained, variance)
            total = total[..., None] * variance
        normals = self.normals[(slice(None), *(slice(0, width) for width in self.num_given))]
        return lambda columns: self._evaluate(given, normals[columns]), (total - told).clamp(min=0)

    @staticmethod
    def _evaluate(roots: Sequence[Tensor], normals: Tensor) -> Tensor:
        return kronecker_matmul(tuple(roots), normals.flatten(1).mT.contiguous()).mT
