"""Compare the automatic choice of a way of inference with every forced one, side by side.

python scripts/compare_ways.py                  # every case: one likelihood with its gradient, and one posterior
python scripts/compare_ways.py --cases staircase-0.5 --tasks fit --repeats 5
python scripts/compare_ways.py --cpu            # seconds of the processor, for a machine that others use, too

The ways take turns, and each round begins with another one, so that a machine whose speed varies disturbs all of them
alike. Planning is part of every time. The last column is what matters: the time of the automatic choice over that of
the best forced way, the median over the rounds. A way is skipped if it cannot be used, or if it is predicted to take
more than `--most` times as many multiplications as the automatic choice; the learning curves of LCBench are skipped
unless the environment variable LKGP_DATA names a folder that holds them.
"""

import argparse
import os
import statistics
import time
from collections.abc import Callable

import numpy as np
import torch
from calibration.simulated import CURVE_LENGTHS, Problem, drawn

from lkgp import LKGP, Direct, ObservationSpace, Spectral
from lkgp.data.readers import from_array
from lkgp.inference import Choice, Method, Probes, log_likelihood, propose
from lkgp.machine import usable_memory
from lkgp.posterior import condition
from lkgp.studies.benchmarks import cases_of, run_of

AUTOMATIC = "automatic"
WAYS: dict[str, Choice] = {
    AUTOMATIC: "auto",
    "direct": Direct(),
    "spectral": Spectral(),
    "observations": ObservationSpace(),
    "observations, dense": ObservationSpace(dense=True),
}
ROWS, STEPS, INPUTS = 400, 50, 3
# Far below the prior variance of one: gaps matter most then.
NOISE = 1e-4
# About what a fit to 2000 curves of LCBench's Fashion-MNIST finds: the output scale and the noise variance.
LCBENCH_SCALE, LCBENCH_NOISE = 5.0, 6e-3

Gaps = Callable[[tuple[int, int], np.random.Generator], np.ndarray]


# Gaps: which cells are observed, (n_1, n_2)


def staircase(shape: tuple[int, int], rng: np.random.Generator) -> np.ndarray:
    """Every row ends somewhere."""
    return np.arange(shape[1]) < rng.integers(1, shape[1] + 1, (shape[0], 1))


def few_cut(shape: tuple[int, int], rng: np.random.Generator) -> np.ndarray:
    """One row in seven ends somewhere."""
    return staircase(shape, rng) | (rng.random((shape[0], 1)) > 1 / 7)


def at_random(shape: tuple[int, int], rng: np.random.Generator) -> np.ndarray:
    return rng.random(shape) > 0.3


