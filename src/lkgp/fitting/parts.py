"""Small parts of the data that together hold near and far pairs: blocks of neighbouring points, thinned more and more.

A block of points around a centre takes one of every t of its nearest neighbours. With t = 1 it knows what happens
between neighbours; with the largest t it spans all the points.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from lkgp.data.grid import PartialGrid
from lkgp.data.readers import Observations
from lkgp.data.subsets import without_empty_points

# How many observations a part has, at most; with fewer data, a series of parts holds about every observation once. The
# equations of a part are solved densely: on one core, 12 parts of 300 take a tenth of a second with their gradient.
PART_OBSERVATIONS = 300
# How many series of parts there are, at most, each with every thinning once: with a single factor; and with several,
# for each of them, after a first one for all.
MOST_SERIES, SERIES_PER_FACTOR = 3, 2
# Data with at most this many observations are a single part.
WHOLE = 400
# The number of different thinnings t, from 1 to that at which a part spans all points.
LEVELS = 4
# The number of points of a part along all factors but one, in series that look at one factor; it is also the lowest
# number of points along a factor in the other parts.
FEWEST_POINTS = 4
# A part with fewer observations than this tells little; another centre is tried, at most this many times.
FEWEST_OBSERVATIONS, ATTEMPTS = 40, 5


@dataclass(frozen=True, eq=False)
class Parts:
    """Small parts of some observations.

    parts: each with its own small grid
    observations: how many different observations they hold together
    thinnings: one of how many neighbouring points the parts take along each factor, one ascending tuple per factor
    """

    parts: list[Observations]
    observations: int
    thinnings: tuple[tuple[int, ...], ...]

    @property
    def whole(self) -> bool:
        """Whether the only part is all of the data."""
        return len(self.parts) == 1 and all(levels == (1,) for levels in self.thinnings)


def part_sizes(observed: int, width: int) -> tuple[int, int]:
    """The largest number of observations in a part, and the number of parts.

    observed: the number of all observations
    width: the number of factors
    """
    if observed <= WHOLE:
        return observed, 1
    most = min(PART_OBSERVATIONS, math.ceil(observed / LEVELS))
    series = MOST_SERIES if width == 1 else 1 + SERIES_PER_FACTOR * width
    return most, LEVELS * min(series, math.ceil(observed / (LEVELS * most)))


def make_parts(data: Observations, seed: int) -> Parts:
    """Parts around random observations, at several thinnings of every factor; all data if they are few.

    With several factors the thinnings are combined at random, but the first part always has neighbours along all. The
    first series of parts has about equally many points along all factors; each further one has many along one of them.
    """
    data = without_empty_points(data)
    grid, width = data.grid, len(data.grid.shape)
    most, count = part_sizes(grid.num_observed, width)
    if count == 1:
        return Parts([data], grid.num_observed, ((1,),) * width)
    generator = torch.Generator().manual_seed(seed)
    turns = []
    for number in range(count // LEVELS):
        sizes = points_per_factor(grid, most, None if number == 0 or width == 1 else (number - 1) % width)
        levels = [thinnings(n, size) for n, size in zip(grid.shape, sizes, strict=True)]
        orders = [torch.randperm(LEVELS, generator=generator) for _ in range(width)]
        if number == 0:
            orders = [torch.cat([torch.zeros(1, dtype=torch.long), order[order > 0]]) for order in orders]
        turns += [(sizes, [levels[k][int(order[i])] for k, order in enumerate(orders)]) for i in range(LEVELS)]
    parts, used = [], torch.zeros(grid.num_observed, dtype=torch.bool)
    for sizes, thinning in turns:
        best = torch.zeros(0, dtype=torch.long)
        for _ in range(ATTEMPTS):
            centre = int(torch.randint(grid.num_observed, (1,), generator=generator))
            chosen = [
                neighbours(x.cpu(), int(grid.axis_index[k][centre]), sizes[k], thinning[k], generator)
                for k, x in enumerate(grid.coords)
            ]
            found = observations_at(grid, chosen, most, generator)
            best = found if len(found) > len(best) else best
            if len(best) >= FEWEST_OBSERVATIONS:
                break
        parts.append(pick(data, best))
        used[best] = True
    used_thinnings = tuple(tuple(sorted({thinning[k] for _, thinning in turns})) for k in range(width))
    return Parts(parts, int(used.sum()), used_thinnings)


def points_per_factor(grid: PartialGrid, most: int, favoured: int | None) -> list[int]:
    """How many points of each factor a part has, so that it has about as many observations as it may.

    All factors have the same number, or all their points if these are fewer.

    most: the number of observations that it may have
    favoured: a factor that has as many points as possible, while the others have few
    """
    cells = most * grid.num_cells / grid.num_observed
    sizes: dict[int, int] = {}
    # The favoured factor last, otherwise the shortest first: the fewer points it has, the more the others have.
    for place, k in enumerate(sorted(range(len(grid.shape)), key=lambda k: (k == favoured, grid.shape[k]))):
        left = len(grid.shape) - place
        share = math.ceil(max(cells, 1.0) ** (1 / left))
        few = favoured is not None and k != favoured
        sizes[k] = min(grid.shape[k], FEWEST_POINTS if few else max(share, FEWEST_POINTS))
        cells /= sizes[k]
    return [sizes[k] for k in range(len(grid.shape))]


def thinnings(points: int, size: int) -> list[int]:
    """LEVELS numbers from 1 to `points` / `size`, evenly spaced in their logarithms."""
    return [int((points / size) ** (level / (LEVELS - 1))) for level in range(LEVELS)]


def neighbours(coords: Tensor, centre: int, size: int, thinning: int, generator: torch.Generator) -> Tensor:
    """A random choice of `size` of the `size` x `thinning` points nearest to a centre, ascending, (size,).

    coords: (n, d)
    centre: the position of the centre, which is always chosen
    """
    distance = (coords - coords[centre]).double().square().sum(dim=1)
    near = torch.topk(distance, min(len(coords), size * thinning), largest=False).indices
    near = near[near != centre]
    drawn = near[torch.randperm(len(near), generator=generator)[: size - 1]]
    return torch.cat([drawn, torch.tensor([centre])]).sort().values


def observations_at(grid: PartialGrid, chosen: Sequence[Tensor], most: int, generator: torch.Generator) -> Tensor:
    """The observations at the chosen points of all factors, as positions among all of them, ascending.

    If they are more than `most`, a random choice.
    """
    inside = torch.ones(grid.num_observed, dtype=torch.bool)
    for n, index, points in zip(grid.shape, grid.axis_index, chosen, strict=True):
        member = torch.zeros(n, dtype=torch.bool)
        member[points] = True
        inside &= member[index.cpu()]
    found = torch.nonzero(inside).flatten()
    if len(found) > most:
        found = found[torch.randperm(len(found), generator=generator)[:most]].sort().values
    return found


def pick(data: Observations, chosen: Tensor) -> Observations:
    """Some of the observations, by their positions in ascending order, on the smallest grid that has them."""
    chosen = chosen.to(data.values.device)
    coords, labels = [], []
    for x, index in zip(data.grid.coords, data.grid.axis_index, strict=True):
        points, label = torch.unique(index[chosen], return_inverse=True)
        coords.append(x[points])
        labels.append(label)
    observed = torch.zeros([len(x) for x in coords], dtype=torch.bool, device=data.values.device)
    observed[tuple(labels)] = True
    noise, scatter = (None if part is None else part[chosen] for part in (data.noise_variance, data.scatter))
    # Ascending positions stay ascending, because the points of every factor keep their order.
    return Observations(PartialGrid(tuple(coords), observed), data.values[chosen], data.counts[chosen], noise, scatter)
