"""Predict the cost of solves in observation space that are preconditioned by leading modes."""

import math
from collections.abc import Sequence

from lkgp.inference.costs import (
    OBSERVATION_CHECKS,
    OUTSIDE,
    READING,
    Cost,
    FactorRanks,
    PlanningProblem,
    block_solve,
    product_spectrum,
)
from lkgp.linalg.leading_modes import BLOCK_WEIGHT, ITERATIONS_PER_ROOT, block_multiplications, cheapest_block
from lkgp.linalg.preconditioners.leading_modes import MOST_MODES

# Multiplications in float64 that take as long as forming one entry of that matrix, which is a product of gathered
# entries of the factors: 185 to 200 on one busy core, for 5500 observations.
FORMING = 200.0
# The truncation of the spectra from which the cost of a solve is predicted: the default of `Spectral.tolerance`.
SPECTRUM_TOLERANCE = 1e-4


def observation_cost(
    problem: PlanningProblem, ranks: Sequence[FactorRanks], max_rank: int, columns: int, prepared: int, dense: bool
) -> Cost:
    """The cost of solving for `columns` right-hand sides in observation space, with or without the grid.

    prepared: number of right-hand sides for which the preconditioner is made
    """
    grid, n, cells = problem.grid, problem.grid.num_observed, problem.grid.num_cells
    # A dense matrix is read from memory in every product, however few the columns.
    product = max(float(n**2), READING * n**2 / columns) if dense else problem.product
    diagonal = 1 + product_spectrum(ranks, MOST_MODES) * n / cells / problem.least_noise
    leading = [min(MOST_MODES, f.rank) for f in ranks]
    block = cheapest_block(diagonal, product, grid.shape, leading, max_rank, prepared)
    left = float(diagonal[block]) if block < len(diagonal) else 1.0
    transform = 2.0 * sum(cells * r for r in leading)
    build = sum(f.points**3 / 6 + 3 * f.points * r**2 for f, r in zip(ranks, leading, strict=True))
    # counted in float32
    build += BLOCK_WEIGHT * block_multiplications(grid.shape, leading, block) / 2
    build += FORMING * n**2 if dense else 0.0
    roots = sum(f.points**3 / 6 for f in ranks)
    iterations = ITERATIONS_PER_ROOT * math.sqrt(left)
    # The preconditioner is applied in float64.
    once = product / 2 + transform + block_solve(block, columns)
    work = columns * (iterations * once + OBSERVATION_CHECKS * problem.product + OUTSIDE * cells)
    memory = 8.0 * (6 * problem.factor_numbers + 3 * block**2) + problem.column_memory(columns)
    return Cost(build + roots + work, memory + (12.0 * n**2 if dense else 0.0))
