"""The cells from which to predict a cell, found as neighbours in a space where distance follows correlation.

In each factor, columns of coordinates are scaled so that the squared distance r^2 is about -log(correlation), which
adds up over the factors of a product. That orders the cells only about as the correlation does (products of
exponential kernels, sums of kernels), so some more neighbours are looked for, and the best of them are kept. A cycle
brings the correlation back at multiples of its period: such an axis is wound up to a helix, with one turn per period.
Points whose coordinates say little about their correlation, such as categories, are placed by the correlations alone.
"""

import math
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import nnls
from torch import Tensor

from lkgp.linalg.kronecker import LatentKronecker, sum_of
from lkgp.linalg.neighbours import NONE, nearest, nearest_earlier

Array = NDArray[np.floating]

# Correlations are measured between so many points of a factor and their neighbours of these ranks, in a sample of its
# points.
MEASURED_POINTS, MOST_SAMPLED = 100, 10000
RANKS = [1, 2, 4, 8, 16, 32]
# They are neighbours in this many spaces, in each of which other columns count for more.
MEASURED_SPACES = 12
# -log(correlation) to one of these powers is proportional to squared distances, within this factor of its median.
POWERS, BAND = (0.5, 1.0, 1.5, 2.0, 3.0), 4.0
# Correlations beyond this value of -log(correlation) do not matter for the choice of neighbours.
UNCORRELATED = 3.0
# Distances order the points of a factor as correlations do if their rank correlation is at least SAME_ORDER; below
# POOR_ORDER, coordinates say little.
SAME_ORDER, POOR_ORDER = 0.9999, 0.8
# So few points may be placed by their matrix of correlations, in so many dimensions.
MOST_PLACED, PLACED_DIMENSIONS = 1000, 3
# Where distances order roughly as correlations, this many times as many neighbours are candidates.
CANDIDATES = 3
# A cycle counts if the correlation returns by this share of what it has lost.
RETURN = 0.2
# Its helix has the right distances where the correlation has dropped to this value.
DROPPED = 0.7
# Half of the neighbours are the most correlated cells. The others are to complete a product of points: with (s', t) and
# (s, t'), their crossing (s', t') tells how s and s' differ. They are those in the smallest box, by the largest loss of
# correlation along any factor, its corners first. Large fields over time then take several times fewer iterations than
# with the most correlated cells only, small ones about as many.
CORNERS_FIRST = 1e-3
# Candidates are compared in blocks of this many (8 MB of correlations).
BLOCK_ENTRIES = 2**20


@dataclass(frozen=True, eq=False)
class FactorPlaces:
    """The points of one factor in a space where the squared distance is about -log(correlation).

    places: (n_k, e_k)
    scale: the factors (d_k,) on the coordinates that give them; None if they are given otherwise
    turns: the helix on which they lie; None if there is no cycle
    ordered: whether distance orders the points as correlation does
    """

    places: Array
    scale: Array | None = None
    turns: "Helix | None" = None
    ordered: bool = False

    def of(self, coords: Array, known: Array) -> Array:
        """Other points `coords` (m, d_k), (m, e_k); `known` (n_k, d_k) are the coordinates of the factor."""
        if self.turns is not None:
            return self.turns.of(coords)
        return coords * self.scale if self.scale is not None else self.places[nearest(coords, known, 1)[:, 0]]


@dataclass(frozen=True)
class Helix:
    """A helix over a single column of coordinates.

    period: in the units of the coordinates; rise: over one of these units
    """

    period: float
    radius: float
    rise: float

    def of(self, coords: Array) -> Array:
        """The points (n, 3) for coordinates (n, 1)."""
        angle = 2 * np.pi * coords[:, 0] / self.period
        return np.stack([self.radius * np.cos(angle), self.radius * np.sin(angle), self.rise * coords[:, 0]], axis=1)


def factor_places(operator: LatentKronecker, k: int) -> FactorPlaces:
    """The places of the points of factor k of an operator."""
    coords = operator.grid.coords[k].detach().double().cpu().numpy()
    correlation = _AlongFactor(operator, k)
    n, columns = coords.shape
    if n == 1:
        return FactorPlaces(np.zeros((1, columns)), np.zeros(columns), ordered=True)
    spread = coords.std(axis=0)
    unit = np.where(spread > 0, 1 / np.where(spread > 0, spread, 1.0), 0.0)
    turns = _cycle(coords[:, 0], correlation) if columns == 1 else None
    if turns is not None:
        return FactorPlaces(turns.of(coords), turns=turns)
    scale, order = _scale(coords, unit, correlation)
    if order < POOR_ORDER and n <= MOST_PLACED:
        return FactorPlaces(_placed(correlation, n))
    return FactorPlaces(coords * scale, scale, ordered=order >= SAME_ORDER)


