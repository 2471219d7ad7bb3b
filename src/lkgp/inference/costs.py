"""Predict the cost of inference, in multiplications and memory, before anything large is computed.

The prediction uses shapes, gaps and ranks. The unit is a multiplication inside a large product of matrices in float64;
whatever else takes time is converted to it: those in float32 count half, those of a factorisation more than one, and a
pass over an array many for each of its numbers. Only so can ways of inference be compared that spend their time on
different things. A fit repeatedly pays for one likelihood with its gradient; afterwards it pays once for the posterior
with its samples. `scripts/calibrate_costs.py` measures the constants that represent times.
"""

import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any, TypeVar

import torch
from torch import Tensor

from lkgp.data.grid import PartialGrid
from lkgp.data.readers import Observations
from lkgp.inference.spectrum_estimate import FactorSpectrum
from lkgp.linalg.eigenbasis import largest_tails
from lkgp.linalg.factors import Factor
from lkgp.model import LatentKroneckerGP
from lkgp.settings import Settings

T = TypeVar("T")

# Passes over arrays of the size of the grid that a likelihood or a posterior takes for every right-hand side outside of
# its products (draws of normals, copies between orders of the axes, sums, gradients), in multiplications per cell: with
# few modes, 2950 and 3300 in likelihoods, 3080 and 1900 in posteriors, for 300 x 300 and 2000 x 2000 points, one core.
OUTSIDE = 2500.0
# Multiplications in float32 that take as long as reading one number from memory: 28 to 30 on one core, more on several,
# which share the memory.
READING = 30.0
# The time of a triangular solve with many columns over that of a product of as many multiplications: 1.2 to 1.4 in
# float64 and 1.5 to 1.9 in float32, for 1000 to 4000 unknowns on one core.
TRIANGULAR = 1.5
# Products in float64 that a solve takes for its checks: 2 in a fit and 3 for samples were counted.
OBSERVATION_CHECKS = 3.0
# Cells count as missing at random if the variance of the numbers of observed cells in the fibres is at most this many
# times the binomial variance.
BY_CHANCE = 3.0
# Arrays of the size of the grid, in float64, that a solve holds at once for every right-hand side. Measured: 12 in
# observation space, 6 to 7 in weight space.
SOLVE_ARRAYS = 12
# Limit in bytes on these arrays in a posterior if the caller sets none; it determines how many right-hand sides are
# solved for at a time.
COLUMN_BYTES = 2e9
# Number of right-hand sides, besides that of the data, for which the cost of a likelihood evaluation is stated.
FIT_COLUMNS = 8


@dataclass(frozen=True)
class Cost(Settings):
    """A predicted cost.

    multiplications: number of multiplications of one evaluation; memory: peak memory in bytes
    """

    multiplications: float
    memory: float

    def __str__(self) -> str:
        return f"about {self.multiplications / 1e9:.3g} billion multiplications and {self.memory / 1e9:.2g} GB"


class PlanningProblem:
    """What a plan needs to know about a model and its data; factors with many thousands of points are not formed.

    fitting: whether to plan one likelihood with its gradient, or the posterior
    requested: whether the caller asked for a method, which is then not left out because another one is better
    """

    def __init__(
        self,
        model: LatentKroneckerGP,
        data: Observations,
        *,
        max_memory: float | None = None,
        fitting: bool = False,
        requested: bool = False,
    ) -> None:
        self.model, self.data, self.max_memory = model, data, max_memory
        self.fitting, self.requested = fitting, requested
        self._found: dict[Hashable, Any] = {}

    @property
    def grid(self) -> PartialGrid:
        return self.data.grid

    @cached_property
    def least_noise(self) -> float:
        with torch.no_grad():
            return float(self.model.noise.least(self.data))

    @cached_property
    def structures(self) -> tuple[str, ...]:
        return self.model.structures(self.grid)

    @cached_property
    def _spectra(self) -> list[FactorSpectrum]:
        term = self.model.terms[0]
        return [FactorSpectrum(term, k, x) for k, x in enumerate(self.grid.coords)]

    def once(self, find: Callable[..., T], *arguments: Hashable) -> T:
        """What a function of the model, the data and some arguments finds, once for all ways of inference."""
        key = (find, *arguments)
        if key not in self._found:
            self._found[key] = find(self.model, self.data, *arguments)
        return self._found[key]

    def ranks(self, tolerance: float) -> list["FactorRanks"]:
        """The spectrum of each factor, truncated so that the log-likelihood changes by at most `tolerance`."""
        traces, row_sums = zip(*((s.trace, s.largest_row_sum) for s in self._spectra), strict=True)
        most = largest_tails(traces, row_sums, self.least_noise, self.grid.num_observed, tolerance)
        return [FactorRanks(s.points, *s.kept(*both)) for s, both in zip(self._spectra, most, strict=True)]

    def columns(self, num_samples: int) -> int:
        """Number of right-hand sides to solve for with a method that uses `num_samples` samples."""
        return 1 + (FIT_COLUMNS if self.fitting else num_samples)

    def system_columns(self, num_samples: int) -> int:
        """The right-hand sides that a system is prepared for: the curvature takes about as many as the probes."""
        return 2 * FIT_COLUMNS if self.fitting else num_samples

    @property
    def _sizes(self) -> list[tuple[int, str]]:
        """The number of points and the kind of every factor of the first term."""
        return list(zip(self.grid.shape, self.structures, strict=False))

    @property
    def product(self) -> float:
        """Multiplications of one product of A with one column, on the grid."""
        return self.grid.num_cells * sum(Factor.kinds[kind].product_cost(n) for n, kind in self._sizes)

    @property
    def factor_numbers(self) -> float:
        """How many numbers the factors store, in the form that products use."""
        return sum(Factor.kinds[kind].stored_numbers(n) for n, kind in self._sizes)

    def column_memory(self, columns: int) -> float:
        """Bytes for solving for `columns` right-hand sides, a few at a time, for the results, and for draws."""
        cells = self.grid.num_cells
        draws = 0 if self.fitting else len(self.model.terms) * cells * columns * self.data.values.element_size()
        at_once = columns if self.fitting else columns_at_once(cells, self.max_memory)
        return 8.0 * SOLVE_ARRAYS * cells * min(columns, at_once) + 8.0 * 2 * self.grid.num_observed * columns + draws


