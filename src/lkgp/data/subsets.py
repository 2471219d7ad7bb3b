"""Subsets of the data for the first stages of a fit: some of the points of the long factors."""

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from lkgp.data.grid import PartialGrid
from lkgp.data.readers import Observations

# The first fit uses about COARSE_OBSERVATIONS observations, and each later one GROWTH times as many. Larger subsets
# give better starting values; smaller ones are cheaper.
COARSE_OBSERVATIONS, GROWTH = 3000, 8
# Factors with at most this many points are kept whole: thinning them would save little and leave too few points.
SHORT_FACTOR = 64
# Points are taken in clusters of this many neighbours, so that short distances are represented as well as long ones.
CLUSTER = 4


def coarse_levels(data: Observations, seed: int) -> Iterator[Observations]:
    """Yield subsets of increasing size, as long as they are much smaller than the whole data."""
    size = COARSE_OBSERVATIONS
    while size * 2 <= data.grid.num_observed:
        subset = thin(data, size, seed)
        if subset is None or subset.grid.num_observed * 2 > data.grid.num_observed:
            return
        yield subset
        size *= GROWTH


def largest_part(observations: int) -> int:
    """The approximate number of observations in the largest of the `coarse_levels`; 0 if there is none."""
    size, largest = COARSE_OBSERVATIONS, 0
    while size * 2 <= observations:
        size, largest = size * GROWTH, size
    return largest


def thin(data: Observations, size: int, seed: int) -> Observations | None:
    """Keep about `size` observations, at some of the points of the long factors; None if no factor is long."""
    grid = data.grid
    seen = [points_with_values(grid, k) for k in range(len(grid.shape))]
    long = [k for k, points in enumerate(seen) if len(points) > SHORT_FACTOR]
    if not long:
        return None
    generator = torch.Generator().manual_seed(seed)
    fraction = size / grid.num_observed
    chosen = {}
    # Thin the shortest factor first: if it cannot be thinned enough, the longer ones are thinned more.
    for place, k in enumerate(sorted(long, key=lambda k: len(seen[k]))):
        share = fraction ** (1 / (len(long) - place))
        keep = min(len(seen[k]), max(SHORT_FACTOR // 2, math.ceil(share * len(seen[k]))))
        fraction *= len(seen[k]) / keep
        chosen[k] = seen[k][
            clustered(grid.coords[k][seen[k]].cpu(), mean_values(data, k)[seen[k]].cpu(), keep, generator).to(
                seen[k].device
            )
        ]
    return restrict(data, chosen)


def small_part(data: Observations, size: int, seed: int) -> Observations:
    """About `size` observations at some of the points of every factor; the data themselves if they are not more."""
    grid = data.grid
    if grid.num_observed <= size:
        return data
    seen = [points_with_values(grid, k) for k in range(len(grid.shape))]
    # Keep n_k^a points of factor k, so that long factors lose a larger share; prod n_k^a is the share of the cells.
    cells = math.prod(len(points) for points in seen)
    power = max(0.0, 1 + math.log(size / grid.num_observed) / math.log(cells))
    keep = [min(len(points), max(2, round(len(points) ** power))) for points in seen]
    generator = torch.Generator().manual_seed(seed)
    chosen = {
        k: points[
            clustered(grid.coords[k][points].cpu(), mean_values(data, k)[points].cpu(), keep[k], generator).to(
                points.device
            )
        ]
        for k, points in enumerate(seen)
        if keep[k] < len(points)
    }
    part = restrict(data, chosen)
    return data if part is None else without_empty_points(part)


def without_empty_points(data: Observations) -> Observations:
    """Drop the points without any observation: the likelihood does not depend on them."""
    seen = {k: points_with_values(data.grid, k) for k in range(len(data.grid.shape))}
    smaller = restrict(data, {k: points for k, points in seen.items() if len(points) < data.grid.shape[k]})
    assert smaller is not None
    return smaller


def restrict(data: Observations, chosen: dict[int, Tensor]) -> Observations | None:
    """Keep the observations at the `chosen` points of some factors, ascending; None if there are none."""
    grid = data.grid
    if not chosen:
        return data
    observed, coords = grid.observed, list(grid.coords)
    for k, points in chosen.items():
        observed, coords[k] = observed.index_select(k, points), grid.coords[k][points]
    if not bool(observed.any()):
        return None
    smaller = PartialGrid(tuple(coords), observed)

    # the cells of the part in the numbering of the whole grid, and their places among the observations
    cells = torch.zeros_like(smaller.index)
    for k, index in enumerate(smaller.axis_index):
        cells = cells * grid.shape[k] + (chosen[k][index] if k in chosen else index)
    kept = torch.searchsorted(grid.index, cells)
    noise, scatter = (None if part is None else part[kept] for part in (data.noise_variance, data.scatter))
    return Observations(smaller, data.values[kept], data.counts[kept], noise, scatter)


def points_with_values(grid: PartialGrid, axis: int) -> Tensor:
    """The points of one factor that have at least one observation, in ascending order."""
    return torch.nonzero(grid.counts[axis] > 0).flatten()


def mean_values(data: Observations, axis: int) -> Tensor:
    """The mean of the observations at every point of one factor, (n_k,)."""
    grid = data.grid
    total = data.values.new_zeros(grid.shape[axis]).index_add_(0, grid.axis_index[axis], data.values)
    return total / grid.counts[axis].clamp(min=1)


def clustered(coords: Tensor, values: Tensor, keep: int, generator: torch.Generator) -> Tensor:
    """Choose `keep` of the points (n, d), in ascending order: centres and their nearest neighbours.

    The points are sorted by their values (n,) and split into groups of equal size, and one centre is drawn from each
    group; the smallest and the largest value are always included.
    """
    scaled = coords.double() / coords.double().std(dim=0).clamp(min=1e-300)
    num = math.ceil(keep / CLUSTER)
    groups = torch.argsort(values).tensor_split(num)
    centres = [int(group[torch.randint(len(group), (1,), generator=generator)]) for group in groups]
    centres[0], centres[-1] = int(groups[0][0]), int(groups[-1][-1])
    taken = torch.zeros(len(coords), dtype=torch.bool)
    taken[centres] = True
    for centre in centres:
        left = keep - int(taken.sum())
        if left > 0:
            distance = (scaled - scaled[centre]).square().sum(dim=1).masked_fill(taken, torch.inf)
            taken[torch.topk(distance, min(CLUSTER - 1, left), largest=False).indices] = True
    return torch.nonzero(taken).flatten()
