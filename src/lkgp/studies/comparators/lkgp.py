"""lkgp itself: with its own kernels, with those of the paper, and with or without use of the grid."""

import time
from dataclasses import dataclass
from typing import Any

from lkgp import BFGS, LKGP, ObservationSpace
from lkgp.studies.predictions import SAMPLES, Prediction
from lkgp.studies.problems import FIRST_NOISE, Problem
from lkgp.studies.registry import BENCHMARK, COMPARATORS, PRESETS, Comparator, always
from lkgp.studies.units import Plain

OWN_KERNELS, PAPER_KERNELS = "LKGP", "LKGP, the paper's kernels"
LKGP_NAME, WITH_GRID, WITHOUT_GRID = "lkgp", "lkgp, with the grid", "lkgp, without the grid"


@dataclass(frozen=True)
class FitLKGP:
    """Fit, draw samples if they are asked for, and predict every cell.

    own: our own kernels, coordinates, units and default noise; else the paper's kernels from where the paper starts
    solver, optimizer: of `LKGP`
    samples: how many posterior samples are drawn, only to time them
    """

    own: bool
    solver: Any = "auto"
    optimizer: Any = "auto"
    samples: int = 0

    def __str__(self) -> str:
        text = "lkgp with its own kernels, inputs and units" if self.own else "lkgp with the paper's kernels"
        if self.solver != "auto":
            text += ", without use of the grid"
        if isinstance(self.optimizer, BFGS):
            text += f", until a step gains less than {self.optimizer.improvement:g} per observation"
        return text

    def fit_predict(self, problem: Problem, seed: int) -> Prediction:
        began = time.perf_counter()
        if self.own:
            coords = problem.own_coords if problem.own_coords is not None else problem.coords
            units = problem.own_units
            gp = LKGP(
                problem.make_own_kernels(),
                standardize=False,
                solver=self.solver,
                optimizer=self.optimizer,
                seed=seed,
            ).fit(coords, units.apply(problem.seen))
        else:
            units = Plain()
            gp = LKGP(
                problem.make_kernels(),
                noise=FIRST_NOISE,
                standardize=False,
                solver=self.solver,
                optimizer=self.optimizer,
                seed=seed,
            ).fit(problem.coords, problem.seen)
        seconds = {"fit and mean": time.perf_counter() - began}
        if self.samples:
            began = time.perf_counter()
            gp.sample(self.samples)
            seconds["samples"] = time.perf_counter() - began
        began = time.perf_counter()
        mean, std = gp.predict(observation_noise=True)
        seconds["predictions"] = time.perf_counter() - began
        report = gp.report_.to_dict()
        del report["history"]
        return Prediction(mean, std, report, units, seconds, details_of(gp, problem, report))


def details_of(gp: LKGP, problem: Problem, report: dict[str, Any]) -> dict[str, Any]:
    """What benchmarks record of a fit: its report, where the search ended, and recovered hyperparameters."""
    # By the names that they have in GPyTorch's own model of the paper, which starts from some of them.
    named = [(name.removeprefix("terms.0.").removeprefix("noise."), p) for name, p in gp.model_.named_parameters()]
    parameters = {name: p.detach().flatten().tolist() for name, p in named}
    details: dict[str, Any] = {"report": report, "raw parameters": parameters}
    if problem.fitted_truth is not None:
        noise = float(gp.model_.noise_variance().detach().mean())
        details["recovered"] = problem.fitted_truth(list(gp.model_.kernels), noise)
    return details


COMPARATORS.register(Comparator(OWN_KERNELS, always(FitLKGP(own=True)), presets=PRESETS, order=1))
COMPARATORS.register(Comparator(PAPER_KERNELS, always(FitLKGP(own=False)), presets=PRESETS, order=2))
for position, (name, solver) in enumerate(
    ((LKGP_NAME, "auto"), (WITH_GRID, ObservationSpace()), (WITHOUT_GRID, ObservationSpace(dense=True)))
):
    method = FitLKGP(own=False, solver=solver, samples=SAMPLES)
    COMPARATORS.register(Comparator(name, always(method), presets=(BENCHMARK,), order=20 + position))
