"""One run: a comparator with the settings of a preset on one problem, done in this process or in one of its own."""

import time
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from lkgp.errors import InputError
from lkgp.machine import peak_memory
from lkgp.studies.measurements.products import product_seconds
from lkgp.studies.predictions import CostEstimate, EstimatesCost, Method, Prediction, RawParameters
from lkgp.studies.problems import Problem
from lkgp.studies.processes import call_in_own_process
from lkgp.studies.records import Record, provenance, today
from lkgp.studies.registry import BENCHMARK, CASES, COMPARATORS, check_installed
from lkgp.studies.scoring import score


@dataclass(frozen=True)
class Run:
    """What identifies a result.

    experiment: a family of cases, such as sarcos, lcbench or climate
    dataset: one of its datasets
    method: the name of a comparator
    seed: of the split, and of the comparator
    missing: the share of withheld cells, or of curves that are cut; 0 if the data come with their gaps
    size: rows of the grid, None for all
    preset: small, paper, benchmark, full or quick
    """

    experiment: str
    dataset: str
    method: str
    seed: int
    missing: float
    size: int | None
    preset: str

    def __str__(self) -> str:
        rows = f", {self.size} rows" if self.size else ""
        share = f", {self.missing:.0%} missing" if self.missing else ""
        data = f"{self.experiment} {self.dataset}{rows}{share}, seed {self.seed}"
        return f"{data}: {self.method} ({self.preset})"

    def problem(self) -> Problem:
        """The data."""
        return CASES.get(self.experiment).make_problem(self.dataset, self.missing, self.size, self.seed)


def key(record: Record) -> tuple[Any, ...]:
    """What identifies the run of a record."""
    return tuple(record[name] for name in Run.__dataclass_fields__)


def perform(run: Run, optimum: RawParameters | None = None) -> Record:
    """Do a run in this process.

    optimum: where lkgp's search ended on the same problem, which estimates of cost need
    """
    comparator = COMPARATORS.get(run.method)
    if run.preset not in comparator.presets:
        raise InputError(f"{run.method} has no settings for the preset {run.preset!r}.")
    check_installed(comparator.name, comparator.needs)
    problem = run.problem()
    benchmark = run.preset == BENCHMARK
    # The speed of the machine, measured in the same process just before: one product with one vector.
    speed = {"product": product_seconds(problem.values.shape)} if benchmark else {}
    began = time.perf_counter()
    outcome = call(comparator.settings(run.preset, run.experiment), problem, run, optimum)
    elapsed = time.perf_counter() - began
    found, stages, details = outcome_entries(problem, outcome, elapsed)
    if benchmark:
        found |= {"stages": stages, "details": details, "truth": problem.truth, **speed}
    elif (examples := CASES.get(run.experiment).examples) is not None and isinstance(outcome, Prediction):
        found["shown"] = examples(problem, outcome)
    size = {"observed": int(problem.observed.sum()), "cells": int(problem.observed.size)}
    return {**asdict(run), **found, "peak_memory": peak_memory(), **size, **provenance()}


def outcome_entries(
    problem: Problem, outcome: Prediction | CostEstimate, elapsed: float
) -> tuple[Record, dict[str, float], Record]:
    """The entries of a record, the seconds of the stages, and the details, of what a comparator returned."""
    if isinstance(outcome, CostEstimate):
        stages = {"fit": outcome.seconds}
        return {"seconds": outcome.seconds}, stages, {"steps": outcome.steps, "how": outcome.how}
    stages = outcome.seconds or {"fit and predictions": elapsed}
    entries = {**score(problem, outcome), "seconds": sum(stages.values()), "report": outcome.report}
    return entries, stages, outcome.details


def call(method: Method, problem: Problem, run: Run, optimum: RawParameters | None) -> Prediction | CostEstimate:
    """Let a method predict, or estimate its cost."""
    if isinstance(method, EstimatesCost):
        if optimum is None:
            raise InputError(f"the cost of {run.method} is estimated on the way to lkgp's optimum; run lkgp first.")
        return method.estimate_cost(problem, optimum)
    prediction = method.fit_predict(problem, run.seed)
    if not (np.isfinite(prediction.mean).all() and np.isfinite(prediction.std).all()):
        raise InputError("the predictions are not finite.")
    return prediction


def perform_record(run: Record, optimum: RawParameters | None) -> Record:
    """`perform`, from what JSON can represent."""
    return perform(Run(**run), optimum)


def perform_in_own_process(run: Run, timeout: float, optimum: RawParameters | None = None) -> Record:
    """Do a run in a process of its own; a failure is a record, too.

    timeout: seconds after which it is given up
    """
    arguments = {"run": asdict(run), "optimum": optimum}
    found = call_in_own_process(perform_record, arguments, timeout)
    return found if "failed" not in found else {**asdict(run), "date": today(), **found}
