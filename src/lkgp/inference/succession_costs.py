"""Predict the cost of solves that are preconditioned by successive blocks along a long axis.

How many iterations it takes is counted on a stretch of the axis, with all its gaps.
"""

import math

import torch

from lkgp.data.readers import Observations
from lkgp.data.subsets import restrict
from lkgp.inference.costs import OBSERVATION_CHECKS, Cost, PlanningProblem
from lkgp.linalg.preconditioners import SuccessiveBlocks
from lkgp.linalg.preconditioners.successive_blocks import long_axis
from lkgp.linalg.successive_blocks import GROUP, LAST_NEARBY, NOW_NEARBY
from lkgp.model import LatentKroneckerGP
from lkgp.solvers import ConjugateGradients, solve

# The number of observations in that stretch, about, and its fewest times.
STRETCH, FEWEST_TIMES = 4000, 64
# The solve of the stretch is to this residual. Iterations are proportional to the number of digits: to half as many as
# in 1e-6, it took 0.49 to 0.55 times as many, for 30 and 200 places, Matern-1/2 to 5/2, and 64 to 512 times.
STRETCH_RTOL, DIGITS = 1e-3, 2.0
# Iterations grow with the number of times, up to about so many. How fast, a stretch half as long shows: from 64 to 256
# times, they became 1.77 to 1.91 times as many in the same cases. Predictions for 256 times were within 10 % there and
# for irregular times; for 50 places and a memory of five steps, they were a third too high, as a short stretch has
# fewer modes of a cycle. Beyond, more modes are left out, but draws need fewer digits: for 30 places with daily and
# yearly cycles, 37 iterations were found on 256 times, and 26,304 times took at most 39 and 28 in the mean.
ENOUGH_TIMES = 256
# The fastest growth per doubling of the times: that of the condition number's root if it is proportional to them.
FASTEST = math.sqrt(2)
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


def iterations_of_stretch(model: LatentKroneckerGP, data: Observations, axis: int, settings: SuccessiveBlocks) -> float:
    """The number of iterations of a solve, from those for stretches in the middle of the axis."""
    length = data.grid.shape[axis]
    times = min(length, max(FEWEST_TIMES, round(STRETCH * length / data.grid.num_observed)))
    found = DIGITS * solve_stretch(model, data, axis, settings, times)
    doublings = math.log2(max(1.0, min(ENOUGH_TIMES, length) / times))
    if doublings == 0:
        return found
    half = DIGITS * solve_stretch(model, data, axis, settings, times // 2)
    return found * min(max(found / half, 1.0), FASTEST) ** doublings


@torch.no_grad()
def solve_stretch(
    model: LatentKroneckerGP, data: Observations, axis: int, settings: SuccessiveBlocks, times: int
) -> int:
    """The number of iterations of a solve for so many times in the middle of the axis."""
    order = torch.argsort(data.grid.coords[axis][:, 0])
    start = (len(order) - times) // 2
    part = restrict(data, {axis: order[start : start + times].sort().values})
    if part is None:
        return 1
    operator = model.covariance(part, ["dense"] * len(part.grid.shape)).detach()
    rhs = torch.randn(part.grid.num_observed, 1, generator=torch.Generator().manual_seed(0))
    solver = ConjugateGradients(rtol=STRETCH_RTOL)
    found = solve(operator, rhs.to(operator.dtype), solver, preconditioner=settings.along(operator, axis))
    return max(1, found.iterations)
