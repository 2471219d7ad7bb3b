"""Predict the cost of solves that are preconditioned by a filter along a long axis.

M holds the Matern parts exactly, so that the eigenvalues of M^-1 A lie between 1 and 1 + k, where k is about the
variance of the largest mode that was left out over that of all else in its direction. It is found from some of the
times: the modes of a part that lasts look alike wherever they are seen.
"""

import math

import numpy as np
import torch
from torch import Tensor

from lkgp.data.readers import Observations
from lkgp.inference.costs import FIT_COLUMNS, OBSERVATION_CHECKS, Cost, PlanningProblem
from lkgp.inference.filtered_variance import FEWEST_GIVEN, LEFT_DRAWS, MODE_DRAWS
from lkgp.linalg.filter_rows import precisions
from lkgp.linalg.lasting_modes import LEAST, MATTERS, SHARE, most_modes
from lkgp.linalg.markov_processes import JointProcess, Process, processes_of
from lkgp.linalg.preconditioners import KalmanFilter
from lkgp.linalg.preconditioners.rows_and_modes import typical_noise
from lkgp.linalg.preconditioners.successive_blocks import long_axis
from lkgp.linalg.state_filter import BLOCK_CELLS
from lkgp.model import LatentKroneckerGP
from lkgp.model.kernels import KernelFunction

# At so many times modes are looked for, and in a run of so many their shape is compared with the Matern parts.
SOME_TIMES, RUN = 600, 512
# Iterations of a solve to a residual of 1e-6 over the root of 1 + k. `scripts/filter_iterations.py` compares this with
# counts: right within a factor of 1.7 for seven made-up fields, and a third of the count for one whose cycle nearly
# lasts. A fit, and draws, are content with about half as many.
PER_ROOT, SHARE_OF_FIT = 6.0, 0.5
# With more left out, bounds of the variance are too far apart.
MUCH = 0.5
# Multiplications that take as long as a step through one block does at least: when it is built, and in a product.
BUILD_STEP, STEP = 1e7, 3e5
# Those that take as long as reading one number of the steps, for all columns together, and as using it for one.
READ, USE = 12.0, 1.0


def axis_processes(model: LatentKroneckerGP, axis: int) -> list[Process]:
    """The Matern processes among the parts of the kernel along an axis of one column."""
    parts = KernelFunction(model.terms[0].kernels[axis]).summands
    return [process for part in parts for process in processes_of(part, 1)]


def filter_obstacle(problem: PlanningProblem, settings: KalmanFilter) -> str:
    """Why the filter cannot be used; empty if it can."""
    axis = long_axis(problem.grid)
    known = [] if axis is None else axis_processes(problem.model, axis)
    return settings.obstacle(problem.grid, len(problem.model.terms), known)


