"""What inference would cost: multiplications and memory, from shapes, gaps and ranks, before anything large is
computed.

Multiplications are counted in float64; those in float32 take half the time and count half. One likelihood with its
gradient is what a fit pays again and again; one posterior with its samples is what comes after. The constants that
stand for times are measured by `scripts/calibrate_costs.py`.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod

import torch
from torch import Tensor

from lkgp.data.grid import PartialGrid
from lkgp.data.readers import Observations
from lkgp.inference.spectrum_estimate import FactorSpectrum
from lkgp.linalg.eigenbasis import largest_tails
from lkgp.linalg.factors.toeplitz import TOEPLITZ_PAYS, ToeplitzFactor
from lkgp.model import LatentKroneckerGP
from lkgp.settings import Settings

# Passes over float64 arrays that the checks of a solve take, each of two transforms. Counted: 5.5 in a fit and 7.5 for
# samples in weight space, 2 and 3 in observation space.
CHECKS = 4
# Fibres' shares of observed cells may vary by so many times what chance would make of them.
BY_CHANCE = 3.0
# Arrays of the size of the grid, in float64, that a solve holds at once for every right-hand side. Measured: 12 in
# observation space, 6 to 7 in weight space.
SOLVE_ARRAYS = 12
# Bytes of them in a posterior, where the caller sets no limit: its right-hand sides are solved for some at a time.
COLUMN_BYTES = 2e9
# Right-hand sides that the cost of an evaluation is stated for, beside that of the data.
FIT_COLUMNS = 8


@dataclass(frozen=True)
class Cost(Settings):
    """multiplications: of one evaluation; memory: bytes at its peak."""

    multiplications: float
    memory: float

    def __str__(self) -> str:
        return f"about {self.multiplications / 1e9:.3g} billion multiplications and {self.memory / 1e9:.2g} GB"


class PlanningProblem:
    """A model and its data, as far as a plan needs to know them; no factor of more than a few thousand points is
    formed.

    fitting: whether the cost of one likelihood with its gradient is asked for, or that of the posterior
    """

    def __init__(
        self, model: LatentKroneckerGP, data: Observations, *, max_memory: float | None = None, fitting: bool = False
    ) -> None:
        self.model, self.data, self.max_memory, self.fitting = model, data, max_memory, fitting

    @property
    def grid(self) -> PartialGrid:
        return self.data.grid

    @cached_property
    def least_noise(self) -> float:
        with torch.no_grad():
            return float(self.model.noise_diagonal(self.data).min())

    @cached_property
    def structures(self) -> tuple[str, ...]:
        return self.model.structures(self.grid)

    @cached_property
    def _spectra(self) -> list[FactorSpectrum]:
        term = self.model.terms[0]
        return [FactorSpectrum(term, k, x) for k, x in enumerate(self.grid.coords)]

    def ranks(self, tolerance: float) -> list["FactorRanks"]:
        """The spectrum of every factor, less what may be left out for the log-likelihood to change by `tolerance` at
        most.
        """
        traces, row_sums = zip(*((s.trace, s.largest_row_sum) for s in self._spectra), strict=True)
        most = largest_tails(traces, row_sums, self.least_noise, self.grid.num_observed, tolerance)
        return [FactorRanks(s.points, *s.kept(*both)) for s, both in zip(self._spectra, most, strict=True)]

    def columns(self, num_samples: int) -> int:
        """Right-hand sides that a method with so many samples is solved for."""
        return 1 + (FIT_COLUMNS if self.fitting else num_samples)

    @property
    def product(self) -> float:
        """Multiplications of one product with A on the grid, for one column."""
        sizes = zip(self.grid.shape, self.structures, strict=False)
        return float(self.grid.num_cells * sum(_per_cell(points, kind) for points, kind in sizes))

    @property
    def factor_numbers(self) -> float:
        """Numbers that the factors take, in the form that products use."""
        sizes = zip(self.grid.shape, self.structures, strict=False)
        return float(sum(points if kind == ToeplitzFactor.kind else points**2 for points, kind in sizes))

    def column_memory(self, columns: int) -> float:
        """Bytes of solves for `columns` right-hand sides, some at a time, and of their results."""
        cells = self.grid.num_cells
        at_once = columns if self.fitting else columns_at_once(cells, self.max_memory)
        return 8.0 * SOLVE_ARRAYS * cells * min(columns, at_once) + 8.0 * 2 * self.grid.num_observed * columns


def _per_cell(points: int, kind: str) -> float:
    """Multiplications of a product with one factor, per cell; a Fourier transform costs as much as TOEPLITZ_PAYS of
    them there.
    """
    return points if kind != ToeplitzFactor.kind else TOEPLITZ_PAYS * math.log(points) / math.log(TOEPLITZ_PAYS)


@dataclass(frozen=True, eq=False)
class FactorRanks:
    """The spectrum of one factor, about.

    values: descending, (r,): eigenvalues, or for long factors the pivots of a Cholesky factorisation, which follow them
    decomposition: multiplications of finding its eigenpairs
    """

    points: int
    values: Tensor
    decomposition: float

    @property
    def rank(self) -> int:
        return len(self.values)


def missing_at_random(grid: PartialGrid) -> bool:
    """Whether the numbers of observed cells in the fibres vary no more than chance would have it."""
    share = grid.num_observed / grid.num_cells
    if share == 1:
        return True
    for k, n in enumerate(grid.shape):
        others = [j for j in range(len(grid.shape)) if j != k]
        if not others or n < 3:
            continue
        counts = grid.observed.sum(dim=others).double()
        if float(counts.var()) > BY_CHANCE * share * (1 - share) * grid.num_cells / n:
            return False
    return True


def product_spectrum(ranks: Sequence[FactorRanks], most: int | None = None) -> Tensor:
    """The eigenvalues of the product of the factors, descending, of each factor `most` at most."""
    values = torch.ones(1, dtype=torch.float64)
    for factor in ranks:
        values = (values[:, None] * factor.values[:most]).flatten()
    return values.sort(descending=True).values


def columns_at_once(cells: int, max_memory: float | None) -> int:
    """How many right-hand sides of a posterior are solved for at a time, or functions evaluated, on a grid of so
    many cells.
    """
    budget = COLUMN_BYTES if max_memory is None else max_memory / 4
    return max(1, int(budget / (SOLVE_ARRAYS * 8 * cells)))


def break_even(shape: Sequence[int]) -> float:
    """The share of missing cells beyond which a dense product is cheaper than one with the grid: 1 - sqrt(sum_k n_k
    / N).
    """
    return 1 - math.sqrt(sum(shape) / prod(shape))
