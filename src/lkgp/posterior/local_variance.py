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
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lkgp.linalg.neighbours import compact_groups
from lkgp.posterior.near_systems import Groups, NearPredictors, near_predictors, places_of, targets_at

Size = tuple[int, int]

# The numbers of observations and of cells of a group that are tried, cheapest first. With the 100 nearest observations
# of single cells, 99 % of the standard deviations were right to 1 % in large gaps, for rough and smooth kernels alike;
# a group needs more. 32 cells with 256 observations are nearly as accurate as 16, in half the time, and more so than 16
# with 128.
SIZES = ((64, 16), (128, 16), (256, 32), (256, 16))
# What most observations tell of few cells, compared with half of them: it shows what more would tell.
HALF_AND_MOST = ((128, 16), (256, 16))

# The fewest draws for an estimate, whatever the memory.
FEWEST_DRAWS = 8
# Groups of cells at which the accuracy is judged, and the share of the cells that must be accurate.
PILOT_GROUPS, MOST_CELLS = 64, 0.99
# A relative standard error of a standard deviation that needs no further estimate: it is invisible on any map.
SMALL_ERROR = 0.01
# No standard deviation is stated to be more accurate than this: rounding errors are larger than a vanishing estimate.
ROUNDING = 1e-6
# With at least so many observations, few draws are made where they promise to be enough. With fewer observations all
# draws take only seconds.
FEW_DRAWS_PAY, FEW_DRAWS = 30_000, 16
# From few draws, the error that 99 % of the cells do not exceed comes out up to this many times too large: it is a high
# quantile of noisy estimates.
TOO_LARGE = 1.5
# If none of the sizes of groups suffices, the cheapest is taken whose error, in the mean over the cells, is at most
# this many times that of the best.
ABOUT_AS_GOOD = 1.5
# Draws alone are used where the nearest observations do not make their error less than this many times as large.
LITTLE_BETTER = 0.8
# The least share of v in v_near that is distinguished from zero.
LEAST_SHARE = 1e-3


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
    if not quality.nearest:
        return posterior.draws(every, seed).variance(coords)
    draws = posterior.draws(quality.draws, seed)
    # Predictions of as many draws as fit into memory are compared with those from the nearest observations.
    num = min(draws.num, max(FEWEST_DRAWS, posterior.columns_at_once(prod(shape))))
    cells = torch.arange(prod(shape), device=posterior.data.grid.index.device)
    groups = all_in_groups(posterior, coords, cells, quality.cells)
    data = DrawnData.of(posterior, coords, draws.weights[:, :num])
    found = near_variance(near_predictors(posterior, coords, cells, groups, quality.nearest), data)
    # Outside the grid the nearest observations may tell less than at the cells where this was judged.
    if not quality.combined and most_cells(found.error) <= TOO_LARGE * SMALL_ERROR:
        posterior.state_variance_error(most_cells(found.error))
        return found.variance.view(shape)
    sampled = posterior.draws(every, seed).variance(coords, data.latent if num == every else None)
    posterior.state_variance_error(most_cells(combined_errors(found, every)))
    return found.combined(sampled.double().flatten(), every).view(shape)


def most_cells(errors: Tensor) -> float:
    """What 99 % of the errors do not exceed."""
    return float(np.quantile(errors.cpu().numpy(), MOST_CELLS))


@dataclass(frozen=True)
class VarianceQuality:
    """How accurate estimated variances are, judged at some cells of the fitted grid.

    error: the relative standard error that 99 % of the standard deviations do not exceed
    nearest: the number of observations for a group of cells; 0 if only the deviations of draws are used
    cells: the number of cells in a group
    combined: whether these tell too little, so that the deviations of draws are used, too
    draws: the number of draws
    """

    error: float
    nearest: int
    cells: int
    combined: bool
    draws: int

    def __str__(self) -> str:
        source = f"from {self.nearest} observations near by and what {self.draws} posterior samples add to them"
        if not self.nearest:
            source = f"from {self.draws} posterior samples, because observations near by tell too little"
        return f"{source}; relative standard error at most {self.error:.1%} in 99 % of the cells"