class _AlongFactor:
    """The correlation, in size, of cells that differ in factor k only."""

    def __init__(self, operator: LatentKronecker, k: int) -> None:
        first = torch.zeros(1, dtype=torch.long, device=operator.device)
        self.parts = []
        for term in operator.terms:
            others = [float(factor.entries(first, first)) for j, factor in enumerate(term) if j != k]
            self.parts.append((term[k], float(np.prod(others))))
        self.device = operator.device
        diagonal = sum_of(weight * factor.entries_diagonal().double() for factor, weight in self.parts)
        self.deviations = diagonal.clamp(min=torch.finfo(torch.float64).tiny).sqrt()

    def between(self, rows: Tensor, columns: Tensor) -> Tensor:
        """The correlations of points of the factor, for indices that broadcast against each other."""
        entries = sum_of(weight * factor.entries(rows, columns).double() for factor, weight in self.parts)
        return (entries.abs_() / self.deviations[rows] / self.deviations[columns]).clamp_(1e-300, 1.0)

    def __call__(self, rows: NDArray[np.int64], columns: NDArray[np.int64]) -> Array:
        index = [torch.from_numpy(np.ascontiguousarray(i)).to(self.device) for i in (rows, columns)]
        return np.asarray(self.between(*index).cpu().numpy())


def _scale(coords: Array, unit: Array, correlation: _AlongFactor) -> tuple[Array, float]:
    """Factors (d_k,) on the columns of coordinates (n_k, d_k), and how well distances then order the points.

    Where the columns differ by d, sum of (scale d)^2 is to be a function of the correlation. About the correlation of
    near neighbours, that function is -log(correlation) to some power: 1 for a squared exponential kernel, 2 for an
    exponential one.

    unit: factors (d_k,) that give the columns a standard deviation of 1
    """
    rows, others = _pairs(coords, unit)
    squares = np.square((coords[rows] - coords[others]) * unit)
    loss = np.maximum(-np.log(correlation(rows, others)), 1e-12)  # -log(correlation)
    level = float(np.clip(np.median(loss), 1e-3, UNCORRELATED / 2))
    relevant = loss < UNCORRELATED
    band = (loss > level / BAND) & (loss < level * BAND)
    best, order = np.zeros(coords.shape[1]), -1.0
    for power in POWERS if band.sum() > 2 else ():
        # with weights 1 / loss^power, all of these pairs count alike
        weights, _ = nnls(squares[band] / loss[band, None] ** power, np.ones(int(band.sum())))
        found = _same_order((squares @ weights)[relevant], loss[relevant]) if weights.any() else 0.0
        if found > order:
            best, order = weights * level ** (1 - power), found
    scale = unit * np.sqrt(best)
    # Where one scale for all columns orders the points no worse, the kernel is isotropic.
    one = np.full_like(scale, scale[scale > 0].mean() if scale.any() else 1.0)
    as_well = _same_order((squares @ np.square(one / np.where(unit > 0, unit, np.inf)))[relevant], loss[relevant])
    return (one, as_well) if as_well >= order else (scale, order)


def _same_order(first: Array, second: Array) -> float:
    """The rank correlation of two vectors; differences of 0.1 % count as none, because coordinates are rounded."""
    # ranks of the distinct values
    a, b = (np.unique(np.round(np.log(np.maximum(x, 1e-300)), 3), return_inverse=True)[1] for x in (first, second))
    if a.size == 0 or a.std() == 0 or b.std() == 0:
        return float(a.size > 0 and a.std() == b.std())
    return float(np.corrcoef(a, b)[0, 1])


