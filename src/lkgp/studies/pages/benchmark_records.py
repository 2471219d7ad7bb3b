"""How the pages look up the results of the benchmarks."""

from lkgp.studies.benchmarks import REFERENCE, benchmark_cases
from lkgp.studies.records import Record


def titles() -> dict[str, str]:
    """The headings of all named cases, in the order of the page."""
    return {case.name: case.title for group in benchmark_cases().values() for _, case in group}


def title(case: str) -> str:
    """The heading of a case; its name if it is no longer known."""
    return titles().get(case, case)


def by_case(results: Record, prefix: str = "") -> dict[str, list[Record]]:
    """The runs of the comparators by case, those of lkgp first; measurements of lkgp alone are left out.

    prefix: only of cases whose names start with it
    """
    found: dict[str, list[Record]] = {name: [] for name in titles()}
    for run in results["runs"]:
        if ("total" in run or "failed" in run) and run["case"].startswith(prefix):
            found.setdefault(run["case"], []).append(run)
    for runs in found.values():
        runs.sort(key=lambda run: run["contestant"] != REFERENCE)
    return {case: runs for case, runs in found.items() if runs}


def reference_run(runs: list[Record]) -> Record | None:
    """The run of lkgp, if it did not fail."""
    return next((run for run in runs if run["contestant"] == REFERENCE and "failed" not in run), None)


def measurement(results: Record, name: str) -> Record | None:
    """The record of a measurement, if there is one."""
    return next((run for run in results["runs"] if run["case"] == name), None)


def percent_missing(case: str) -> int:
    """The number at the end of the name of a case: 90 of sarcos-90."""
    return int(case.rpartition("-")[2])


def robot_seconds(results: Record) -> dict[str, dict[int, float]]:
    """The seconds of every comparator on the robot arm, by the percentage missing."""
    seconds: dict[str, dict[int, float]] = {}
    for case, runs in by_case(results, "sarcos-").items():
        for run in runs:
            if "failed" not in run:
                seconds.setdefault(run["contestant"], {})[percent_missing(case)] = run["total"]
    return seconds
