"""The observations from which a group of neighbouring cells is predicted.

The most correlated ones alone are not enough where the gap is a line of the grid: for a station that failed for a week,
they are those of other stations at the same hours. How that station differs from the others is known from the two ends
of its gap, but only together with the others at these times. So the observations of a group are completed to a product:

    S_1 x S_2 x ...,    S_k = the points of factor k at which the nearest observations differ from the cells in k only

And the nearest ones may all lie on one side of a large gap. So some are the nearest of a thinned set of observations.
"""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.spatial import cKDTree

from lkgp.data.grid import PartialGrid

# The nearest observations of every single cell that its group has in any case.
OWN = 16
# The shares of the observations of a group that are on the lines through its cells and at their crossings, and that are
# the nearest ones among one in THINNING observations, chosen at random: they see a gap from all sides. What they
# are worth is shown by scripts/error_bars.py, with and without --plain.
CROSSED, THINNED, THINNING = 0.5, 0.3, 8
# Along all other factors, distances count this many times as much when neighbours along one factor are looked for.
STRETCH = 30.0
# The neighbours along one factor of every single cell of a group.
ALONG = 4
# No observation.
NONE = -1

Array = NDArray[np.float64]
Indices = NDArray[np.int64]


class NearObservations:
    """Finds observations near groups of cells.

    grid: with n observations
    places: of the observations, one array (n, e_k) per factor, in which squared distances follow correlations
    """

    def __init__(self, grid: PartialGrid, places: Sequence[Array]) -> None:
        self.grid = grid
        self.tree = cKDTree(np.concatenate(places, axis=1))
        self.index, self.axes = grid.index.cpu().numpy(), [axis.cpu().numpy() for axis in grid.axis_index]
        some = np.random.default_rng(0).uniform(size=grid.num_observed) < 1 / THINNING
        self.some = np.flatnonzero(some)
        self.sparse = cKDTree(self.tree.data[self.some]) if len(self.some) else None
        several = [k for k, n in enumerate(grid.shape) if n > 1]
        self.lines = {k: cKDTree(self._stretched(places, k)) for k in several} if len(several) > 1 else {}

    def _stretched(self, places: Sequence[Array], k: int) -> Array:
        """Places (..., e) in a space where the nearest ones differ in factor k only, as far as there are any."""
        return np.concatenate([x if j == k else STRETCH * x for j, x in enumerate(places)], axis=-1)

    def to_groups(self, places: Sequence[Array], count: int) -> Indices:
        """The observations for groups of cells, (g, count), for places (g, b, e_k) along every factor.

        The few nearest ones of every cell come first, then crossings and thinned ones, then those near the centre.
        """
        joined, own = np.concatenate(places, axis=2), min(count, OWN)
        groups, width = joined.shape[:2]
        around = query(self.tree, joined, own).reshape(groups, -1)
        centre = query(self.tree, joined.mean(axis=1), count)
        crossed = self._crossed(places, int(CROSSED * count))
        thinned = self._thinned(joined.mean(axis=1), int(THINNED * count))
        ranks = [
            np.tile(np.arange(own), width),
            np.full(crossed.shape[1] + thinned.shape[1], own),
            own + 1 + np.arange(count),
        ]
        found = np.concatenate([around, crossed, thinned, centre], axis=1)
        return lowest_ranks(found, np.concatenate(ranks), count)

    def _thinned(self, places: Array, count: int) -> Indices:
        """The nearest ones among one in THINNING observations, (g, at most `count`)."""
        if self.sparse is None or count == 0:
            return np.zeros((len(places), 0), dtype=np.int64)
        return self.some[query(self.sparse, places, min(count, len(self.some)))]

    def _crossed(self, places: Sequence[Array], most: int) -> Indices:
        """The observations on the lines through some cells and at the crossings of these lines, (g, c).

        About `most`; NONE where there is none.
        """
        groups = len(places[0])
        if not self.lines or most < 2 ** len(self.lines):
            return np.zeros((groups, 0), dtype=np.int64)
        size = int(most ** (1 / len(self.lines)))
        found, cells = [], np.zeros((groups, 1), dtype=np.int64)
        for k, n in enumerate(self.grid.shape):
            points = np.zeros((groups, 1), dtype=np.int64)
            if k in self.lines:
                line = self._line(places, k, size)
                found.append(line)
                along = np.where(line == NONE, NONE, self.axes[k][line])
                points = lowest_ranks(along, np.arange(line.shape[1]), min(size, n))
            # row-major indices of cells; none if a point is missing
            joined = cells[:, :, None] * n + points[:, None, :]
            missing = (cells[:, :, None] < 0) | (points[:, None, :] < 0)
            cells = np.where(missing, NONE, joined).reshape(groups, -1)
        place = np.minimum(np.searchsorted(self.index, cells), len(self.index) - 1)
        return np.concatenate([*found, np.where(self.index[place] == cells, place, NONE)], axis=1)

    def _line(self, places: Sequence[Array], k: int, size: int) -> Indices:
        """The observations that differ from some cells in factor k only, nearest first, (g, size)."""
        cells = self._stretched(places, k)
        groups, width = cells.shape[:2]
        each = min(ALONG, size, len(self.index))
        around = query(self.lines[k], cells, each).reshape(groups, -1)
        centre = query(self.lines[k], cells.mean(axis=1), min(size, len(self.index)))
        ranks = np.concatenate([np.tile(np.arange(each), width), np.arange(centre.shape[1])])
        return lowest_ranks(np.concatenate([around, centre], axis=1), ranks, size)


def lowest_ranks(found: Indices, ranks: Indices, count: int) -> Indices:
    """The different indices among `found` (g, c) with the lowest ranks (c,), (g, count); NONE where there are fewer."""
    worst = int(ranks.max()) + 1
    rank = np.where(found == NONE, worst, ranks)
    # Sort by index and rank; the first of each index counts.
    order = np.argsort(found * (worst + 1) + rank, axis=1)
    found, rank = np.take_along_axis(found, order, axis=1), np.take_along_axis(rank, order, axis=1)
    rank[:, 1:][found[:, 1:] == found[:, :-1]] = worst
    best = np.argsort(rank, axis=1, kind="stable")[:, :count]
    kept = np.take_along_axis(rank, best, axis=1) < worst
    return np.where(kept, np.take_along_axis(found, best, axis=1), NONE)


def query(tree: cKDTree, places: Array, count: int) -> Indices:
    """The points of a tree nearest to places (..., e), (..., count)."""
    _, found = tree.query(places, k=np.arange(1, count + 1), workers=torch.get_num_threads())
    return np.asarray(found, dtype=np.int64)
