"""Runs: what is asked, what came of it, and a file in which no finished result is ever lost.

A run is done in a process of its own, so that its peak memory is known and a crash costs nothing else.
"""

import json
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from lkgp.errors import InputError
from lkgp.machine import hardware, peak_memory, run_module, versions
from lkgp.studies import problems
from lkgp.studies.methods import PRESETS, Prediction
from lkgp.studies.records import Record, append, read
from lkgp.studies.units import scores

LONGEST_SECONDS = 7200.0
COVERED = (0.5, 0.8, 0.95)
SHOWN_CURVES = 3


@dataclass(frozen=True)
class Run:
    """What identifies a result.

    experiment: sarcos, lcbench or climate; dataset: of it; method: a name from `methods.NAMES`; seed: of the split and of the method
    missing: the share of withheld cells, or of cut curves; size: rows of the grid, None for all; preset: small or paper
    """

    experiment: str
    dataset: str
    method: str
    seed: int
    missing: float
    size: int | None
    preset: str

    def in_words(self) -> str:
        rows = f", {self.size} rows" if self.size else ""
        return f"{self.experiment} {self.dataset}{rows}, {self.missing:.0%} missing, seed {self.seed}: {self.method} ({self.preset})"


def make_problem(run: Run) -> problems.Problem:
    """The data of a run."""
    if run.experiment == "lcbench":
        return problems.learning_curves(run.dataset, run.size or 2000, run.seed)
    if run.experiment == "sarcos":
        return problems.sarcos(run.missing, run.seed, run.dataset, run.size)
    if run.experiment == "climate":
        name, _, every = run.dataset.partition("/")  # ERA5/3: every third place and hour
        if name == "ERA5":
            return problems.era5(run.missing, run.seed, int(every or 1))
        if name in ("TG", "RR"):
            return problems.nordic(name, run.missing, run.seed)
    raise InputError(f"there is no data {run.dataset!r} for the experiment {run.experiment!r}.")


def score(problem: problems.Problem, prediction: Prediction) -> dict[str, float]:
    """RMSE, NLL, CRPS and coverage on the cells that were seen and on those that were withheld."""
    found: dict[str, float] = {}
    for part, chosen in (("train", problem.observed), ("test", ~problem.observed)):
        y, m, s = (np.asarray(a, dtype=np.float64)[chosen] for a in (problem.values, prediction.mean, prediction.std))
        found |= {f"{part}_{name}": value for name, value in scores(prediction.units, y, m, s, COVERED).items()}
    return found


def perform(run: Run) -> Record:
    """Do a run in this process."""
    problem = make_problem(run)
    method = PRESETS[run.preset](run.experiment)[run.method]
    began = time.perf_counter()
    prediction = method(problem, run.seed)
    seconds = time.perf_counter() - began
    if not (np.isfinite(prediction.mean).all() and np.isfinite(prediction.std).all()):
        raise InputError("the predictions are not finite.")
    shown = {"shown": some_curves(problem, prediction)} if run.experiment == "lcbench" else {}
    return {
        **asdict(run),
        **shown,
        **score(problem, prediction),
        "seconds": seconds,
        "peak_memory": peak_memory(),
        "observed": int(problem.observed.sum()),
        "cells": int(problem.observed.size),
        "report": prediction.report,
        "date": time.strftime("%Y-%m-%d"),
        "versions": versions(),
        "hardware": hardware(),
    }


def some_curves(problem: problems.Problem, prediction: Prediction) -> Record:
    """How the first few curves that were cut in the middle are continued, for a picture; the curves themselves stay with the data."""
    length = problem.observed.sum(axis=1)
    middle = (length > problem.observed.shape[1] // 6) & (length < problem.observed.shape[1] // 2)
    rows = np.flatnonzero(middle)[:SHOWN_CURVES]
    mean, std, undo = prediction.mean[rows], prediction.std[rows], prediction.units.undo
    arrays = {"mean": undo(mean), "low": undo(mean - 2 * std), "high": undo(mean + 2 * std)}
    return {
        "rows": rows.tolist(),
        "cuts": length[rows].tolist(),
        **{name: np.round(array, 5).tolist() for name, array in arrays.items()},
    }


def perform_alone(run: Run, timeout: float = LONGEST_SECONDS) -> Record:
    """The same in a process of its own; a failure is a record, too."""
    found = run_module("lkgp.studies.runs", [], json.dumps(asdict(run)), timeout)
    return found if "failed" not in found else {**asdict(run), "date": time.strftime("%Y-%m-%d"), **found}


def key(record: Record) -> tuple[Any, ...]:
    return tuple(record[name] for name in Run.__dataclass_fields__)


def run_all(runs: Iterable[Run], path: Path, tell: Callable[[str], None], timeout: float = LONGEST_SECONDS) -> None:
    """Do what is not done yet, and append each result to `path` as soon as it is there.

    Failures are tried again next time, but what took too long only with more time.
    """
    wanted = list(runs)
    done = {key(record) for record in read(path) if "failed" not in record or record.get("limit", 0.0) >= timeout}
    todo = [run for run in wanted if tuple(asdict(run).values()) not in done]
    tell(f"{len(wanted)} runs, {len(wanted) - len(todo)} of them done before")
    for count, run in enumerate(todo, start=1):
        record = perform_alone(run, timeout)
        append(path, record)
        tell(f"{count}/{len(todo)} {run.in_words()}: {outcome(record)}")


def outcome(record: Record) -> str:
    if "failed" in record:
        return f"failed: {record['failed']}"
    return f"test NLL {record['test_nll']:.3f}, RMSE {record['test_rmse']:.3f}, {record['seconds']:.1f} s"


def main() -> None:
    try:
        print(json.dumps(perform(Run(**json.loads(sys.stdin.read())))))
    except InputError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
