"""Posterior moments at chosen cells instead of whole grids.

Joint moments are differentiable functions of the coordinates along the first factor; row moments are those of single
cells.

For cells * with prior covariance K(*, *) and covariances C = K(*, X) with the observations,

    mean  =  m + C a,      covariance  =  K(*, *) - C A^-1 C^T.

V = A^-1 C^T is computed without a gradient; since A does not depend on the cells, d(C A^-1 C^T) = dC V + V^T dC^T.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

import torch
from torch import Tensor

from lkgp.linalg.kronecker import sum_of
from lkgp.model import Term
from lkgp.posterior.posterior import Posterior


@dataclass(frozen=True, eq=False)
class Cells:
    """Batches of cells: k m cells in each of b independent batches, with `others` varying fastest.

    points: coordinates along the first factor, (b, k, d_1)
    others: coordinates along the other factors, (m, d_j) each; row i of each array belongs to the same cell
    """

    points: Tensor
    others: tuple[Tensor, ...]

    @property
    def count(self) -> int:
        return self.points.shape[1] * max([len(x) for x in self.others], default=1)

    def rows(self) -> list[Tensor]:
        """The coordinates of all cells along every factor, (b k m, d_k)."""
        batch, count, columns = self.points.shape
        many = max([len(x) for x in self.others], default=1)
        first = self.points[:, :, None].expand(-1, -1, many, -1).reshape(-1, columns)
        return [first, *(x.repeat(batch * count, 1) for x in self.others)]


def joint_moments(posterior: Posterior, groups: Sequence[Cells]) -> tuple[Tensor, Tensor]:
    """Joint mean (b, c) and covariance (b, c, c) of the cells of all groups."""
    count = sum(group.count for group in groups)
    if not count:
        like = groups[0].points
        return like.new_zeros(len(like), 0), like.new_zeros(len(like), 0, 0)
    at_once = max(1, posterior.columns_at_once() // count)
    parts = [
        _moments(posterior, [Cells(points, group.others) for points, group in zip(slices, groups, strict=True)])
        for slices in zip(*(group.points.split(at_once) for group in groups), strict=True)
    ]
    return torch.cat([mean for mean, _ in parts]), torch.cat([covariance for _, covariance in parts])


def _moments(posterior: Posterior, groups: Sequence[Cells]) -> tuple[Tensor, Tensor]:
    model = posterior.model
    terms = [(term, torch.cat([_cross(posterior, term, group) for group in groups], dim=1)) for term in model.terms]
    cross = sum_of(part for _, part in terms)  # (b, c, n)
    rows = [torch.cat([_prior(model.terms, a, b) for b in groups], dim=2) for a in groups]
    prior = torch.cat(rows, dim=1)
    with torch.no_grad():
        solved = posterior.inverse_times(cross.flatten(0, 1).mT).mT.reshape(cross.shape).mT  # (b, n, c)
    explained = cross @ solved
    explained = explained + explained.mT - cross.detach() @ solved
    batch = len(groups[0].points)
    means = [model.mean.at_rows(group.rows()).detach().expand(batch * group.count) for group in groups]
    mean = torch.cat([m.view(batch, -1) for m in means], dim=1) + cross @ posterior.weights
    return mean, prior - (explained + explained.mT) / 2


def _cross(posterior: Posterior, term: Term, group: Cells) -> Tensor:
    """Covariances of the cells of a group with the observations, (b, c, n)."""
    (first, *rest), (index, *indices) = posterior.data.grid.coords, posterior.data.grid.axis_index
    batch, count, columns = group.points.shape
    along = term.cross_factor(0, group.points.reshape(-1, columns), first)[:, index].view(batch, count, 1, len(index))
    pairs = enumerate(zip(group.others, rest, indices, strict=True), start=1)
    others = [term.cross_factor(k, x, z)[:, i] for k, (x, z, i) in pairs]
    return (along * reduce(torch.mul, others)).flatten(1, 2) if others else along[:, :, 0]


def _prior(terms: Sequence[Term], a: Cells, b: Cells) -> Tensor:
    """K between the cells of two groups, (b, c_a, c_b)."""
    parts = []
    for term in terms:
        along = term.cross_factor(0, a.points, b.points)
        pairs = enumerate(zip(a.others, b.others, strict=True), start=1)
        others = [term.cross_factor(k, x, z) for k, (x, z) in pairs]
        if others:
            whole = along[:, :, None, :, None] * reduce(torch.mul, others)[None, None, :, None, :]
            along = whole.flatten(3, 4).flatten(1, 2)
        parts.append(along)
    return sum_of(parts)


@torch.no_grad()
def row_moments(posterior: Posterior, columns: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    """Mean and variance of f at m single cells, each (m,); row i of each of `columns` (m, d_k) locates cell i."""
    model, parts = posterior.model, []
    for rows in zip(*(column.split(posterior.columns_at_once()) for column in columns), strict=True):
        cross = _row_cross(posterior, rows)
        pairs = list(enumerate(rows))
        variances = [[term.factor_variance(k, x) for k, x in pairs] for term in model.terms]
        prior = sum_of(reduce(torch.mul, product) for product in variances)
        explained = (cross * posterior.inverse_times(cross.mT).mT).sum(dim=1)
        parts.append((model.mean.at_rows(rows) + cross @ posterior.weights, prior - explained))
    mean, variance = (torch.cat(part) for part in zip(*parts, strict=True))
    return mean, variance.clamp(min=torch.finfo(variance.dtype).eps)


@torch.no_grad()
def row_means(posterior: Posterior, columns: Sequence[Tensor]) -> Tensor:
    """The mean of f at m single cells, (m,), as in `row_moments` but without any solve."""
    parts = []
    for rows in zip(*(column.split(posterior.columns_at_once()) for column in columns), strict=True):
        parts.append(posterior.model.mean.at_rows(rows) + _row_cross(posterior, rows) @ posterior.weights)
    return torch.cat(parts)


def _row_cross(posterior: Posterior, rows: Sequence[Tensor]) -> Tensor:
    """Covariances of single cells with the observations, (m, n)."""
    crosses, indices = posterior.cross_factors(rows), posterior.data.grid.axis_index
    products = [[c[:, i] for c, i in zip(of_term, indices, strict=True)] for of_term in crosses]
    return sum_of(reduce(torch.mul, product) for product in products)
