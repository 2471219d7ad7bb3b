"""Nearest neighbours by Euclidean distance: of any points, of each point among those before it, and in groups."""

import math

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.spatial import cKDTree
from scipy.spatial.distance import cdist

# The first points are compared with one another directly; beyond them, trees pay.
FIRST = 256
# Each tree holds this many times as many points as the one before it, so that most neighbours of its new points come
# before them.
GROWTH = 1.5
# Candidates are taken from a tree in blocks of this many numbers (64 MB).
BLOCK_ENTRIES = 2**23
# No neighbour: the first points have fewer.
NONE = -1


def nearest(targets: NDArray[np.floating], points: NDArray[np.floating], count: int) -> NDArray[np.int64]:
    """The indices (a, count) of the points (b, e) nearest to each of the targets (a, e), nearest first.

    With fewer than `count` points, the last columns are -1.
    """
    return _query(cKDTree(points), targets, min(count, len(points)), count)


def nearest_earlier(points: NDArray[np.floating], count: int) -> NDArray[np.int64]:
    """For each row i, the indices of the points before it, j < i, that are nearest to point i, (b, count).

    Nearest first; where fewer than `count` points come before, the last columns are -1. Exact for any order, fast for
    random ones.

    points: (b, e)
    """
    total = len(points)
    found = np.full((total, count), NONE, dtype=np.int64)
    size = min(total, max(FIRST, 2 * count))
    distances = cdist(points[:size], points[:size])
    distances[np.triu_indices(size)] = np.inf
    width = min(count, size)
    closest = np.argsort(distances, axis=1, kind="stable")[:, :width]
    found[:size, :width] = np.where(np.isfinite(np.take_along_axis(distances, closest, axis=1)), closest, NONE)
    while size < total:
        grown = min(total, max(size + 1, int(GROWTH * size)))
        _fill_block(found, points[:grown], size)
        size = grown
    return found


def _fill_block(found: NDArray[np.int64], points: NDArray[np.floating], start: int) -> None:
    """Fill the rows of `found` (b, count) from `start` on, for the first points (stop, e), from one tree over them."""
    stop, count = len(points), found.shape[1]
    tree = cKDTree(points)
    # Queries in the order of the leaves of the tree find what they read in the cache.
    left = tree.indices[tree.indices >= start]
    # Of the nearest points, a share of at least start / stop comes earlier; three standard deviations more than needed.
    # The point itself is among them.
    share = start / stop
    most = min(stop, 1 + int((count + 3 * np.sqrt(count * (1 - share))) / share))
    while len(left):
        missed = []
        rows = max(1, BLOCK_ENTRIES // most)
        for block in np.split(left, range(rows, len(left), rows)):
            candidates = _query(tree, points[block], most, most)
            earlier = candidates < block[:, None]
            # the first `count` earlier candidates of each row, in their order
            rank = np.cumsum(earlier, axis=1)
            chosen = earlier & (rank <= count)
            row, column = np.nonzero(chosen)
            found[block[row], rank[row, column] - 1] = candidates[row, column]
            missed.append(block[rank[:, -1] < np.minimum(count, block)])
        left = np.concatenate(missed)
        most = min(stop, 2 * most)


def _query(tree: cKDTree, targets: NDArray[np.floating], most: int, width: int) -> NDArray[np.int64]:
    """The `most` points of a tree nearest to each target, (a, width), filled up with -1."""
    ranks = np.arange(1, most + 1)
    _, closest = tree.query(targets, k=ranks, workers=torch.get_num_threads())
    if most == width:
        return np.asarray(closest, dtype=np.int64)
    found = np.full((len(targets), width), NONE, dtype=np.int64)
    found[:, :most] = closest
    return found


def compact_groups(places: NDArray[np.floating], size: int) -> NDArray[np.int64]:
    """Divide points (a, e) into groups of neighbours, (g, size or less), by halving along the widest direction.

    All groups are equally large; some points are in two groups if `a` is not divisible.
    """
    levels = max(0, math.ceil(math.log2(max(1, len(places)) / size)))
    width = -(-len(places) // 2**levels)
    # Each group has as many points as the others: the last points are repeated.
    members = np.minimum(np.arange(width * 2**levels), len(places) - 1).reshape(1, -1)
    for _ in range(levels):
        here = places[members]
        widest = np.ptp(here, axis=1).argmax(axis=1)
        order = np.take_along_axis(here, widest[:, None, None], axis=2)[:, :, 0].argsort(axis=1)
        members = np.take_along_axis(members, order, axis=1).reshape(2 * len(members), -1)
    return members
