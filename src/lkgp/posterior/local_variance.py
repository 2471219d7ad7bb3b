"""Posterior variances from the nearest observations, corrected by draws.

Let w be the weights of the best linear predictor of a cell from its nearest observations N only,

    w  =  A_NN^-1 c_N,      v_near  =  k_** - c_N^T w.

The error of the best predictor from all observations is uncorrelated with all observations, and so with the difference
of the two predictors. Hence the variance given all observations is

    v  =  v_near - E (c^T A^-1 z - w^T z_N)^2,      z ~ N(0, A),

and only what farther observations tell is averaged over draws of z. Its relative standard error with s draws is
sqrt(2 / s), so that of a standard deviation is sqrt(1 / (2 s)) (v_near - v) / v.

Neighbouring cells share their observations: one small factorisation serves a whole group of cells.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from math import prod
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lkgp.linalg.kronecker import LatentKronecker, sum_of
from lkgp.linalg.local_systems import BLOCK_ENTRIES, covariances_among
from lkgp.linalg.neighbours import compact_groups
from lkgp.linalg.roots import positive_cholesky
from lkgp.linalg.triangular import TriangularSolves
from lkgp.posterior.near_observations import NearObservations

Groups = NDArray[np.int64]

# Cells in one group, and numbers of observations to try for it. With the 100 nearest observations of single cells, 99 %
# of the standard deviations were right to 1 % in large gaps, for rough and smooth kernels alike; a group needs more.
GROUP, NUMBERS = 16, (64, 128, 256)

# The fewest draws for an estimate, whatever the memory.
FEWEST_DRAWS = 8
# Groups of cells at which the accuracy is judged, and the share of the cells that must be accurate.
PILOT_GROUPS, MOST_CELLS = 64, 0.99
# A relative standard error of a standard deviation that needs no further estimate: it is invisible on any map.
SMALL_ERROR = 0.01
# No standard deviation is stated to be more accurate than this: rounding errors are larger than a vanishing estimate.
ROUNDING = 1e-6
# With at least so many observations, as few draws are used if a first handful promises that they are enough. With fewer
# observations all draws take only seconds.
FEW_DRAWS_PAY, FEW_DRAWS, FIRST_DRAWS = 30_000, 16, 8
# From few draws, the error that 99 % of the cells do not exceed comes out up to this many times too large: it is a high
# quantile of noisy estimates.
TOO_LARGE = 1.5
# If none of the numbers of nearest observations suffices, the smallest is taken whose error, in the mean over the
# cells, is at most this many times that of the best: its time grows with the square of the number.
ABOUT_AS_GOOD = 1.5
# The least share of v in v_near that is distinguished from zero.
LEAST_SHARE = 1e-3
# With that many observations, systems of the nearest ones are solved in float32 where the noise is at least this share
# of the prior variance: rounding then changes a standard deviation by less than a thousandth.
LEAST_NOISE_OF_SINGLE = 1e-2


@dataclass(frozen=True, eq=False)
class NearVariance:
    """What the nearest observations and the draws tell of some cells.

    near: v_near, (N',)
    farther: the estimate of v_near - v, (N',)
    num: the number of draws behind it
    """

    near: Tensor
    farther: Tensor
    num: int

    @property
    def variance(self) -> Tensor:
        """Estimates of v, (N',), never negative."""
        return (self.near - self.farther).clamp(min=0.0)

    def combined(self, sampled: Tensor, num: int) -> Tensor:
        """Estimates of v, (N',), that also use the mean squared deviations of `num` draws, `sampled` (N',).

        Deviations from the best predictor are independent of differences of predictors, and both estimates are weighted
        by the inverse of their variances, which are proportional to v^2 and (v_near - v)^2.
        """
        # relative to v_near, because the squares of small numbers may underflow
        unit = self.near.clamp(min=torch.finfo(self.near.dtype).tiny)
        sampled, farther = (sampled / unit).clamp(max=1.0), self.farther / unit
        ratio = (sampled / (sampled + farther).clamp(min=LEAST_SHARE)).clamp(min=LEAST_SHARE)
        known = torch.where(farther < 0.5, (1 - farther).clamp(min=0.0), ratio)
        share = self.num * known.square() / (self.num * known.square() + num * farther.square())
        return unit * (share * (1 - farther).clamp(min=0.0) + (1 - share) * sampled)

    @property
    def error(self) -> Tensor:
        """Standard errors of the standard deviations, relative to them, (N',)."""
        return math.sqrt(0.5 / self.num) * self.farther / self.variance.clamp(min=1e-300)


@torch.no_grad()
def estimated_variance(posterior: Any, coords: Sequence[Tensor]) -> Tensor:
    """The posterior variance of f at every cell of the product of `coords`, (n'_1, ..., n'_d), from draws.

    posterior: a `Posterior`
    """
    shape = tuple(len(x) for x in coords)
    quality, (every, seed) = posterior.variance_quality, posterior.behind_variance
    draws = posterior.draws(quality.draws, seed)
    # Predictions of as many draws as fit into memory are compared with those from the nearest observations.
    num = min(draws.num, max(FEWEST_DRAWS, posterior.columns_at_once(prod(shape))))
    cells = torch.arange(prod(shape), device=posterior.data.grid.index.device)
    groups = all_in_groups(posterior, coords, cells)
    found = near_variance(posterior, coords, cells, draws.weights[:, :num], groups, quality.nearest)
    # Outside the grid the nearest observations may tell less than at the cells where this was judged.
    if not quality.combined and most_cells(found.error) <= TOO_LARGE * SMALL_ERROR:
        posterior.state_variance_error(most_cells(found.error))
        return found.variance.view(shape)
    sampled = posterior.draws(every, seed).variance(coords)
    posterior.state_variance_error(most_cells(combined_errors(found, every)))
    return found.combined(sampled.double().flatten(), every).view(shape)


def most_cells(errors: Tensor) -> float:
    """What 99 % of the errors do not exceed."""
    return float(np.quantile(errors.cpu().numpy(), MOST_CELLS))


@dataclass(frozen=True)
class VarianceQuality:
    """How accurate estimated variances are, judged at some cells of the fitted grid.

    error: the relative standard error that 99 % of the standard deviations do not exceed
    nearest: the number of observations for a group of cells
    combined: whether these tell too little, so that the deviations of draws are used, too
    draws: the number of draws
    """

    error: float
    nearest: int
    combined: bool
    draws: int

    def __str__(self) -> str:
        source = f"from {self.nearest} observations near by and what {self.draws} posterior samples add to them"
        return f"{source}; relative standard error at most {self.error:.1%} in 99 % of the cells"


@torch.no_grad()
def variance_quality(posterior: Any) -> VarianceQuality:
    """Judge the estimates at cells chosen at random; large data get few draws if these are enough."""
    (every, seed), observed = posterior.behind_variance, posterior.data.grid.num_observed
    if observed >= FEW_DRAWS_PAY and every > FEW_DRAWS:
        fewer = math.sqrt(FIRST_DRAWS / FEW_DRAWS) / TOO_LARGE
        promised = found_at_pilots(posterior, posterior.draws(FIRST_DRAWS, seed), SMALL_ERROR / fewer)
        if fewer * most_cells(list(promised.values())[-1].error) <= SMALL_ERROR:
            few = accurate_quality(found_at_pilots(posterior, posterior.draws(FEW_DRAWS, seed)), FEW_DRAWS)
            if few is not None:
                return few
    found = found_at_pilots(posterior, posterior.draws(every, seed))
    return accurate_quality(found, every) or combined_quality(found, every)


def found_at_pilots(posterior: Any, draws: Any, enough: float = SMALL_ERROR) -> dict[int, NearVariance]:
    """What some cells of the fitted grid are estimated to be with numbers of nearest observations, until the error in
    99 % of the cells is `enough`."""
    members = some_groups(posterior, PILOT_GROUPS)
    groups = np.arange(members.numel()).reshape(members.shape)
    num = min(draws.num, max(FEWEST_DRAWS, posterior.columns_at_once()))
    coords, weights, found = posterior.data.grid.coords, draws.weights[:, :num], {}
    for number in NUMBERS:
        found[number] = near_variance(posterior, coords, members.flatten(), weights, groups, number)
        if most_cells(found[number].error) <= enough:
            break
    return found


def accurate_quality(found: dict[int, NearVariance], draws: int) -> VarianceQuality | None:
    """The quality with the last of the numbers of nearest observations, if it is accurate."""
    nearest, last = list(found.items())[-1]
    error = most_cells(last.error)
    return VarianceQuality(max(error, ROUNDING), nearest, False, draws) if error <= SMALL_ERROR else None


def combined_errors(found: NearVariance, draws: int) -> Tensor:
    """Relative standard errors of standard deviations that also use the deviations of so many draws, (N',)."""
    # The two estimates are independent: 1 / error^2 adds up.
    return (1 / (1 / found.error.clamp(min=ROUNDING).square() + 2.0 * draws)).sqrt()


def combined_quality(found: dict[int, NearVariance], draws: int) -> VarianceQuality:
    """The quality of both estimates together, with the fewest nearest observations that are about as good as more."""
    errors = {nearest: combined_errors(one, draws) for nearest, one in found.items()}
    means = {nearest: float(error.square().mean().sqrt()) for nearest, error in errors.items()}
    nearest = next(nearest for nearest, mean in means.items() if mean <= ABOUT_AS_GOOD * min(means.values()))
    return VarianceQuality(most_cells(errors[nearest]), nearest, True, draws)


@torch.no_grad()
def near_variance(
    posterior: Any, coords: Sequence[Tensor], cells: Tensor, weights: Tensor, groups: Groups, nearest: int
) -> NearVariance:
    """Variances of f at some cells of the product of `coords` from the nearest observations and from draws.

    posterior: a `Posterior`
    cells: indices of the cells, (N',)
    weights: A^-1 z of the draws z, (n, s)
    groups: positions among the cells of those that share their observations, (g, b)
    nearest: the number of observations of a group
    """
    targets = targets_at(coords, cells)
    whole = posterior.cross(coords, weights)
    if len(cells) != len(whole) or not bool((cells[1:] > cells[:-1]).all()):  # a copy only where it is needed
        whole = whole[cells]
    data = posterior.system.operator @ weights
    near, farther = (weights.new_zeros(len(cells), dtype=torch.float64) for _ in range(2))
    operator = small_systems_operator(posterior.system.precise_operator)
    for group, chosen in _near_groups(posterior, targets, groups, nearest):
        predictors, error = _near_predictors(posterior, operator, [x[group] for x in targets], chosen)
        # c^T A^-1 z - w^T z_N
        difference = whole[group] - torch.einsum("gmb,gms->gbs", predictors.to(data), data[chosen])
        near[group.flatten()] = error.flatten()
        farther[group.flatten()] = difference.double().square().mean(dim=-1).flatten()
    return NearVariance(near, farther, weights.shape[1])


def targets_at(coords: Sequence[Tensor], cells: Tensor) -> list[Tensor]:
    """The coordinates (N', d_k) of some cells (N',) of the product of `coords` along every factor."""
    axes = torch.unravel_index(cells, tuple(len(x) for x in coords))
    return [points[axis] for points, axis in zip(coords, axes, strict=True)]


def places_of(posterior: Any, targets: Sequence[Tensor]) -> list[NDArray[np.float64]]:
    """The places (N', e_k) of cells along every factor, where squared distances follow correlations."""
    triples = zip(posterior.places, targets, posterior.data.grid.coords, strict=True)
    return [own.of(x.double().cpu().numpy(), points.double().cpu().numpy()) for own, x, points in triples]


def all_in_groups(posterior: Any, coords: Sequence[Tensor], cells: Tensor) -> Groups:
    """Groups of GROUP neighbouring cells that hold all of some cells (N',)."""
    return compact_groups(np.concatenate(places_of(posterior, targets_at(coords, cells)), axis=1), GROUP)


def some_groups(posterior: Any, count: int) -> Tensor:
    """The indices of GROUP neighbouring cells of the fitted grid around each of some cells chosen at random, (c, b)."""
    grid, known = posterior.data.grid, posterior.places
    generator = torch.Generator().manual_seed(posterior.seed)
    found = []
    for centre in torch.randint(grid.num_cells, (min(count, grid.num_cells),), generator=generator):
        cells, apart = np.zeros(1, dtype=np.int64), np.zeros(1)
        for own, n, axis in zip(known, grid.shape, torch.unravel_index(centre, grid.shape), strict=True):
            squares = np.square(own.places - own.places[int(axis)]).sum(axis=1)
            few = np.argsort(squares, kind="stable")[:GROUP]
            cells = (cells[:, None] * n + few).ravel()
            apart = (apart[:, None] + squares[few]).ravel()
            nearest = np.argsort(apart, kind="stable")[:GROUP]
            cells, apart = cells[nearest], apart[nearest]
        found.append(torch.from_numpy(cells))
    return torch.stack(found).to(grid.index.device)


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
    if operator.grid.num_observed < FEW_DRAWS_PAY:
        return operator
    well_conditioned = bool(operator.noise.min() >= LEAST_NOISE_OF_SINGLE * operator.latent_diagonal().max())
    return operator.rounded(torch.float32) if well_conditioned else operator


def _near_predictors(
    posterior: Any, operator: LatentKronecker, targets: Sequence[Tensor], chosen: Tensor
) -> tuple[Tensor, Tensor]:
    """The weights (g, m, b) of the best predictors of cells from the chosen observations, and their errors (g, b).

    operator: A, in the precision of these systems
    targets: the coordinates of the cells along every factor, (g, b, d_k)
    chosen: indices of observations, (g, m)
    """
    grid, model, dtype = posterior.data.grid, posterior.model, operator.noise.dtype
    near = [points[axis[chosen]] for points, axis in zip(grid.coords, grid.axis_index, strict=True)]
    root, _ = positive_cholesky(covariances_among(operator, chosen, dtype))
    cross = sum_of(
        reduce(torch.mul, [term.cross_factor(k, x, z) for k, (x, z) in enumerate(zip(near, targets, strict=True))])
        for term in model.terms
    ).to(dtype)
    flat = [x.flatten(0, 1) for x in targets]
    prior = sum_of(reduce(torch.mul, [term.factor_variance(k, x) for k, x in enumerate(flat)]) for term in model.terms)
    # With A_NN = L L^T and V = L^-1 C: W = L^-T V and v_near = k_** - sum of V^2
    solves = TriangularSolves(root)
    explained = solves.forward(cross)
    known = explained.square().sum(dim=1, dtype=torch.float64)
    return solves.backward(explained), prior.double().view(len(chosen), -1) - known
