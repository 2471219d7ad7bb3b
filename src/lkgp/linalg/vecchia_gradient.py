"""The derivative of Vecchia's approximation by the entries of A.

With the rows rho_i = F_i^-1/2 (-b_i, 1) of W, whose weights b_i are the best ones, so that their own changes do not
matter to first order,

    d log det M  =  sum_i rho_i^T dA_i rho_i,      A_i: the entries of A among the neighbours of cell i and the cell.

For a vector w, with e = W w and g_i = A_NN^-1 w_N over the neighbours of cell i, zero for the cell itself,

    w^T d(M^-1) w  =  - sum_i (2 e_i g_i + e_i^2 rho_i)^T dA_i rho_i.
"""

from typing import Any

import torch
from torch import Tensor

from lkgp.linalg.kronecker import LatentKronecker
from lkgp.linalg.local_systems import LocalSystems, backward, forward, local_covariances, lower_triangle
from lkgp.linalg.roots import positive_cholesky


def trace_weights(
    operator: LatentKronecker, local: LocalSystems, draws: Tensor, whitened: Tensor
) -> tuple[list[list[Any]], Tensor]:
    """The weights of the entries of A in d log det M + mean over draws w of w^T d(M^-1) w.

    If the draws have covariance M, the mean of the second part is minus that of the first.

    draws: w, (n, s); whitened: W w, (n, s)
    Returns the weights for every factor of every term, as `Factor.pull_back` does, and those of the diagonal of D,
    (n,).
    """
    noise = draws.new_zeros(len(draws))
    factors: list[list[Any]] | None = None
    rows, columns = lower_triangle(local.cells.shape[1], draws.device)
    # an entry beside the diagonal stands for two
    double = torch.where(rows == columns, 0.5, 1.0).to(draws)
    for start in range(0, len(draws), local.block):
        part = slice(start, start + local.block)
        cells, rho = local.cells[part], local.rows[part]
        left = _left(operator, local, part, draws, whitened[local.order[part]])
        noise.index_add_(0, cells.flatten(), (left * rho).flatten())
        weights = double * (left[:, rows] * rho[:, columns] + left[:, columns] * rho[:, rows])
        found = operator.entry_weights(cells[:, rows].flatten(), cells[:, columns].flatten(), weights.flatten())
        pairs = zip(factors, found, strict=True) if factors is not None else ()
        factors = [[a + b for a, b in zip(*terms, strict=True)] for terms in pairs] if factors is not None else found
    assert factors is not None
    return factors, noise


def _left(operator: LatentKronecker, local: LocalSystems, part: slice, draws: Tensor, whitened: Tensor) -> Tensor:
    """rho_i - mean over draws of (2 e_i g_i + e_i^2 rho_i) for some cells, (b, m + 1); whitened: e, (b, s)."""
    cells, present, rho = local.cells[part], local.present[part], local.rows[part]
    factor, _ = positive_cholesky(local_covariances(operator, cells, present))
    factor = factor[:, :-1, :-1].permute(1, 2, 0).contiguous()
    neighbours = draws[cells[:, :-1].mT].masked_fill_(~present[:, :-1].mT[..., None], 0.0)  # (m, b, s)
    solved = backward(factor, forward(factor, neighbours.mT.contiguous()))
    left = rho * (1 - whitened.square().mean(dim=1, keepdim=True))
    left[:, :-1] -= 2 * (solved * whitened.mT).mean(dim=1).mT
    return left
