"""Predict the cost of solves that are preconditioned by successive blocks along a long axis.

How many iterations it takes is counted on a stretch of the axis, with all its gaps.
"""

import torch

from lkgp.data.readers import Observations
from lkgp.data.subsets import restrict
from lkgp.inference.costs import OBSERVATION_CHECKS, Cost, PlanningProblem
from lkgp.linalg.preconditioners import SuccessiveBlocks
from lkgp.linalg.preconditioners.successive_blocks import FEWEST_TIMES, long_axis
from lkgp.linalg.successive_blocks import GROUP, LAST_NEARBY, NOW_NEARBY
from lkgp.model import LatentKroneckerGP
from lkgp.solvers import ConjugateGradients, solve

# The number of observations in that stretch, about. Its solve is to a far smaller residual than draws need, but on a
# longer axis more modes are left out: for 30 places with daily and yearly cycles, 37 iterations were predicted from
# it, and 26,304 times took at most 39 and 28 in the mean.
STRETCH = 4000
# A fit is content with about half as many.
SHARE_OF_FIT = 0.5
# Multiplications that take as long as one multiplication by the rows of blocks; their cubes count as they are.
PER_ENTRY = 5.0


def succession_cost(problem: PlanningProblem, settings: SuccessiveBlocks, columns: int) -> tuple[Cost, float]:
    """The cost of solving for `columns` right-hand sides, and the predicted number of iterations of a solve."""
    grid = problem.grid
    axis = long_axis(grid)
    assert axis is not None
    places, n = grid.num_cells // grid.shape[axis], grid.num_observed
    own = min(places, GROUP)
    width = own * (1 + settings.last) + (LAST_NEARBY + NOW_NEARBY if places > GROUP else 0)
    iterations = iterations_of_stretch(problem.model, problem.data, axis, settings)
    # rows of blocks, (W U)^T W U, and the modes
    build = grid.num_cells / own * float(width) ** 3 + n * settings.modes * (settings.modes / 2 + width)
    # W and its transpose, for the right-hand side and again for the modes; products are computed in float32
    step = problem.product / 2 + 4 * PER_ENTRY * n * width
    share = SHARE_OF_FIT if problem.fitting else 1.0
    work = columns * (share * iterations * step + OBSERVATION_CHECKS * problem.product)
    memory = 8.0 * 6 * problem.factor_numbers + 4.0 * grid.num_cells * width + problem.column_memory(columns)
    return Cost(build + work, memory), iterations


@torch.no_grad()
def iterations_of_stretch(model: LatentKroneckerGP, data: Observations, axis: int, settings: SuccessiveBlocks) -> float:
    """The number of iterations of a solve for a stretch in the middle of the axis."""
    grid = data.grid
    times = max(FEWEST_TIMES, round(STRETCH * grid.shape[axis] / grid.num_observed))
    order = torch.argsort(grid.coords[axis][:, 0])
    start = max(0, (len(order) - times) // 2)
    part = restrict(data, {axis: order[start : start + times].sort().values})
    if part is None:
        return 1.0
    operator = model.covariance(part, ["dense"] * len(part.grid.shape)).detach()
    rhs = torch.randn(part.grid.num_observed, 1, generator=torch.Generator().manual_seed(0))
    found = solve(
        operator, rhs.to(operator.dtype), ConjugateGradients(rtol=1e-6), preconditioner=settings.along(operator, axis)
    )
    return float(found.iterations)
