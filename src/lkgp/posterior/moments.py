"""Posterior moments at chosen cells instead of whole grids.

Joint moments are differentiable functions of the coordinates along the first factor; row moments are those of single
cells.

For cells * with prior covariance K(*, *) and covariances C = K(*, X) with the observations,

    mean  =  m + C a,      covariance  =  K(*, *) - C A^-1 C^T.

W = A^-1 C^T is computed without a gradient; since A does not depend on the cells, d(C A^-1 C^T) = dC W + W^T dC^T. The
covariance is that of the errors of the predictors W, K(*, *) - C W - (C W)^T + W^T A W, which has the same derivative.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

import torch
from torch import Tensor

from lkgp.linalg.kronecker import sum_of
from lkgp.model import Term
from lkgp.posterior.posterior import Posterior
from lkgp.posterior.rounding import above_rounding, check_means, sums_of_squares


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


def joint_moments(posterior: Posterior, groups: Sequence[Cells], strict: bool = False) -> tuple[Tensor, Tensor]:
    """Joint mean (b, c) and covariance (b, c, c) of the cells of all groups.

    strict: raise an error instead of a warning if they are not accurate
    """
    count = sum(group.count for group in groups)
    if not count:
        like = groups[0].points
        return like.new_zeros(len(like), 0), like.new_zeros(len(like), 0, 0)
    at_once = max(1, posterior.columns_at_once() // count)
    parts = [
        _moments(posterior, [Cells(points, group.others) for points, group in zip(slices, groups, strict=True)], strict)
        for slices in zip(*(group.points.split(at_once) for group in groups), strict=True)
    ]
    return torch.cat([mean for mean, _ in parts]), torch.cat([covariance for _, covariance in parts])


def _moments(posterior: Posterior, groups: Sequence[Cells], strict: bool) -> tuple[Tensor, Tensor]:
    model = posterior.model
    terms = [(term, torch.cat([_cross(posterior, term, group) for group in groups], dim=1)) for term in model.terms]
    cross = sum_of(part for _, part in terms)  # (b, c, n)
    rows = [torch.cat([_prior(model.terms, a, b) for b in groups], dim=2) for a in groups]
    prior = torch.cat(rows, dim=1)
    before = prior.diagonal(dim1=-2, dim2=-1)
    with torch.no_grad():
        weights, image = posterior.predictors(cross.flatten(0, 1), before.flatten(), strict)
        batches = [part.mT.reshape(cross.shape).mT for part in (weights, image)]  # (b, n, c)
        squared = batches[0].mT @ batches[1]
    explained = cross @ batches[0]
    covariance = prior - explained - explained.mT + (squared + squared.mT) / 2
    variance = covariance.diagonal(dim1=-2, dim2=-1)
    raised = above_rounding(variance.detach(), before.detach(), strict) - variance.detach()
    check_means(sums_of_squares(cross, posterior.weights), variance + raised, posterior.weights.dtype, strict)
    covariance = covariance + torch.diag_embed(raised)
    batch = len(groups[0].points)
    means = [model.mean.at_rows(group.rows()).detach().expand(batch * group.count) for group in groups]
    mean = torch.cat([m.view(batch, -1) for m in means], dim=1) + cross @ posterior.weights
    return mean, covariance


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
def row_moments(posterior: Posterior, columns: Sequence[Tensor], strict: bool = False) -> tuple[Tensor, Tensor]:
    """Mean and variance of f at m single cells, each (m,).

    columns: (m, d_k) each; row i of each of them locates cell i
    strict: raise an error instead of a warning if they are not accurate
    """
    model, parts = posterior.model, []
    for rows in zip(*(column.split(posterior.columns_at_once()) for column in columns), strict=True):
        cross = posterior.cross_rows(rows)
        pairs = list(enumerate(rows))
        variances = [[term.factor_variance(k, x) for k, x in pairs] for term in model.terms]
        prior = sum_of(reduce(torch.mul, product) for product in variances)
        weights, image = posterior.predictors(cross, prior, strict)
        squared_error = prior - ((2 * cross.mT - image) * weights).sum(dim=0)
        mean = model.mean.at_rows(rows) + cross @ posterior.weights
        parts.append((mean, squared_error, prior, sums_of_squares(cross, posterior.weights)))
    mean, variance, prior, squares = (torch.cat(part) for part in zip(*parts, strict=True))
    variance = above_rounding(variance, prior, strict)
    check_means(squares, variance, posterior.weights.dtype, strict)
    return mean, variance


@torch.no_grad()
def row_means(posterior: Posterior, columns: Sequence[Tensor]) -> Tensor:
    """The mean of f at m single cells, (m,), as in `row_moments` but without any solve."""
    parts = []
    for rows in zip(*(column.split(posterior.columns_at_once()) for column in columns), strict=True):
        parts.append(posterior.model.mean.at_rows(rows) + posterior.cross_rows(rows) @ posterior.weights)
    return torch.cat(parts)
