"""Posterior variances at the cells of the fitted grid from a filter and modes along an axis, with few solves or none.

Let f = g + h, where M = Cov(g) + D at the observed cells is the preconditioner, and h is what its modes leave. Given h,
the variance of g is that of a model with M in the place of A, at every cell

    v_M  =  Var(Matern parts | y)  +  |row of B|^2,     B = (U_* - K_V* V^-1 U) H^-1/2,

where U_* are the modes at all cells. The first part is that of a smoother, exactly. What h adds is the variance of

    d  =  h  -  K_M* M^-1 h,        v  =  v_M + Var(d | y),      0 <= Var(d | y) <= Var(d),

since the data only reduce it. If these bounds are too far apart, Var(d | y) is estimated from draws of h given data,
which take a solve with A each. All but the smoother's are means over a few draws, as they are small beside it.
"""

import math
from collections.abc import Callable
from dataclasses import replace
from functools import reduce

import torch
from torch import Tensor

from lkgp.data.grid import PartialGrid
from lkgp.inference.variance_estimate import VarianceEstimate
from lkgp.linalg.factors import Factor
from lkgp.linalg.factors.markov import MarkovFactor
from lkgp.linalg.leftover import leftover_draws
from lkgp.linalg.preconditioners import FilteredInverse
from lkgp.linalg.products import kronecker_matmul
from lkgp.linalg.state_smoother import smoothed_variances
from lkgp.solvers import Solution

# The numbers of draws of what modes leave, and the fewest of that given data.
LEFT_DRAWS, FEWEST_GIVEN = 16, 8
# The numbers of draws of the weights of modes, until they are enough.
MODE_DRAWS = (32, 64, 128, 256)
# As many draws are treated at a time as fit into so many bytes, with about so many arrays of the size of the grid, and
# two in any case: a run through the steps of a filter takes hardly longer for two than for one.
WORK_BYTES, ARRAYS, FEWEST_AT_ONCE = 1e9, 12, 2
# An error that needs no further draws, and the share of it that draws of the weights of modes may have.
SMALL_ERROR, SHARE_OF_MODES = 0.01, 0.3


def filtered_variance(
    inverse: FilteredInverse, solve: Callable[[Tensor], Solution], most_draws: int, seed: int
) -> VarianceEstimate:
    """The posterior variance at every cell of the grid of an operator.

    solve: X -> A^-1 X for X (n, c); most_draws: for how many draws of data it may be called
    """
    grid = inverse.operator.grid
    generator = torch.Generator(grid.index.device).manual_seed(seed)
    times = len(inverse.modes.succession.order)
    smooth = _on_grid(smoothed_variances(inverse.filter)[:times, :, None], inverse)[..., 0].clamp(min=0.0)
    markov = _markov_factors(inverse)
    width = max(FEWEST_AT_ONCE, int(WORK_BYTES / (8 * ARRAYS * grid.num_cells)))
    by_modes, scatter = _variance_of_modes(inverse, markov, smooth, width, generator)
    known, source = smooth + by_modes, "exact along the longest axis, but for what lasts, which is from modes"
    if not inverse.lasting.parts:
        return VarianceEstimate(known, scatter, source)
    gap = torch.zeros_like(known)
    for count in _counts(LEFT_DRAWS, width):
        left = _left(inverse, count, generator)
        gap += _unexplained(inverse, markov, left).square().sum(dim=-1) / LEFT_DRAWS
    # The mean of s squares of normal numbers has the relative standard error sqrt(2 / s).
    doubt = gap / 2 * (1 + math.sqrt(2 / LEFT_DRAWS))
    found = VarianceEstimate(known + gap / 2, torch.hypot(scatter, doubt), source)
    total, done = torch.zeros_like(known), 0
    for count in _counts(most_draws, min(width, FEWEST_GIVEN)):
        # Further samples do not make the part of the modes more accurate.
        if replace(found, doubt=doubt).error <= SMALL_ERROR:
            break
        left, failure = _left_given_data(inverse, markov, solve, count, generator)
        if failure:
            return replace(found, failure=failure)
        total += _unexplained(inverse, markov, left).square().sum(dim=-1)
        done += count
        if done >= min(FEWEST_GIVEN, most_draws):
            added = total / done
            doubt = added * math.sqrt(2 / done)
            words = f"{source} and {done} posterior samples"
            found = VarianceEstimate(known + added, torch.hypot(scatter, doubt), words)
    return found


def _counts(number: int, width: int) -> list[int]:
    """A number of draws in parts of at most `width`."""
    return [min(width, number - start) for start in range(0, number, width)]


