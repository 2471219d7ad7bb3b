"""Estimate how many eigenvalues of a factor matter, from the whole factor or, if it is long, from some points."""

import math

import numpy as np
import torch
from torch import Tensor

from lkgp.linalg.eigenbasis import PIVOTED_PAYS, RANK_OF_REST
from lkgp.linalg.roots import pivoted_root
from lkgp.model import Term

# Cost of a symmetric eigendecomposition divided by n^3: the number of multiplications that a matrix product performs in
# the same time.
EIGH = 5.0
# A factor with more points than this is not formed for a plan: the matrix would take 0.3 GB and a few seconds.
MOST_PLANNED_POINTS = 6000
# The spectrum of such a factor is estimated from this many of its points instead: more would be slower but more
# accurate.
SOME_POINTS = 1000


class FactorSpectrum:
    """The spectrum of factor k of a term over the points `coords` (n_k, d_k).

    For a long factor, only some evenly spaced points are used. Their eigenvalues, times n_k over their number, are
    about those of the whole factor if the points are dense compared with the length scale of the kernel. If they are
    not, so that their matrix has nearly full rank, a run of neighbouring points represents all runs of the same length.
    """

    def __init__(self, term: Term, k: int, coords: Tensor) -> None:
        self.points = len(coords)
        self.spread = self.repeated = 1.0
        if self.points <= MOST_PLANNED_POINTS:
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

    def kept(self, largest_tail: float, largest_value: float = math.inf) -> tuple[Tensor, float]:
        """The eigenvalues that `FactorBasis.of` would keep, descending, (r,), and the cost of the eigenpairs."""
        if self.neighbours is None:
            values, low = kept_spectrum(self.matrix, largest_tail, largest_value)
            decomposition = self.points * len(values) ** 2 * 3 if low else EIGH * self.points**3
            return values, decomposition
        values, _ = kept_spectrum(self.matrix, largest_tail / self.spread, largest_value / self.spread)
        values = values * self.spread
        if len(values) > SOME_POINTS // 2:
            one_run, _ = kept_spectrum(self.neighbours, largest_tail / self.spread, largest_value)
            values = one_run.repeat_interleave(math.ceil(self.spread))
        return values, 3.0 * self.points * len(values) ** 2


def kept_spectrum(matrix: Tensor, largest_tail: float, largest_value: float) -> tuple[Tensor, bool]:
    """The eigenvalues of a matrix (n, n) that matter, descending; and whether pivoting finds the rank to be low."""
    n = len(matrix)
    if n >= PIVOTED_PAYS:
        most = min(largest_tail, RANK_OF_REST * largest_value) / 2
        values = np.square(pivoted_root(matrix, most / n)[0]).sum(axis=0)
        low = len(values) <= n // 2
    else:
        values = torch.linalg.eigvalsh(matrix).clamp(min=0).cpu().numpy()
        low = False
    descending = torch.from_numpy(np.sort(values)[::-1].copy())
    left = descending.flip(0).cumsum(0).flip(0)
    stands_out = descending > n * torch.finfo(torch.float64).eps * descending[0]
    keep = ((left > largest_tail) | (descending > largest_value)) & stands_out
    keep[0] = True
    return descending[keep], low
