"""The benchmarks: which comparators run on which named cases, each run in a process of its own, one after the other."""

import math
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from lkgp.errors import InputError
from lkgp.persistence.paths import check_writable
from lkgp.studies.records import BenchmarkFile, Record
from lkgp.studies.registry import BENCHMARK, CASES, MEASUREMENTS, BenchmarkCase, Measurement, comparators
from lkgp.studies.runs import Run, perform_in_own_process

# A run that takes longer than this is given up, and recorded as such.
LONGEST_SECONDS = 3600.0
# A run that takes longer than this is not repeated: what is left of its variation matters less than the hours.
REPEATED_SECONDS = 100.0
# The comparator whose optimum the estimates of cost use.
REFERENCE = "lkgp"


def benchmark_cases() -> dict[str, list[tuple[str, BenchmarkCase]]]:
    """All named cases with the family that they belong to, by group."""
    found: dict[str, list[tuple[str, BenchmarkCase]]] = {}
    for family in CASES.all():
        for case in family.benchmarks:
            found.setdefault(case.group, []).append((family.name, case))
    return found


def measurements() -> dict[str, list[Measurement]]:
    """All measurements of lkgp alone, by group."""
    found: dict[str, list[Measurement]] = {}
    for entry in MEASUREMENTS.all():
        found.setdefault(entry.group, []).append(entry)
    return found


def group_names() -> list[str]:
    """The groups that users can name."""
    return [*benchmark_cases(), *measurements()]


def measurements_of(name: str) -> list[Measurement]:
    """The measurements of a group, or the one of that name; none if it is the name of cases."""
    groups = measurements()
    return groups.get(name) or [entry for group in groups.values() for entry in group if entry.name == name]


def cases_of(name: str) -> list[tuple[str, BenchmarkCase]]:
    """The cases of a group, or the first one of that name, with their families."""
    groups = benchmark_cases()
    named = [found for group in groups.values() for found in group if found[1].name == name]
    found = groups.get(name) or named[:1]
    if not found:
        cases = dict.fromkeys(case.name for group in groups.values() for _, case in group)
        raise InputError(
            f"there is no benchmark {name!r}; choose from the groups {', '.join(group_names())}, "
            f"or from the cases {', '.join(cases)}."
        )
    return found


def run_of(family: str, case: BenchmarkCase, comparator: str) -> Run:
    """The run of a comparator on a case."""
    return Run(family, case.dataset, comparator, 0, case.missing, case.size, BENCHMARK)


def run(
    names: Sequence[str],
    output: Path,
    *,
    methods: Sequence[str] = (),
    timeout: float = LONGEST_SECONDS,
    print_line: Callable[[str], None] = print,
) -> Record:
    """Run benchmarks, and save every result in `output` as soon as it is there. Returns the content of that file.

    names: groups, or single cases; empty means all groups
    methods: only these comparators; the results of the others stay as they are. A comparator that no case lists is
    run
        on all cases that were named.
    timeout: seconds that one run may take
    """
    check_names(methods)
    check_writable(output, overwrite=True)
    chosen = [
        (measurements_of(name), [] if measurements_of(name) else cases_of(name)) for name in names or group_names()
    ]
    results = BenchmarkFile(output)
    for measured, cases in chosen:
        for measurement in measured:
            results.keep(measurement.name, REFERENCE, measurement.measure(print_line))
        for family, case in cases:
            run_case(family, case, selected(case, methods), results, timeout, print_line)
    return results.content


def check_names(methods: Sequence[str]) -> None:
    """Raise an InputError for names that no comparator has."""
    known = comparators(BENCHMARK)
    for name in methods:
        if name not in known:
            raise InputError(f"there is no method {name!r}; choose from {', '.join(known)}.")


def selected(case: BenchmarkCase, methods: Sequence[str]) -> list[str]:
    """Which comparators run on a case."""
    if not methods:
        return list(case.comparators)
    listed = {name for group in benchmark_cases().values() for _, case in group for name in case.comparators}
    unlisted = [name for name in methods if name not in listed]
    return [*(name for name in case.comparators if name in methods), *unlisted]


def run_case(
    family: str,
    case: BenchmarkCase,
    names: Sequence[str],
    results: BenchmarkFile,
    timeout: float,
    print_line: Callable[[str], None],
) -> None:
    """Run comparators on one case in turn, and repeat those that are quick."""
    found: dict[str, list[Record]] = {name: [] for name in names}
    for repeat in range(case.repeats):
        for name, runs in found.items():
            if repeat and runs[0].get("total", math.inf) > REPEATED_SECONDS:
                continue
            optimum = (results.entry(case.name, REFERENCE) or {}).get("raw parameters")
            record = perform_in_own_process(run_of(family, case, name), timeout, optimum)
            runs.append(benchmark_entries(record))
            print_line(f"{case.name}: {name}: {summary(runs[-1])}")
            results.keep(case.name, name, median_run(runs))


def benchmark_entries(record: Record) -> Record:
    """The record of a run as it is kept in the file of the benchmarks."""
    if "failed" in record:
        return {name: record[name] for name in ("failed", "limit") if name in record}
    quality: dict[str, Any] = {
        short: record[name] for short, name in (("nll", "test_nll"), ("rmse", "test_rmse")) if name in record
    }
    return {
        "seconds": record["stages"],
        "total": record["seconds"],
        **quality,
        **record["details"],
        "peak memory": record["peak_memory"],
        **{name: record[name] for name in ("product", "cells", "observed", "truth")},
    }


def median_run(runs: list[Record]) -> Record:
    """The run of the median time, with the times of all."""
    worked = sorted((run for run in runs if "failed" not in run), key=lambda run: run["total"])
    if not worked:
        return runs[0]
    totals = [run["total"] for run in worked]
    return {**worked[(len(worked) - 1) // 2], "totals": totals, "total": statistics.median(totals)}


def summary(result: Record) -> str:
    """One phrase about how a run went."""
    if "failed" in result:
        return f"failed: {result['failed']}"
    quality = (
        f", test NLL {result['nll']:.3f}, RMSE {result['rmse']:.4f}"
        if "nll" in result
        else f" ({result.get('how', '')})"
    )
    return f"{result['total']:.1f} s, {result['peak memory'] / 1e9:.2f} GB{quality}"
