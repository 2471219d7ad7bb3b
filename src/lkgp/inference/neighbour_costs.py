"""Predict the cost of solves that are preconditioned by nearest neighbours (Vecchia's approximation).

How many iterations it takes depends on how well the neighbours of a cell screen it from all others, which no simple
number tells. It is measured on a small part of the data: the cells around a few of them, with all their gaps.
"""

import math

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lkgp.data.readers import Observations
from lkgp.data.subsets import restrict
from lkgp.inference.costs import OBSERVATION_CHECKS, Cost, PlanningProblem
from lkgp.linalg.kronecker import LatentKronecker
from lkgp.linalg.preconditioners import Vecchia
from lkgp.model import LatentKroneckerGP

# The number of observations in a part, about, and how many parts are looked at.
PART, PARTS = 500, 3
# Iterations of a solve to a relative residual of 1e-6 over the square of those on a part, in the mean; a fit takes
# about half as many. They grow faster than those on parts because parts are small. With 15, 30 and 60 neighbours and a
# noise of 0.01, the ratio was 0.08, 0.07 and 0.11 for 13,329 observations of 2000 scattered stations over 10 days and
# 0.11 for 54,555 of a map over 15 days, Matern-1/2 in space and time; 0.13 to 0.15 for both with Matern-3/2 in time.
# With a noise of 0.3, it was 0.11 to 0.15 and 0.36 to 0.64: all of these are at most 41 iterations.
ITERATIONS_PER_SQUARE = {False: 0.125, True: 0.065}
PART_RTOL, MOST_ON_PART = 1e-6, 500
# Multiplications that take as long as one entry among the neighbours of a cell, on one core of 25 billion
# multiplications a second: 28, 55 and 150 microseconds per cell with 15, 30 and 60 neighbours. Derivatives took 11 s
# for 105,569 cells with 30.
PER_ENTRY, PER_ENTRY_OF_GRADIENT = 3000.0, 6000.0
# Multiplications that take as long as one multiplication by a sparse matrix: 60 ms for nine columns of that case.
SPARSE = 50.0


def neighbour_cost(
    problem: PlanningProblem, settings: Vecchia, columns: int, unsuited: bool, most: int
) -> tuple[Cost, float]:
    """The cost of solving for `columns` right-hand sides, and the predicted number of iterations of a solve.

    Where other preconditioners are known to be better, nothing is measured, and the most iterations are assumed.

    unsuited: whether they are; most: the largest number of iterations
    """
    n, width = problem.grid.num_observed, settings.neighbours + 1
    iterations = float(most)
    if not unsuited:
        each = ITERATIONS_PER_SQUARE[problem.fitting]
        iterations = min(iterations, each * iterations_on_parts(problem, settings) ** 2)
    entries = n * width * (width + 1) / 2
    build = entries * (PER_ENTRY + (PER_ENTRY_OF_GRADIENT if problem.fitting else 0.0))
    # The product is computed in float32.
    step = problem.product / 2 + 2 * SPARSE * n * width
    work = columns * (iterations * step + OBSERVATION_CHECKS * problem.product)
    # neighbours, rows of W, and W and its transpose in both precisions
    memory = 8.0 * 6 * problem.factor_numbers + 60.0 * n * width + problem.column_memory(columns)
    return Cost(build + work, memory), iterations


@torch.no_grad()
def iterations_on_parts(problem: PlanningProblem, settings: Vecchia) -> float:
    """The mean number of iterations of conjugate gradients over some small parts of the data."""
    found = []
    for operator, root in problem.once(some_parts, settings.seed):
        inverse = settings.build(operator)
        found.append(iterations_with(torch.linalg.eigvalsh(root.mT @ inverse.solve(root)).cpu().numpy()))
    return float(np.mean(found))


@torch.no_grad()
def some_parts(model: LatentKroneckerGP, data: Observations, seed: int) -> list[tuple[LatentKronecker, Tensor]]:
    """A of some small parts of the data, with its Cholesky factor L.

    The eigenvalues of M^-1 A are those of L^T M^-1 L.
    """
    rng = np.random.default_rng(seed)
    found = []
    for cell in rng.choice(data.grid.num_observed, min(PARTS, data.grid.num_observed), replace=False):
        part = cells_around(model, data, int(cell), PART)
        operator = model.covariance(part, ["dense"] * (len(part.grid.shape) * len(model.terms))).detach()
        matrix = operator.rows(torch.arange(part.grid.num_observed, device=operator.device)).double()
        found.append((operator, torch.linalg.cholesky(matrix)))
    return found


def iterations_with(eigenvalues: NDArray[np.float64]) -> int:
    """How many iterations conjugate gradients take with these eigenvalues, (n,), and a right-hand side of ones."""
    residual = np.ones_like(eigenvalues)
    direction, squares = residual.copy(), float(len(residual))
    for count in range(1, MOST_ON_PART):
        image = eigenvalues * direction
        residual -= squares / max(float(direction @ image), 1e-300) * image
        before, squares = squares, float(residual @ residual)
        if squares <= PART_RTOL**2 * len(residual):
            return count
        direction = residual + squares / before * direction
    return MOST_ON_PART


def cells_around(model: LatentKroneckerGP, data: Observations, cell: int, size: int) -> Observations:
    """About `size` observations at the points that are most correlated with those of an observed cell."""
    grid = data.grid
    losses = []
    for k, (coords, position) in enumerate(
        zip(grid.coords, torch.unravel_index(grid.index[cell], grid.shape), strict=True)
    ):
        here = position[None]
        term = model.terms[0]
        covariances = term.cross_factor(k, coords[here], coords)[0].double().abs()
        variances = term.factor_variance(k, coords).double() * float(term.factor_variance(k, coords[here]))
        # -log(correlation) with the point of the cell
        losses.append(-(covariances / variances.sqrt()).clamp(1e-300, 1.0).log())
    share = grid.num_observed / grid.num_cells
    chosen = _nearest_points(losses, size / share)
    part = restrict(data, {k: points for k, points in enumerate(chosen) if len(points) < grid.shape[k]})
    assert part is not None  # the cell itself is in it
    if part.grid.num_observed <= 2 * size:
        return part
    # more is observed here than elsewhere
    longest = max(range(len(chosen)), key=lambda k: len(chosen[k]))
    keep = max(1, int(len(chosen[longest]) * size / part.grid.num_observed))
    chosen[longest] = losses[longest].topk(keep, largest=False).indices.sort().values
    part = restrict(data, dict(enumerate(chosen)))
    assert part is not None
    return part


def _nearest_points(losses: list[Tensor], cells: float) -> list[Tensor]:
    """The points of each factor up to the same loss (n_k,), so that their product has about so many cells."""
    every = torch.cat(losses).sort().values
    low, high = 0, len(every) - 1
    while low < high:
        middle = (low + high) // 2
        if math.prod(int((loss <= every[middle]).sum()) for loss in losses) < cells:
            low = middle + 1
        else:
            high = middle
    return [torch.nonzero(loss <= every[low]).flatten() for loss in losses]
