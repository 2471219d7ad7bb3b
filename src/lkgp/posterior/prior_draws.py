"""Draws from the prior, as functions of coordinates.

A draw of one term on a product of points is (R_1 (x) ... (x) R_d) w with R_k R_k^T = K_k and w standard normal; a draw
of the model is the sum over its terms. When new points are requested, R_k is extended to [[R, 0], [C, S]], and w gets
new entries, so that the joint covariance of old and new points is exact in every combination of factors, and earlier
values do not change.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from lkgp.linalg.kronecker import sum_of
from lkgp.linalg.products import kronecker_matmul
from lkgp.linalg.roots import TriangularRoot
from lkgp.model import LatentKroneckerGP, Term

# Conditional variances of new points below this fraction of the largest variance, times the number of new points, are
# rounding errors.
NEGLIGIBLE = 1e-13


def locate(points: Tensor, known: Tensor) -> Tensor:
    """For each of `points` (a, d), the index of the equal row of `known` (b, d), or -1; (a,)."""
    both = torch.cat([known, points])
    _, label = torch.unique(both, dim=0, return_inverse=True)
    row_of = torch.full((len(both),), -1, dtype=torch.long, device=points.device)
    row_of[label[: len(known)]] = torch.arange(len(known), device=points.device)
    return row_of[label[len(known) :]]


@dataclass
class FactorRoot:
    """R_k over all points so far, in blocks, each with its root conditional on the blocks before it.

    term, factor: the term, and the index k of its factor
    points: all points so far, (u, d_k)
    root: R, (u, w)
    """

    term: Term
    factor: int
    points: Tensor
    root: Tensor = field(init=False)
    bases: list[tuple[slice, slice, TriangularRoot]] = field(init=False)

    def __post_init__(self) -> None:
        basis = self.term.factor(
            self.factor, self.points, self.term.structure(self.factor, self.points)
        ).triangular_root()
        self.root = basis.root.to(self.points.dtype)
        self.bases = [(slice(0, len(self.points)), slice(0, basis.rank), basis)]

    def coefficients(self, points: Tensor) -> Tensor:
        """C with C R^T = K(points, points so far), (a, w): the regression of new points on those so far."""
        parts: list[Tensor] = []
        for rows, columns, basis in self.bases:
            cross = self.term.cross_factor(self.factor, points, self.points[rows])
            if parts:
                cross = cross - torch.cat(parts, dim=1) @ self.root[rows, : columns.start].mT
            parts.append(basis.coefficients(cross.double()).to(points.dtype))
        return torch.cat(parts, dim=1)

    def rows(self, points: Tensor) -> Tensor:
        """R at `points` (a, d_k), (a, w), after adding the new ones."""
        index = locate(points, self.points)
        new = torch.unique(points[index < 0], dim=0)
        if len(new):
            self._add(new)
            index = locate(points, self.points)
        return self.root[index]

    def _add(self, new: Tensor) -> None:
        given = self.coefficients(new)
        # S S^T = K(new, new) - C C^T; variances below the rounding of K(new, new) are zero.
        covariance = self.term.cross_factor(self.factor, new, new).double()
        left = covariance - given.double() @ given.double().mT
        basis = TriangularRoot.of(left, NEGLIGIBLE * len(new) * float(covariance.diagonal().max()))
        old_rows, old_columns = self.root.shape
        root = self.root.new_zeros(old_rows + len(new), old_columns + basis.rank)
        root[:old_rows, :old_columns] = self.root
        root[old_rows:, :old_columns] = given
        root[old_rows:, old_columns:] = basis.root.to(root.dtype)
        self.bases.append((slice(old_rows, len(root)), slice(old_columns, root.shape[1]), basis))
        self.points, self.root = torch.cat([self.points, new]), root

    def first_rows(self, points: Tensor, width: int) -> Tensor:
        """The regression of `points` (a, d_k) on the first block of points, in its `width` columns, (a, width)."""
        first = self.bases[0][0]
        index = locate(points, self.points[first])
        rows = self.root[index, :width]
        if bool((index < 0).any()):
            cross = self.term.cross_factor(self.factor, points[index < 0], self.points[first])
            new = self.bases[0][2].coefficients(cross.double()).to(rows.dtype)
            rows = rows.index_put((torch.nonzero(index < 0).flatten(),), new)
        return rows


class TermDraws:
    """`num` draws of one term from the prior."""

    def __init__(self, term: Term, coords: Sequence[Tensor], num: int, generator: torch.Generator) -> None:
        self.generator, self.term = generator, term
        self.factors = [FactorRoot(term, k, points) for k, points in enumerate(coords)]
        self.num_given = [factor.root.shape[1] for factor in self.factors]
        self.normals = self._standard_normal([num, *self.num_given])

    def _standard_normal(self, shape: Sequence[int]) -> Tensor:
        like = self.factors[0].root
        return torch.randn(*shape, generator=self.generator, dtype=like.dtype, device=like.device)

    def roots_at(self, coords: Sequence[Tensor]) -> list[Tensor]:
        """R_k at the points `coords`; draws further normal numbers for new points."""
        roots = []
        for k, (factor, points) in enumerate(zip(self.factors, coords, strict=True)):
            roots.append(factor.rows(points))
            added = factor.root.shape[1] - self.normals.shape[k + 1]
            if added:
                shape = list(self.normals.shape)
                shape[k + 1] = added
                self.normals = torch.cat([self.normals, self._standard_normal(shape)], dim=k + 1)
        return roots

    def given_first(self, coords: Sequence[Tensor]) -> tuple[Callable[[slice], Tensor], Tensor]:
        """The draws at other cells, conditional on the first points; see `PriorDraws.given_training`."""
        given, told, total = [], self.normals.new_ones(()), self.normals.new_ones(())
        for k, (factor, points, width) in enumerate(zip(self.factors, coords, self.num_given, strict=True)):
            rows = factor.first_rows(points, width)
            given.append(rows)
            variance = self.term.factor_variance(k, points)
            told = told[..., None] * torch.minimum(rows.square().sum(dim=1), variance)
            total = total[..., None] * variance
        normals = self.normals[(slice(None), *(slice(0, width) for width in self.num_given))]
        return lambda columns: evaluate(given, normals[columns]), (total - told).clamp(min=0)


class PriorDraws:
    """`num` draws of f - mean from the prior: functions with consistent values wherever they are evaluated.

    replay_log: the requested coordinates that added new points, in order
    """

    @torch.no_grad()
    def __init__(
        self, model: LatentKroneckerGP, coords: Sequence[Tensor], num: int, generator: torch.Generator
    ) -> None:
        self.num = num
        self.terms = [TermDraws(term, coords, num, generator) for term in model.terms]
        self.replay_log: list[Sequence[Tensor]] = []

    @torch.no_grad()
    def __call__(self, coords: Sequence[Tensor], columns: slice = slice(None)) -> Tensor:
        """The draws, or those in `columns`, at every cell of the product of `coords`, (N', num)."""
        before = [term.normals.shape for term in self.terms]
        roots = [term.roots_at(coords) for term in self.terms]
        if [term.normals.shape for term in self.terms] != before:
            self.replay_log.append(list(coords))
        draws = (evaluate(r, term.normals[columns]) for r, term in zip(roots, self.terms, strict=True))
        return sum_of(draws)

    def replay(self, log: Sequence[Sequence[Tensor]]) -> None:
        """Repeat earlier requests, so that these draws equal earlier draws with the same seed."""
        for coords in log:
            self(coords, slice(0, 1))

    @torch.no_grad()
    def given_training(self, coords: Sequence[Tensor]) -> tuple[Callable[[slice], Tensor], Tensor]:
        """The draws at other cells, conditional on the first points, without drawing any new numbers.

        Returns a function from a slice of the draws to their conditional means (N', c), and the conditional variance,
        (n'_1, ..., n'_d). Neither depends on which other cells were requested before.
        """
        found = [term.given_first(coords) for term in self.terms]
        means = [mean for mean, _ in found]
        return lambda columns: sum_of(mean(columns) for mean in means), sum_of(left for _, left in found)


def evaluate(roots: Sequence[Tensor], normals: Tensor) -> Tensor:
    """(R_1 (x) ... (x) R_d) w for normals (num, w_1, ..., w_d), as (N', num)."""
    return kronecker_matmul(roots, normals.flatten(1).mT.contiguous()).mT