@torch.no_grad()
def variance_quality(posterior: Any) -> VarianceQuality:
    """Judge the estimates at cells chosen at random; large data get few draws if these are enough.

    It never depends on which draws were made before.
    """
    (every, seed), observed, pilots = posterior.behind_variance, posterior.data.grid.num_observed, Pilots(posterior)
    if observed >= FEW_DRAWS_PAY and every > FEW_DRAWS and pilots.promise(FEW_DRAWS):
        few = accurate_quality(pilots.found(posterior.draws(FEW_DRAWS, seed)), FEW_DRAWS)
        if few is not None:
            return few
    found = pilots.found(posterior.draws(every, seed))
    return accurate_quality(found, every) or combined_quality(found, every)


class Pilots:
    """Groups of cells of the fitted grid at which the accuracy is judged; their predictors are solved for once.

    Sizes are numbers of observations and of cells of a group.
    """

    def __init__(self, posterior: Any) -> None:
        self.posterior = posterior
        self.known: dict[Size, tuple[Tensor, list[NearPredictors]]] = {}

    def predictors(self, size: Size) -> tuple[Tensor, list[NearPredictors]]:
        """Cells in groups of a size, (N',), and their predictors."""
        if size not in self.known:
            nearest, cells = size
            members = some_groups(self.posterior, PILOT_GROUPS, cells)
            groups = np.arange(members.numel()).reshape(members.shape)
            coords, flat = self.posterior.data.grid.coords, members.flatten()
            self.known[size] = flat, list(near_predictors(self.posterior, coords, flat, groups, nearest))
        return self.known[size]

    def promise(self, draws: int) -> bool:
        """Whether so many draws may be accurate, before any is made.

        Most that all others tell is about what the last half of the nearest observations told.
        """
        half, most = (torch.cat([x.errors.flatten() for x in self.predictors(size)[1]]) for size in HALF_AND_MOST)
        return most_cells(NearVariance(half, half - most, draws).error) <= TOO_LARGE * SMALL_ERROR

    def found(self, draws: Any) -> dict[Size, NearVariance]:
        """Estimates from groups of several sizes, until the error is small in 99 % of the cells."""
        posterior, found = self.posterior, {}
        num = min(draws.num, max(FEWEST_DRAWS, posterior.columns_at_once()))
        data = DrawnData.of(posterior, posterior.data.grid.coords, draws.weights[:, :num])
        for size in SIZES:
            cells, predictors = self.predictors(size)
            found[size] = near_variance(predictors, data.at(cells))
            if most_cells(found[size].error) <= SMALL_ERROR:
                break
        return found


def accurate_quality(found: dict[Size, NearVariance], draws: int) -> VarianceQuality | None:
    """The quality with the last of the sizes of groups, if it is accurate."""
    size, last = list(found.items())[-1]
    error = most_cells(last.error)
    return VarianceQuality(max(error, ROUNDING), *size, False, draws) if error <= SMALL_ERROR else None


def combined_errors(found: NearVariance, draws: int) -> Tensor:
    """Relative standard errors of standard deviations that also use the deviations of so many draws, (N',)."""
    # The two estimates are independent: 1 / error^2 adds up.
    return (1 / (1 / found.error.clamp(min=ROUNDING).square() + 2.0 * draws)).sqrt()


def combined_quality(found: dict[Size, NearVariance], draws: int) -> VarianceQuality:
    """The quality of both estimates together, with the cheapest size of groups that is about as good as others.

    Where the nearest observations hardly change the error, draws alone are used.
    """
    errors = {size: combined_errors(one, draws) for size, one in found.items()}
    means = {size: float(error.square().mean().sqrt()) for size, error in errors.items()}
    size = next(size for size, mean in means.items() if mean <= ABOUT_AS_GOOD * min(means.values()))
    error, alone = most_cells(errors[size]), math.sqrt(0.5 / draws)
    if error > LITTLE_BETTER * alone:
        return VarianceQuality(alone, 0, 0, True, draws)
    return VarianceQuality(error, *size, True, draws)


