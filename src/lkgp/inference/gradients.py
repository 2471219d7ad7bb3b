"""The weights of the entries of the factors in derivatives of quadratic forms with A."""

from collections.abc import Sequence

import torch
from torch import Tensor

from lkgp.data.grid import PartialGrid
from lkgp.inference.base import GradientWeights
from lkgp.linalg.factors import Factor
from lkgp.linalg.products import unfolded


def quadratic_weights(
    terms: Sequence[Sequence[Factor]], grid: PartialGrid, x: Tensor, shares: Sequence[float]
) -> GradientWeights:
    """The weights G_k of dK_k, and those of dD, in sum_j share_j x_j^T dA x_j, for x (n, c).

    <G_k, dK_k> = sum_j share_j x_j^T P (dK_k (x) the other factors) P^T x_j
    """
    share = torch.tensor(list(shares), dtype=x.dtype, device=x.device)
    cells = grid.scatter(x).mT.reshape(-1, *grid.shape)
    scaled = cells * share.view(-1, *[1] * len(grid.shape))
    found = []
    for factors in terms:
        weights = []
        for k, factor in enumerate(factors):
            part = cells
            for other, matrix in enumerate(factors):
                if other != k:
                    part = _multiplied(matrix, part, other)
            weights.append(factor.pull_back(unfolded(part, k), unfolded(scaled, k)))
        found.append(weights)
    return GradientWeights(found, x.square() @ share)


def _multiplied(factor: Factor, cells: Tensor, axis: int) -> Tensor:
    """Multiply one axis of arrays (c, n_1, ..., n_d) by a symmetric factor."""
    moved = cells.movedim(axis + 1, 0)
    product = factor.matmul(moved.reshape(len(moved), -1))
    return product.view(moved.shape).movedim(0, axis + 1)
