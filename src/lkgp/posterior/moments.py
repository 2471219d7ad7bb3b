"""Posterior moments at chosen cells instead of whole grids: joint ones, as functions of the coordinates along the first
factor, with gradients; and those of single cells, row by row.

For cells * with prior covariance K(*, *) and covariances C = K(*, X) with the observations,

    mean  =  m + C a,      covariance  =  K(*, *) - C A^-1 C^T.

A^-1 C^T is solved for without a gradient, as V; since A does not depend on the cells, d(C A^-1 C^T) = dC V + V^T dC^T.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

import torch
from torch import Tensor

from lkgp.model.model import evaluate
from lkgp.posterior.posterior import Posterior


@dataclass(frozen=True, eq=False)
class Cells:
    """points: along the first factor, (b, k, d_1), for each of b separate questions; others: along the others, (m, d_j) for each, side by
    side: k m cells a question, of which the others run fastest
    """

    points: Tensor
    others: tuple[Tensor, ...]


def joint_moments(posterior: Posterior, groups: Sequence[Cells]) -> tuple[Tensor, Tensor]:
    """Mean (b, c) and covariance (b, c, c) of the cells of all groups together."""
    count = sum(group.points.shape[1] * max([len(x) for x in group.others], default=1) for group in groups)
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
    model, (first, *rest) = posterior.model, posterior.data.grid.coords
    index, *indices = posterior.data.grid.axis_index
    crosses = []
    for group in groups:
        batch, count, columns = group.points.shape
        along = evaluate(model.kernels[0], group.points.reshape(-1, columns), first)[:, index].view(
            batch, count, 1, len(index)
        )
        others = _product(
            [evaluate(k, x, z)[:, i] for k, x, z, i in zip(model.kernels[1:], group.others, rest, indices, strict=True)]
        )
        crosses.append((along * others).flatten(1, 2) if others is not None else along[:, :, 0])
    cross = torch.cat(crosses, dim=1)  # (b, c, n)
    prior = torch.cat([torch.cat([_prior(posterior, a, b) for b in groups], dim=2) for a in groups], dim=1)
    with torch.no_grad():
        solved = posterior.inverse_times(cross.flatten(0, 1).mT).mT.reshape(cross.shape).mT  # (b, n, c)
    explained = cross @ solved
    explained = explained + explained.mT - cross.detach() @ solved
    mean = model.mean.constant.detach() + cross @ posterior.weights
    return mean, prior - (explained + explained.mT) / 2


def _product(factors: list[Tensor]) -> Tensor | None:
    return reduce(torch.mul, factors) if factors else None


def _prior(posterior: Posterior, a: Cells, b: Cells) -> Tensor:
    """K between the cells of two groups, (b, c_a, c_b)."""
    first, *rest = posterior.model.kernels
    along = evaluate(first, a.points, b.points)
    others = _product([evaluate(kernel, x, z) for kernel, x, z in zip(rest, a.others, b.others, strict=True)])
    if others is None:
        return along
    whole = along[:, :, None, :, None] * others[None, None, :, None, :]
    return whole.flatten(3, 4).flatten(1, 2)


@torch.no_grad()
def row_moments(posterior: Posterior, columns: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    """Mean and variance of f at single cells, each (m,): row i of every one of `columns`, (m, d_k), is where cell i lies."""
    grid, parts = posterior.data.grid, []
    for rows in zip(*(column.split(posterior.columns_at_once()) for column in columns), strict=True):
        factors = zip(posterior.cross_factors(rows), grid.axis_index, strict=True)
        cross = reduce(torch.mul, [c[:, index] for c, index in factors])
        prior = reduce(
            torch.mul, [kernel(x, diag=True) for kernel, x in zip(posterior.model.kernels, rows, strict=True)]
        )
        explained = (cross * posterior.inverse_times(cross.mT).mT).sum(dim=1)
        parts.append((posterior.model.mean.constant + cross @ posterior.weights, prior - explained))
    mean, variance = (torch.cat(part) for part in zip(*parts, strict=True))
    return mean, variance.clamp(min=torch.finfo(variance.dtype).eps)
