"""Estimate how many eigenvalues of a factor matter, from the whole factor or, if it is long, from some points."""

import math
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from lkgp.linalg.eigenbasis import PIVOTED_PAYS, RANK_OF_REST
from lkgp.linalg.roots import pivoted_root
from lkgp.model import Term

# Multiplications of a symmetric eigendecomposition, over n^3, by its time beside that of a matrix product: 4.5 to 8.8
# on one core, for 400 to 1500 points.
EIGH = 5.0
# A factor with more points than this is not formed for a plan: a matrix of so many points takes 0.16 GB, and its
# pivoted factorisation at full rank about three seconds on one core.
MOST_PLANNED_POINTS = 4500
# Along one column, neighbours are known and the estimate is better: for 1500 and 2500 hours with a daily cycle, it
# found 1354 and 2257 modes of a Matern-5/2 kernel, of which there were 1354 and 2256, and 642 and 1070 of a rational
# quadratic one, of which there were 632 and 1051.
MOST_PLANNED_IN_LINE = 1500
# The spectrum of such a factor is estimated from this many of its points instead: more would be slower but more
# accurate.
SOME_POINTS = 1000


class PivotedSpectrum:
    """A pivoted Cholesky factorisation of a matrix (n, n) down to rounding, of which looser ones are the first columns.

    norms: the squared norms of its columns, (r,), which follow the eigenvalues; pivots: the largest variance before
        each, (r,)
    """

    def __init__(self, matrix: Tensor) -> None:
        root, order = pivoted_root(matrix, 0.0)
        self.norms = np.square(root).sum(axis=0)
        self.pivots = np.square(root[order, np.arange(len(order))])

    def down_to(self, threshold: float) -> np.ndarray:
        """The squared norms of the columns that a factorisation takes until all variances are below `threshold`."""
        return self.norms[: max(1, int((self.pivots > threshold).sum()))]


class Eigenvalues:
    """All eigenvalues of a matrix (n, n), (n,)."""

    def __init__(self, matrix: Tensor) -> None:
        self.values = torch.linalg.eigvalsh(matrix).clamp(min=0).cpu().numpy()

    def down_to(self, threshold: float) -> np.ndarray:
        return self.values


def decomposed(matrix: Tensor) -> PivotedSpectrum | Eigenvalues:
    """The spectrum of a matrix (n, n), as `FactorBasis.of` would find it."""
    return PivotedSpectrum(matrix) if len(matrix) >= PIVOTED_PAYS else Eigenvalues(matrix)


class FactorSpectrum:
    """The spectrum of factor k of a term over the points `coords` (n_k, d_k).

    For a long factor, only some evenly spaced points are used. Their eigenvalues, times n_k over their number, are
    about those of the whole factor if the points are dense compared with the length scale of the kernel. If they are
    not, so that their matrix has nearly full rank, a run of neighbouring points represents all runs of the same length.
    """

    @torch.no_grad()
    def __init__(self, term: Term, k: int, coords: Tensor) -> None:
        self.points = len(coords)
        self.spread = 1.0
        if self.points <= (MOST_PLANNED_IN_LINE if coords.shape[1] == 1 else MOST_PLANNED_POINTS):
            self.matrix = term.cross_factor(k, coords, coords).double()
            self.neighbours = None
            return
        places = (
            torch.linspace(0, self.points - 1, SOME_POINTS, dtype=torch.float64, device=coords.device).round().long()
        )
        some, run = coords[places], coords[torch.argsort(coords[:, 0])][:SOME_POINTS]
        self.matrix = term.cross_factor(k, some, some).double()
        self.neighbours = term.cross_factor(k, run, run).double()
        self.spread = self.points / SOME_POINTS

    @property
    def trace(self) -> float:
        return float(self.matrix.diagonal().sum()) * self.spread

    @property
    def largest_row_sum(self) -> float:
        """An upper bound on the eigenvalues."""
        return float(self.matrix.abs().sum(dim=1).max()) * self.spread

    @cached_property
    def _decomposed(self) -> PivotedSpectrum | Eigenvalues:
        # once for all ways of inference, which truncate it differently
        return decomposed(self.matrix)

    @cached_property
    def _pivoted_run(self) -> PivotedSpectrum | None:
        return None if self.neighbours is None else PivotedSpectrum(self.neighbours)

    def kept(self, largest_tail: float, largest_value: float = math.inf) -> tuple[Tensor, float]:
        """The eigenvalues that `FactorBasis.of` would keep, descending, (r,), and the cost of the eigenpairs."""
        if self.neighbours is None:
            values, low = kept_spectrum(self.matrix, largest_tail, largest_value, self._decomposed)
            decomposition = self.points * len(values) ** 2 * 3 if low else EIGH * self.points**3
            return values, decomposition
        values, _ = kept_spectrum(
            self.matrix, largest_tail / self.spread, largest_value / self.spread, self._decomposed
        )
        values = values * self.spread
        if len(values) > SOME_POINTS // 2:
            one_run, _ = kept_spectrum(self.neighbours, largest_tail / self.spread, largest_value, self._pivoted_run)
            # as many runs as there are, the last one in part
            values = one_run[(torch.arange(int(len(one_run) * self.spread)) / self.spread).long()]
        return values, 3.0 * self.points * len(values) ** 2


def kept_spectrum(
    matrix: Tensor,
    largest_tail: float,
    largest_value: float,
    known: PivotedSpectrum | Eigenvalues | None = None,
) -> tuple[Tensor, bool]:
    """The eigenvalues of a matrix (n, n) that matter, descending, and whether a pivoted factorisation finds that they
    are few.

    known: its decomposition, where it was made before
    """
    n = len(matrix)
    most = min(largest_tail, RANK_OF_REST * largest_value) / 2
    values = (decomposed(matrix) if known is None else known).down_to(most / n)
    low = n >= PIVOTED_PAYS and len(values) <= n // 2
    descending = torch.from_numpy(np.sort(values)[::-1].copy())
    left = descending.flip(0).cumsum(0).flip(0)
    stands_out = descending > n * torch.finfo(torch.float64).eps * descending[0]
    keep = ((left > largest_tail) | (descending > largest_value)) & stands_out
    keep[0] = True
    return descending[keep], low