@dataclass(frozen=True, eq=False)
class FactorRanks:
    """The approximate spectrum of one factor.

    values: descending, (r,): the eigenvalues or, for long factors, approximations from a pivoted Cholesky factorisation
    decomposition: multiplications to compute the eigenpairs
    """

    points: int
    values: Tensor
    decomposition: float

    @property
    def rank(self) -> int:
        return len(self.values)


def missing_at_random(grid: PartialGrid) -> bool:
    """Whether the numbers of observed cells in the fibres vary no more than expected by chance."""
    share = grid.num_observed / grid.num_cells
    if share == 1:
        return True
    for k, n in enumerate(grid.shape):
        if len(grid.shape) == 1 or n < 3:
            continue
        if float(grid.counts[k].double().var()) > BY_CHANCE * share * (1 - share) * grid.num_cells / n:
            return False
    return True


def product_spectrum(ranks: Sequence[FactorRanks], most: int | None = None) -> Tensor:
    """The eigenvalues of the product of the factors, descending, from at most `most` of each factor."""
    values = torch.ones(1, dtype=torch.float64)
    for factor in ranks:
        values = (values[:, None] * factor.values[:most]).flatten()
    return values.sort(descending=True).values


def leading_products(ranks: Sequence[FactorRanks], count: int) -> Tensor:
    """The `count` largest eigenvalues of the product of the factors, or all if they are fewer, descending."""
    found = torch.ones(1, dtype=torch.float64)
    for factor in ranks:
        # Of two descending sequences, the product of entries i and j, from 1, is at most as large as i j others.
        numbers = (count // torch.arange(1, min(count, len(found)) + 1)).clamp(max=len(factor.values))
        first = torch.arange(len(numbers)).repeat_interleave(numbers)
        second = torch.arange(len(first)) - (numbers.cumsum(0) - numbers).repeat_interleave(numbers)
        found = (found[first] * factor.values[second]).sort(descending=True).values[:count]
    return found


def products_above(ranks: Sequence[FactorRanks], threshold: float) -> int:
    """How many eigenvalues of the product of the factors are above a positive threshold."""
    *others, longest = sorted(ranks, key=lambda factor: factor.rank)
    rest = product_spectrum(others)
    limits = threshold / rest[rest > 0]
    ascending = longest.values.flip(0)
    return int((longest.rank - torch.searchsorted(ascending, limits, right=True)).sum())


def block_solve(size: int, columns: int) -> float:
    """Multiplications, per column, of solving with a triangular matrix of so many modes and with its transpose.

    They are those of the precision in which the block is stored. It is read from memory, however few the columns.
    """
    return size**2 * max(TRIANGULAR, READING / columns)


def columns_at_once(cells: int, max_memory: float | None) -> int:
    """How many right-hand sides to solve for, or functions to evaluate, at a time on a grid of `cells` cells."""
    budget = COLUMN_BYTES if max_memory is None else max_memory / 4
    return max(1, int(budget / (SOLVE_ARRAYS * 8 * cells)))


def break_even(shape: Sequence[int]) -> float:
    """The missing fraction beyond which dense products are cheaper than the grid: 1 - sqrt(sum_k n_k / N)."""
    return 1 - math.sqrt(sum(shape) / prod(shape))