def block(shape: tuple[int, int], rng: np.random.Generator) -> np.ndarray:
    observed = np.ones(shape, dtype=bool)
    observed[shape[0] // 4 : shape[0] // 2, shape[1] // 4 : 3 * shape[1] // 4] = False
    return observed


def rows(shape: tuple[int, int], rng: np.random.Generator) -> np.ndarray:
    """Three rows in ten have a single observation."""
    observed = np.ones(shape, dtype=bool)
    observed[rng.random(shape[0]) < 0.3, 1:] = False
    return observed


def clouds(shape: tuple[int, int], rng: np.random.Generator) -> np.ndarray:
    """Discs, until four cells in ten are gone."""
    observed, places = np.ones(shape, dtype=bool), np.indices(shape) / np.reshape(shape, (2, 1, 1))
    while observed.mean() > 0.6:
        centre = rng.random((2, 1, 1))
        observed &= np.square(places - centre).sum(axis=0) > rng.uniform(0.05, 0.15) ** 2
    return observed


# Cases: a model with fixed hyperparameters, and data


def simulated(gaps: Gaps, length: float) -> Problem:
    """Rows in three dimensions x steps, standardised, with squared exponentials of the same length."""
    rng = np.random.default_rng(0)
    inputs = rng.uniform(-(3**0.5), 3**0.5, (ROWS, INPUTS))
    steps = np.linspace(-(3**0.5), 3**0.5, STEPS)[:, None]
    return drawn([inputs, steps], ([length] * INPUTS, [length]), 1.0, NOISE, gaps((ROWS, STEPS), rng))


def lcbench() -> Problem:
    """2000 learning curves, nine in ten of which are cut, with hyperparameters about as fitted."""
    family, case = cases_of("learning-curves-2000")[0]
    problem = run_of(family, case, "lkgp").problem()
    model, _ = drawn(problem.coords, CURVE_LENGTHS, LCBENCH_SCALE, LCBENCH_NOISE, problem.observed)
    return model, from_array(problem.coords, problem.seen)


CASES: dict[str, Callable[[], Problem]] = {
    "staircase-0.5": lambda: simulated(staircase, 0.5),
    "staircase-1.5": lambda: simulated(staircase, 1.5),
    "few-cut-0.5": lambda: simulated(few_cut, 0.5),
    "few-cut-1.5": lambda: simulated(few_cut, 1.5),
    "lcbench-2000": lcbench,
    "random-0.5": lambda: simulated(at_random, 0.5),
    "block-0.5": lambda: simulated(block, 0.5),
    "rows-0.5": lambda: simulated(rows, 0.5),
    "clouds-0.5": lambda: simulated(clouds, 0.5),
}


# Tasks: with one way of inference; returns what was chosen, and how the solves went


def likelihood(problem: Problem, solver: Choice) -> str:
    """One likelihood with its gradient, as in a fit."""
    model, data = problem
    method = propose(model, data, solver, fitting=True).method.for_fitting()
    probes = None if method.exact else Probes.draw(data, method.num_probes, 0)
    found = log_likelihood(model, data, method, probes, value=method.exact)
    found.objective.backward()
    return f"{name_of(method)}, {found.solution.iterations} iterations, {found.solution.products} products"


@torch.no_grad()
def posterior(problem: Problem, solver: Choice) -> str:
    """The mean and the variance of every cell."""
    model, data = problem
    chosen = propose(model, data, solver)
    found = condition(model, data, chosen)
    found.mean(data.grid.coords)
    found.variance(data.grid.coords)
    return f"{name_of(chosen.method)}, {found.solution.iterations} iterations for the mean"


def fit(problem: Problem, solver: Choice) -> str:
    """A fit of all hyperparameters, from the defaults, and the prediction of every cell."""
    data = problem[1].grid
    values = np.full(data.num_cells, np.nan)
    values[data.index.numpy()] = problem[1].values.numpy()
    gp = LKGP(solver=solver).fit([x.numpy() for x in data.coords], values.reshape(data.shape))
    gp.predict()
    return f"{gp.report_.method.split(':')[0].split(',')[0]}, {gp.report_.log_likelihood:.1f} nats"


TASKS: dict[str, Callable[[Problem, Choice], str]] = {"likelihood": likelihood, "posterior": posterior, "fit": fit}


def name_of(method: Method) -> str:
    return next((name for name, way in WAYS.items() if type(way) is type(method) and is_dense(way) == is_dense(method)))


def is_dense(way: object) -> bool:
    return bool(getattr(way, "dense", False))


def possible_ways(problem: Problem, task: str, most: float) -> list[str]:
    """The ways that fit in memory and are not predicted to take many times as long as the automatic choice."""
    plans = {name: propose(*problem, solver, fitting=task != "posterior") for name, solver in WAYS.items()}
    possible = {name: found.cost for name, found in plans.items() if found.cost and not found.obstacle}
    memory = usable_memory()
    costs = {
        name: cost.multiplications for name, cost in possible.items() if name == AUTOMATIC or cost.memory <= memory
    }
    return [name for name, cost in costs.items() if cost <= most * costs[AUTOMATIC]]


def measure(problem: Problem, task: str, names: list[str], repeats: int, clock: Callable[[], float]) -> None:
    """Print a row of the table for every way."""
    seconds: dict[str, list[float]] = {name: [] for name in names}
    words: dict[str, str] = {}
    for repeat in range(repeats):
        first = repeat % len(names)
        for name in names[first:] + names[:first]:
            began = clock()
            words[name] = TASKS[task](problem, WAYS[name])
            seconds[name].append(clock() - began)
    for name in names:
        print(f"| {task} | {name} | {statistics.median(seconds[name]):.2f} | {words[name]} | |", flush=True)
    forced = [name for name in names if name != AUTOMATIC]
    best = min(forced, key=lambda name: statistics.median(seconds[name]))
    ratio = statistics.median(a / b for a, b in zip(seconds[AUTOMATIC], seconds[best], strict=True))
    print(f"| {task} | **automatic over {best}** | | | **{ratio:.2f}** |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES), metavar="NAME")
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=["likelihood", "posterior"], metavar="TASK")
    parser.add_argument("--repeats", type=int, default=3, help="Rounds in which every way has a turn.")
    parser.add_argument("--most", type=float, default=10.0, help="Skip ways that are predicted to take so much longer.")
    parser.add_argument("--cpu", action="store_true", help="Measure seconds of the processor instead of the clock.")
    chosen = parser.parse_args()
    print(f"{torch.get_num_threads()} threads; load of the machine {os.getloadavg()[0]:.1f}")
    for name in chosen.cases:
        if name.startswith("lcbench") and "LKGP_DATA" not in os.environ:
            print(f"\n## {name}\n\nSkipped: LKGP_DATA is not set.")
            continue
        problem = CASES[name]()
        print(f"\n## {name}, {problem[1].grid.num_observed} observations\n")
        print("| task | way | seconds, median | what was done | ratio |\n|---|---|---|---|---|")
        for task in chosen.tasks:
            names = possible_ways(problem, task, chosen.most)
            measure(problem, task, names, chosen.repeats, time.process_time if chosen.cpu else time.perf_counter)


if __name__ == "__main__":
    main()