def filter_cost(problem: PlanningProblem, settings: KalmanFilter) -> tuple[Cost, float]:
    """The cost of a posterior or a likelihood, and the predicted number of iterations of a solve."""
    grid, n = problem.grid, problem.grid.num_observed
    axis = long_axis(grid)
    assert axis is not None
    places = grid.num_cells // grid.shape[axis]
    states = places * sum(process.order for process in axis_processes(problem.model, axis))
    times = max(1, BLOCK_CELLS // places)
    blocks, width = grid.shape[axis] / times, times * n / grid.shape[axis]
    numbers = blocks * (width**2 + states * width)
    left, modes = left_by_modes(problem, axis, settings.modes)
    iterations = PER_ROOT * math.sqrt(1 + left)
    steps = blocks * (BUILD_STEP + 3 * (width**3 + states * width**2 + states**2 * width))
    # W U and the half of its square, in single precision
    build = steps + modes * (2 * numbers + n * modes / 2) / 2
    # W and its transpose, before and after the modes
    passes = 4 * (blocks * STEP + READ * numbers)
    per_column = problem.product / 2 + 4 * USE * numbers + 4 * n * modes / places
    # Error bars need solves only if much was left out; a smoother takes about as long as three filters.
    columns = 1 + (FIT_COLUMNS if problem.fitting else FEWEST_GIVEN if left > MUCH else 0)
    rounds = iterations * (SHARE_OF_FIT if problem.fitting else 1.0)
    work = rounds * (passes + columns * per_column) + columns * OBSERVATION_CHECKS * problem.product
    if not problem.fitting:
        work += 3 * steps + passes * (MODE_DRAWS[0] + LEFT_DRAWS) / 8 + (MODE_DRAWS[0] + LEFT_DRAWS) * per_column
    with torch.no_grad():
        noise, variance = problem.model.noise_diagonal(problem.data), problem.model.largest_variance(grid.coords)
    kept = precisions(numbers, noise, float(variance))[0].itemsize * numbers
    memory = 8.0 * (6 * problem.factor_numbers + 2.0 * modes**2) + kept + problem.column_memory(columns)
    return Cost(build + work, memory), iterations


def left_by_modes(problem: PlanningProblem, axis: int, modes: int) -> tuple[float, int]:
    """About k, and how many of at most so many modes matter."""
    ratios, missed = problem.once(_all_ratios, axis)
    chosen = int((ratios[:modes] > MATTERS).sum())
    rest = float(ratios[chosen]) if chosen < len(ratios) else 0.0
    return max(rest, missed) * problem.grid.num_observed / problem.grid.num_cells, chosen


@torch.no_grad()
def _all_ratios(model: LatentKroneckerGP, data: Observations, axis: int) -> tuple[Tensor, float]:
    """The variances of all modes that are looked for over all else in their direction, descending, (r,).

    Also returns the largest of those that are not looked for.
    """
    coords, term, noise = data.grid.coords, model.terms[0], typical_noise(model.noise_diagonal(data))
    times = coords[axis].double()
    n = len(times)
    parts = [part for part in KernelFunction(term.kernels[axis]).summands if not processes_of(part, 1)]
    order = torch.argsort(times[:, 0])
    # At random, so that no cycle is always seen at the same phase.
    some = np.random.default_rng(0).permutation(n)[:SOME_TIMES]
    points, run = times[torch.as_tensor(some)], times[order[(n - min(n, RUN)) // 2 :][:RUN]]
    short = JointProcess(axis_processes(model, axis)).covariance((run - run.mT).abs())
    places = torch.ones(1, dtype=torch.float64)
    for k in range(len(coords)):
        if k != axis:
            values = torch.linalg.eigvalsh(term.cross_factor(k, coords[k], coords[k]).double()).clamp(min=0.0)
            places = torch.outer(places, values).flatten()
    found, missed = [torch.zeros(0, dtype=torch.float64)], [0.0]
    for part in parts:
        ratio, lasts = _mode_ratios(part, points, run, short, n, places, noise)
        most = most_modes(n) if lasts else 0
        found.append(ratio[:, :most].flatten())
        missed.append(float(ratio[:, most:].max()) if most < ratio.shape[1] else 0.0)
    return torch.cat(found).sort(descending=True).values, max(missed)


def _mode_ratios(
    part: KernelFunction, points: Tensor, run: Tensor, short: Tensor, n: int, places: Tensor, noise: float
) -> tuple[Tensor, bool]:
    """The variances of the modes of a part over all else in their direction, (s, r), and whether it lasts.

    points: some times, (m, 1); run: neighbouring ones, (t, 1), with the covariance `short` of the Matern parts, (t, t)
    places: the eigenvalues of the covariance of the places, (s,)
    """
    values, vectors = torch.linalg.eigh(part(points, points))
    values, vectors = values.flip(0), vectors.flip(1)
    kept = values > LEAST * values[0]
    values, vectors = values[kept], vectors[:, kept]
    # the shape of every mode in the run
    shapes = part(run, points) @ vectors
    shapes = shapes / torch.linalg.vector_norm(shapes, dim=0).clamp(min=1e-300)
    elsewhere = (shapes * (short @ shapes)).sum(dim=0)
    lasts = bool(values[: most_modes(n)].sum() >= SHARE * values.sum())
    variances = values * (n / len(points))
    return places[:, None] * variances / (places[:, None] * elsewhere + noise), lasts