def _pairs(coords: Array, unit: Array) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Pairs of points (n_k, d_k), near ones in all directions and far ones, as two vectors of indices."""
    rng = np.random.default_rng(0)
    columns = coords.shape[1]
    sample = rng.permutation(len(coords))[:MOST_SAMPLED]
    coords, n = coords[sample], len(sample)
    rows, others = [], []
    # Neighbours where one column or another counts for less differ in all directions, on lattices, too.
    for _ in range(MEASURED_SPACES if columns > 1 else 1):
        space = unit * (10.0 ** rng.uniform(-1, 1, columns) if columns > 1 else 1.0)
        some = rng.permutation(n)[:MEASURED_POINTS]
        near = nearest(coords[some] * space, coords * space, min(n, 1 + RANKS[-1]))
        near = near[:, [rank for rank in RANKS if rank < near.shape[1]]]
        other = np.concatenate([near, rng.integers(0, n, (len(some), 1))], axis=1)
        rows.append(np.repeat(some, other.shape[1]))
        others.append(other.ravel())
    first, second = np.concatenate(rows), np.concatenate(others)
    different = first != second
    return sample[first[different]], sample[second[different]]


def _cycle(coords: Array, correlation: _AlongFactor) -> Helix | None:
    """The helix for a column (n_k,) along which the correlation returns after a period; None if it does not."""
    order = np.argsort(coords)
    n = len(order)
    if n < 8:
        return None
    found = []
    for start in (order[0], order[n // 3]):
        ahead = order[coords[order] > coords[start]]
        lags, profile = coords[ahead] - coords[start], correlation(np.full(len(ahead), start), ahead)
        lowest = np.minimum.accumulate(profile)
        # The largest return relative to the lowest correlation before it; the earliest of about equal ones.
        risen = (profile - lowest) / np.maximum(1 - lowest, 1e-12)
        best = int(np.argmax(risen > 0.95 * risen.max()))
        if risen[best] < RETURN:
            return None
        top = best + int(np.argmax(profile[best : best + max(1, best // 4)]))
        found.append((lags[top], np.diff(lags[max(0, top - 1) : top + 2]).max()))
        # the first lag at which the correlation has dropped
        near = int(np.argmax((profile < DROPPED) | (profile == lowest[top])))
        loss = -np.log(profile[[near, top]])
    (first, step), (second, other) = found
    # A kernel of categories returns anywhere, a cycle after the same distance from everywhere.
    if abs(first - second) > 2 * max(step, other):
        return None
    period = float(first + second) / 2
    # A chord over the lag d is 2 radius sin(pi d / period); a whole turn is the rise only.
    chord = 2 * np.sin(np.pi * lags[near] / period)
    return Helix(period, float(np.sqrt(loss[0]) / chord), float(np.sqrt(loss[1])) / period)


def _placed(correlation: _AlongFactor, n: int) -> Array:
    """Places (n_k, e) from all correlations: with C = Q diag(e) Q^T, the leading columns of Q diag(e)^1/2.

    Squared distances are then 2 (1 - correlation), twice the wanted ones where correlations are large.
    """
    rows, columns = np.divmod(np.arange(n * n), n)
    matrix = correlation(rows, columns).reshape(n, n)
    values, vectors = np.linalg.eigh(matrix - matrix.mean(axis=0) - matrix.mean(axis=1)[:, None] + matrix.mean())
    kept = slice(-min(n, PLACED_DIMENSIONS), None)
    return vectors[:, kept] * np.sqrt(np.maximum(values[kept], 0) / 2)


def earlier_by_correlation(operator: LatentKronecker, order: Tensor, count: int) -> Tensor:
    """For each cell in a given order, those before it from which to predict it, by their correlations, (n, count).

    Entries are positions in that order, and -1 where fewer cells come before.

    order: the observed cells in their order, (n,)
    """
    factors = [factor_places(operator, k) for k in range(len(operator.grid.shape))]
    cells = [axis[order].cpu().numpy() for axis in operator.grid.axis_index]
    places = np.concatenate([f.places[i] for f, i in zip(factors, cells, strict=True)], axis=1)
    places = places[:, places.std(axis=0) > 0] if places.any() else places[:, :1]
    several = sum(len(f.places) > 1 for f in factors) > 1
    if not several and all(f.ordered for f in factors):
        return torch.from_numpy(nearest_earlier(places, count)).to(order.device)
    candidates = torch.from_numpy(nearest_earlier(places, CANDIDATES * count)).to(order.device)
    return _chosen(operator, order, candidates, count)


def _chosen(operator: LatentKronecker, order: Tensor, candidates: Tensor, count: int) -> Tensor:
    """The `count` neighbours among the candidates (n, c), each once; -1 is none."""
    along = [_AlongFactor(operator, k) for k, n in enumerate(operator.grid.shape) if n > 1]
    points = [axis[order] for axis, n in zip(operator.grid.axis_index, operator.grid.shape, strict=True) if n > 1]
    result, width = [], candidates.shape[1]
    for start in range(0, len(order), max(1, BLOCK_ENTRIES // width)):
        block = candidates[start : start + max(1, BLOCK_ENTRIES // width)].sort(dim=1).values
        repeated = torch.zeros_like(block, dtype=torch.bool)
        repeated[:, 1:] = block[:, 1:] == block[:, :-1]
        others = block.clamp(min=0)
        losses = torch.stack(
            [
                -correlation.between(axis[start : start + len(block), None], axis[others]).log()
                for correlation, axis in zip(along, points, strict=True)
            ]
        )
        none, total = repeated | (block < 0), losses.sum(dim=0)
        most_correlated = (
            total.masked_fill(none, math.inf).topk(min(-(-count // 2), width), dim=1, largest=False).indices
        )
        rank = (losses.amax(dim=0) - CORNERS_FIRST * total).scatter_(1, most_correlated, -math.inf)
        best = rank.masked_fill_(none, math.inf).topk(min(count, width), dim=1, largest=False)
        result.append(block.gather(1, best.indices).masked_fill(best.values == math.inf, NONE))
    return torch.cat(result)
