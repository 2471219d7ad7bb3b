"""SARCOS: the inverse dynamics of a robot arm with seven joints (the paper's figure 3)."""

import numpy as np
import torch
from gpytorch.kernels import IndexKernel, Kernel, MaternKernel, RBFKernel

from lkgp.studies import datasets
from lkgp.studies.problems import Problem, standardised
from lkgp.studies.registry import CASES, BenchmarkCase, CaseFamily, Design
from lkgp.studies.splits import split_generator, uniform_gaps

MISSING = tuple(i / 10 for i in range(1, 10))
# The training states that the paper uses, and the test states of the small preset.
PAPER_STATES, SMALL_STATES = 5000, 1000


def sarcos(missing: float = 0.3, split: int = 0, part: str = "test", states: int | None = None) -> Problem:
    """Torques of 7 joints in the 4449 test states, or in 5000 of the training states as in the paper.

    states: number of states, taken from the beginning; None for all
    """
    X, Y = datasets.sarcos(part)
    generator = split_generator(split)
    if part == "training":
        chosen = generator.permutation(len(X))[:PAPER_STATES]
        X, Y = X[chosen], Y[chosen]
    X, Y = X[:states], Y[:states]
    observed = uniform_gaps(Y.shape, missing, generator)
    # Each torque is standardised on its own, over its observed values.
    torques = np.where(observed, Y, np.nan)
    values = (Y - np.nanmean(torques, axis=0)) / np.nanstd(torques, axis=0)
    return Problem(
        f"SARCOS, {missing:.0%} missing",
        [standardised(X), np.arange(7.0)[:, None]],
        values,
        observed,
        robot_kernels,
        lambda: [MaternKernel(nu=2.5, ard_num_dims=21), robot_kernels()[1]],
    )


def robot_kernels() -> list[Kernel]:
    """Squared exponential over the states, and tasks of full rank, whose scale is that of the product."""
    with torch.random.fork_rng():
        torch.manual_seed(0)  # so that the random first values of `IndexKernel` are the same for every comparator
        return [RBFKernel(ard_num_dims=21), IndexKernel(num_tasks=7, rank=7)]


def make_problem(dataset: str, missing: float, size: int | None, seed: int) -> Problem:
    """dataset: training or test"""
    return sarcos(missing, seed, dataset, size)


def benchmark(percent: int, comparators: tuple[str, ...]) -> BenchmarkCase:
    title = f"SARCOS robot arm, 4449 states x 7 joints, {percent} % missing"
    return BenchmarkCase(f"sarcos-{percent}", "robot", title, comparators, "test", percent / 100)


# With up to 50 % missing, lkgp uses the grid by itself.
BY_ITERATIONS = ("lkgp", "lkgp, without the grid", "iterative GP without the grid, by its iterations")
BY_STEPS = ("lkgp", "lkgp, without the grid", "iterative GP without the grid, by its steps")
BOTH_WAYS = ("lkgp", "lkgp, with the grid", *BY_STEPS[1:])

CASES.register(
    CaseFamily(
        "sarcos",
        make_problem,
        designs={
            "small": Design(("test",), MISSING, SMALL_STATES, seeds=1),
            "paper": Design(("training",), MISSING, None, seeds=5),
        },
        benchmarks=(
            benchmark(10, BY_ITERATIONS),
            benchmark(30, BY_ITERATIONS),
            benchmark(50, BY_STEPS),
            benchmark(70, BOTH_WAYS),
            benchmark(90, BOTH_WAYS),
        ),
        order=3,
    )
)