@dataclass(frozen=True, eq=False)
class DrawnData:
    """Drawn observations z ~ N(0, A) and their best predictions at some cells.

    latent: c^T A^-1 z, (N', s)
    observed: z, (n, s)
    """

    latent: Tensor
    observed: Tensor

    @classmethod
    @torch.no_grad()
    def of(cls, posterior: Any, coords: Sequence[Tensor], weights: Tensor) -> "DrawnData":
        """At all cells of the product of `coords`, from A^-1 z (n, s), for a `Posterior`."""
        latent, grid = posterior.cross(coords, weights), posterior.data.grid
        if any(points is not known for points, known in zip(coords, grid.coords, strict=True)):
            return cls(latent, posterior.system.operator @ weights)
        # A = P K P^T + D, and K P^T A^-1 z is already there.
        noise = posterior.system.operator.noise_diagonal()
        return cls(latent, torch.addcmul(grid.gather(latent), noise[:, None], weights))

    def at(self, cells: Tensor) -> "DrawnData":
        """At some of the cells, (N'',)."""
        return DrawnData(self.latent[cells], self.observed)


@torch.no_grad()
def near_variance(predictors: Iterable[NearPredictors], data: DrawnData) -> NearVariance:
    """Variances of f at the cells of `data` from predictors of groups of them, and from draws."""
    near, farther = (data.latent.new_zeros(len(data.latent), dtype=torch.float64) for _ in range(2))
    for some in predictors:
        difference = some.differences(data.latent, data.observed)
        near[some.cells.flatten()] = some.errors.flatten()
        farther[some.cells.flatten()] = difference.double().square().mean(dim=-1).flatten()
    return NearVariance(near, farther, data.latent.shape[1])


def all_in_groups(posterior: Any, coords: Sequence[Tensor], cells: Tensor, size: int) -> Groups:
    """Groups of `size` neighbouring cells, or little fewer, that hold all of some cells (N',)."""
    return full_groups(np.concatenate(places_of(posterior, targets_at(coords, cells)), axis=1), size)


def full_groups(places: NDArray[np.float64], size: int) -> Groups:
    """Groups (g, b) of neighbours among places (N', e), b little less than `size`: halving alone may leave half of it.

    The places are first divided into 4 to 8 parts along their widest direction, which are halved.
    """
    count = -(-len(places) // size)
    parts = -(-count // 2 ** max(0, int(math.log2(count)) - 2))
    order = places[:, np.ptp(places, axis=0).argmax()].argsort(kind="stable")
    width = -(-len(places) // parts)
    # Equally many in each: the last are repeated.
    members = order[np.minimum(np.arange(parts * width), len(places) - 1)].reshape(parts, width)
    return np.concatenate([part[compact_groups(places[part], size)] for part in members])


def some_groups(posterior: Any, count: int, size: int) -> Tensor:
    """The indices of `size` neighbouring cells of the fitted grid around each of `count` random cells, (c, b)."""
    grid, known = posterior.data.grid, posterior.places
    generator = torch.Generator().manual_seed(posterior.seed)
    found = []
    for centre in torch.randint(grid.num_cells, (min(count, grid.num_cells),), generator=generator):
        cells, apart = np.zeros(1, dtype=np.int64), np.zeros(1)
        for own, n, axis in zip(known, grid.shape, torch.unravel_index(centre, grid.shape), strict=True):
            squares = np.square(own.places - own.places[int(axis)]).sum(axis=1)
            few = np.argsort(squares, kind="stable")[:size]
            cells = (cells[:, None] * n + few).ravel()
            apart = (apart[:, None] + squares[few]).ravel()
            nearest = np.argsort(apart, kind="stable")[:size]
            cells, apart = cells[nearest], apart[nearest]
        found.append(torch.from_numpy(cells))
    return torch.stack(found).to(grid.index.device)