def _variance_of_modes(
    inverse: FilteredInverse, markov: list[Factor], others: Tensor, width: int, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """|row of B|^2 and its standard error, each (n_1, ..., n_d); others: variances that are added to it."""
    rank, like = inverse.modes.rank, inverse.root_of_h
    total = torch.zeros_like(others)
    if rank == 0:
        return total, total

    def squares(weights: Tensor) -> Tensor:
        # the rows of B times some columns, (U_* - K_V* V^-1 U) H^-1/2 C
        turned = torch.linalg.solve_triangular(like.mT, weights, upper=True)
        parts = (_errors_of_modes(inverse, markov, some).square().sum(dim=-1) for some in turned.split(width, dim=1))
        return reduce(torch.add, parts)

    done = 0
    for aim in MODE_DRAWS:
        if rank <= 2 * aim or (done and rank <= MODE_DRAWS[-1]):
            # All of them in turn take hardly longer.
            break
        total += squares(torch.randn(rank, aim - done, generator=generator, dtype=like.dtype, device=like.device))
        done = aim
        scatter = total / done * math.sqrt(2 / done)
        small = VarianceEstimate(others + total / done, scatter, "").error <= SHARE_OF_MODES * SMALL_ERROR
        if small or aim == MODE_DRAWS[-1]:
            return total / done, scatter
    return squares(torch.eye(rank, dtype=like.dtype, device=like.device)), torch.zeros_like(total)


def _on_grid(table: Tensor, inverse: FilteredInverse) -> Tensor:
    """Numbers at all times in ascending order and places, (t, s, c), on the grid, (n_1, ..., n_d, c)."""
    found = torch.empty_like(table)
    found[inverse.modes.succession.order] = table
    return _from_axis(found, inverse.operator.grid, inverse.axis)


def _from_axis(table: Tensor, grid: PartialGrid, axis: int) -> Tensor:
    """Numbers at the points of an axis and the combinations of those of the others, (n_k, s, c), on the grid."""
    others = [n for k, n in enumerate(grid.shape) if k != axis]
    return table.view(len(table), *others, table.shape[-1]).movedim(0, axis)


def _markov_factors(inverse: FilteredInverse) -> list[Factor]:
    """The factors of the covariance of the Matern parts."""
    operator, parts = inverse.operator, inverse.filter.process.parts
    times = operator.grid.coords[inverse.axis][:, 0].double()
    numbers = torch.tensor([[part.variance, part.rate] for part in parts], dtype=torch.float64, device=times.device)
    along = MarkovFactor(numbers, times=times, orders=tuple(part.order for part in parts))
    return [along if k == inverse.axis else factor for k, factor in enumerate(operator.factors)]


def _told_of_markov(inverse: FilteredInverse, markov: list[Factor], solved: Tensor) -> Tensor:
    """K_V* X for X (n, c), (n_1, ..., n_d, c)."""
    grid = inverse.operator.grid
    return kronecker_matmul(markov, grid.scatter(solved)).mT.reshape(*grid.shape, -1)


def _errors_of_modes(inverse: FilteredInverse, markov: list[Factor], weights: Tensor) -> Tensor:
    """(U_* - K_V* V^-1 U) C for C (rank, c), (n_1, ..., n_d, c)."""
    table = inverse.modes.at_every_cell(weights)
    solved = inverse.rows.squared_times(inverse.modes.succession.observed(table))
    return _on_grid(table, inverse) - _told_of_markov(inverse, markov, solved)


def _left(inverse: FilteredInverse, num: int, generator: torch.Generator) -> Tensor:
    """Draws of h from the prior, (n_1, ..., n_d, num)."""
    return _from_axis(leftover_draws(inverse.lasting, num, generator), inverse.operator.grid, inverse.axis)


def _told_by_m(inverse: FilteredInverse, markov: list[Factor], solved: Tensor) -> Tensor:
    """K_M* X for X (n, c), (n_1, ..., n_d, c)."""
    weights = inverse.modes.transposed(solved)
    return _told_of_markov(inverse, markov, solved) + _on_grid(inverse.modes.at_every_cell(weights), inverse)


def _unexplained(inverse: FilteredInverse, markov: list[Factor], left: Tensor) -> Tensor:
    """d for draws of h, both (n_1, ..., n_d, c)."""
    return left - _told_by_m(inverse, markov, inverse.solve(_observed(inverse, left)))


def _left_given_data(
    inverse: FilteredInverse,
    markov: list[Factor],
    solve: Callable[[Tensor], Solution],
    num: int,
    generator: torch.Generator,
) -> tuple[Tensor, str]:
    """Draws of h given the data, less their mean, (n_1, ..., n_d, num), and why a solve did not converge, if so."""
    grid, left = inverse.operator.grid, _left(inverse, num, generator)
    # Data drawn from the prior, with h among them: h - K_h* A^-1 z, and K_h = K - K_M
    solution = solve(inverse.draw(num, generator, left) + _observed(inverse, left))
    solved = solution.values
    whole = kronecker_matmul(inverse.operator.factors, grid.scatter(solved)).mT.reshape(left.shape)
    return left - whole + _told_by_m(inverse, markov, solved), "" if solution.converged else str(solution)


def _observed(inverse: FilteredInverse, values: Tensor) -> Tensor:
    """Functions at every cell, (n_1, ..., n_d, c), where they are observed, (n, c)."""
    grid = inverse.operator.grid
    return values.reshape(grid.num_cells, -1).index_select(0, grid.index)
