"""Predictors of groups of cells from the nearest observations: one small dense system for each group.

SciPy's LAPACK and BLAS are called for one system after another, in place: for such small matrices they take less time
than PyTorch's, with one thread or two.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.linalg import get_blas_funcs, get_lapack_funcs
from torch import Tensor

from lkgp.linalg.kronecker import LatentKronecker, sum_of
from lkgp.linalg.local_systems import BLOCK_ENTRIES, covariances_among
from lkgp.linalg.roots import positive_cholesky
from lkgp.posterior.near_observations import NearObservations

Groups = NDArray[np.int64]

# With at least so many observations, systems are solved in float32 where the noise is at least this share of the prior
# variance: rounding then changes a standard deviation by less than a thousandth.
MANY_SYSTEMS, LEAST_NOISE_OF_SINGLE = 30_000, 1e-2


@dataclass(frozen=True, eq=False)
class NearPredictors:
    """The best linear predictors of some groups of cells from the observations near them.

    cells: positions of the cells, (g, b)
    chosen: indices of observations, (g, m)
    weights: of the observations, (g, m, b)
    errors: expected squared errors v_near, (g, b)
    """

    cells: Tensor
    chosen: Tensor
    weights: Tensor
    errors: Tensor

    def differences(self, latent: Tensor, observed: Tensor) -> Tensor:
        """c^T A^-1 z - w^T z_N, (g, b, s), for c^T A^-1 z at all cells (N', s) and all observations z (n, s)."""
        near = torch.einsum("gmb,gms->gbs", self.weights.to(observed), observed[self.chosen])
        return latent[self.cells] - near


@torch.no_grad()
def near_predictors(
    posterior: Any, coords: Sequence[Tensor], cells: Tensor, groups: Groups, nearest: int
) -> Iterator[NearPredictors]:
    """The predictors of all groups, some groups at a time.

    posterior: a `Posterior`
    cells: indices of cells of the product of `coords`, (N',)
    groups: positions among the cells of those that share their observations, (g, b)
    nearest: the number of observations of a group
    """
    targets = targets_at(coords, cells)
    operator = small_systems_operator(posterior.system.precise_operator)
    for group, chosen in _near_groups(posterior, targets, groups, nearest):
        weights, errors = _solved(posterior, operator, [x[group] for x in targets], chosen)
        yield NearPredictors(group, chosen, weights, errors)


def targets_at(coords: Sequence[Tensor], cells: Tensor) -> list[Tensor]:
    """The coordinates (N', d_k) of some cells (N',) of the product of `coords` along every factor."""
    axes = torch.unravel_index(cells, tuple(len(x) for x in coords))
    return [points[axis] for points, axis in zip(coords, axes, strict=True)]


def places_of(posterior: Any, targets: Sequence[Tensor]) -> list[NDArray[np.float64]]:
    """The places (N', e_k) of cells along every factor, where squared distances follow correlations."""
    triples = zip(posterior.places, targets, posterior.data.grid.coords, strict=True)
    return [own.of(x.double().cpu().numpy(), points.double().cpu().numpy()) for own, x, points in triples]


def _near_groups(
    posterior: Any, targets: Sequence[Tensor], groups: Groups, nearest: int
) -> Iterator[tuple[Tensor, Tensor]]:
    """Some of the groups at a time, (g, b), and the observations near them, (g, m)."""
    grid, known = posterior.data.grid, posterior.places
    observed = [own.places[axis.cpu().numpy()] for own, axis in zip(known, grid.axis_index, strict=True)]
    wanted, near = places_of(posterior, targets), NearObservations(grid, observed)
    count, device = min(nearest, grid.num_observed), grid.index.device
    at_once = max(1, BLOCK_ENTRIES // count**2)
    for block in np.split(groups, range(at_once, len(groups), at_once)):
        chosen = near.to_groups([x[block] for x in wanted], count)
        yield torch.as_tensor(block, device=device), torch.as_tensor(chosen, device=device)


def small_systems_operator(operator: LatentKronecker) -> LatentKronecker:
    """A in float32 where there are many systems of nearest observations, all well-conditioned; elsewhere as it is."""
    if operator.grid.num_observed < MANY_SYSTEMS:
        return operator
    well_conditioned = bool(operator.noise.min() >= LEAST_NOISE_OF_SINGLE * operator.latent_diagonal().max())
    return operator.rounded(torch.float32) if well_conditioned else operator


def _solved(
    posterior: Any, operator: LatentKronecker, targets: Sequence[Tensor], chosen: Tensor
) -> tuple[Tensor, Tensor]:
    """The weights (g, m, b) of the best predictors of cells from the chosen observations, and their errors (g, b).

    operator: A, in the precision of these systems
    targets: the coordinates of the cells along every factor, (g, b, d_k)
    chosen: indices of observations, (g, m)
    """
    grid, model, dtype = posterior.data.grid, posterior.model, operator.noise.dtype
    near = [points[axis[chosen]] for points, axis in zip(grid.coords, grid.axis_index, strict=True)]
    cross = sum_of(
        reduce(torch.mul, [term.cross_factor(k, x, z) for k, (x, z) in enumerate(zip(near, targets, strict=True))])
        for term in model.terms
    ).to(dtype)
    flat = [x.flatten(0, 1) for x in targets]
    prior = sum_of(reduce(torch.mul, [term.factor_variance(k, x) for k, x in enumerate(flat)]) for term in model.terms)
    explained, weights = small_solves(cholesky_among(operator, chosen), cross)
    # v_near = k_** - sum of V^2
    known = explained.square().sum(dim=1, dtype=torch.float64)
    return weights, prior.double().view(len(chosen), -1) - known


def cholesky_among(operator: LatentKronecker, cells: Tensor) -> Tensor:
    """Cholesky factors of A among the observed cells of every group (g, m): the lower triangles of (g, m, m)."""
    matrices = covariances_among(operator, cells, operator.noise.dtype)
    if matrices.device.type != "cpu":
        return positive_cholesky(matrices)[0]
    whole, failed = matrices.numpy(), []
    (factorise,) = get_lapack_funcs(("potrf",), (whole,))
    for i, matrix in enumerate(whole):
        # LAPACK reads columns: the upper triangle of the transpose is the lower one.
        _, info = factorise(matrix.T, lower=0, clean=0, overwrite_a=1)
        if info:
            failed.append(i)
    if failed:
        # In place, so the matrix is needed a second time.
        again = covariances_among(operator, cells[failed], operator.noise.dtype)
        matrices[failed] = positive_cholesky(again)[0]
    return matrices


def small_solves(factors: Tensor, cross: Tensor) -> tuple[Tensor, Tensor]:
    """V = L^-1 C and W = L^-T V, both (g, m, b), for lower triangles L (g, m, m) and C (g, m, b)."""
    if factors.device.type != "cpu":
        explained = torch.linalg.solve_triangular(factors.tril(), cross, upper=False)
        return explained, torch.linalg.solve_triangular(factors.tril().mT, explained, upper=True)
    explained = cross.contiguous().clone()
    roots, forward = factors.numpy(), explained.numpy()
    weights = torch.empty_like(explained)
    backward = weights.numpy()
    (solve,) = get_blas_funcs(("trsm",), (roots, forward))
    for root, v, w in zip(roots, forward, backward, strict=True):
        # BLAS reads the transposes: with U = L^T, V^T U = C^T, and then W^T U^T = V^T.
        solve(1.0, root.T, v.T, side=1, lower=0, trans_a=0, overwrite_b=1)
        w[:] = v
        solve(1.0, root.T, w.T, side=1, lower=0, trans_a=1, overwrite_b=1)
    return explained, weights
