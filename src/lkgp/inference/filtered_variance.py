"""Posterior variances at the cells of the fitted grid from a filter and modes along an axis, without solves.

Let f = g + h, where M = Cov(g) + D at the observed cells is the preconditioner, with Cov(g) = V - D + U U^T, and h is
what its modes leave. Given h, the variance of g is that of a model with M in the place of A, at every cell

    v_M  =  Var(Matern parts | y)  +  |row of B|^2,     B = (U_* - K_V* V^-1 U) H^-1/2,

where U_* are the modes at all cells. The first part is that of a smoother, exactly. What h adds is the variance of

    d  =  h  -  K_M* M^-1 h,        v  =  v_M + Var(d | y),      0 <= Var(d | y) <= Var(d),

since the data only reduce it. Both squares are means over a few draws, as they are small beside the first part.
"""

import math

import torch
from torch import Tensor

from lkgp.data.grid import PartialGrid
from lkgp.inference.variance_bounds import VarianceBounds
from lkgp.linalg.factors import Factor
from lkgp.linalg.factors.markov import MarkovFactor
from lkgp.linalg.leftover import leftover_draws
from lkgp.linalg.preconditioners import FilteredInverse
from lkgp.linalg.products import kronecker_matmul
from lkgp.linalg.state_smoother import smoothed_variances

# The numbers of draws of the weights of modes and of what they leave.
MODE_DRAWS, LEFT_DRAWS = 32, 16
# As many draws are treated at a time as fit into so many bytes, with about so many arrays of the size of the grid.
WORK_BYTES, ARRAYS = 1e9, 8


def filtered_variance(inverse: FilteredInverse, seed: int) -> VarianceBounds:
    """Bounds of the posterior variance at every cell of the grid of an operator."""
    grid, modes = inverse.operator.grid, inverse.modes
    generator = torch.Generator(grid.index.device).manual_seed(seed)
    succession = modes.succession
    times = len(succession.order)
    lower = _on_grid(smoothed_variances(inverse.filter)[:times, :, None], inverse)[..., 0]
    markov = _markov_factors(inverse)
    width = max(1, int(WORK_BYTES / (8 * ARRAYS * grid.num_cells)))
    by_modes, few = torch.zeros_like(lower), MODE_DRAWS
    if modes.rank:
        # All modes, if they are hardly more than the draws.
        whole = modes.rank <= 2 * MODE_DRAWS
        few = modes.rank if whole else MODE_DRAWS
        eye = torch.eye(modes.rank, dtype=lower.dtype, device=lower.device)
        normals = eye if whole else torch.randn(modes.rank, few, generator=generator, dtype=lower.dtype)
        weights = torch.linalg.solve_triangular(inverse.root_of_h.mT, normals, upper=True)
        for some in weights.split(width, dim=1):
            by_modes += _errors_of_modes(inverse, markov, some).square().sum(dim=-1)
        by_modes, few = (by_modes, 0) if whole else (by_modes / few, few)
    gap = torch.zeros_like(lower)
    if inverse.lasting.parts:
        for start in range(0, LEFT_DRAWS, width):
            gap += _left_by_modes(inverse, markov, min(width, LEFT_DRAWS - start), generator).square().sum(dim=-1)
        gap /= LEFT_DRAWS
    # The mean of s squares of normal numbers has the relative standard error sqrt(2 / s).
    scatter = by_modes * (math.sqrt(2 / few) if few else 0.0)
    scatter = torch.hypot(scatter, gap / 2 * math.sqrt(2 / LEFT_DRAWS))
    source = "exact along the axis of times, with what lasts from modes"
    return VarianceBounds((lower + by_modes).clamp(min=0.0), gap, scatter, source)


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


def _left_by_modes(inverse: FilteredInverse, markov: list[Factor], num: int, generator: torch.Generator) -> Tensor:
    """Draws of d, (n_1, ..., n_d, num)."""
    grid = inverse.operator.grid
    left = _from_axis(leftover_draws(inverse.lasting, num, generator), grid, inverse.axis)
    solved = inverse.solve(left.reshape(grid.num_cells, num).index_select(0, grid.index))
    told = _on_grid(inverse.modes.at_every_cell(inverse.modes.transposed(solved)), inverse)
    return left - _told_of_markov(inverse, markov, solved) - told
