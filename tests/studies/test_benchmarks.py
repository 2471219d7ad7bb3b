"""Benchmarks keep results, find cases by name, and repeat what is quick."""

import json
from dataclasses import replace

import pytest
from typer.testing import CliRunner

from lkgp import InputError
from lkgp.cli import app
from lkgp.studies import benchmarks
from lkgp.studies.comparators.iterative import BY_STEPS
from lkgp.studies.registry import CASES, COMPARATORS, Comparator, always
from lkgp.studies.runs import perform_in_own_process


@pytest.fixture
def one_case(monkeypatch):
    """Leave only one case of the robot arm, with lkgp and one other comparator."""
    family = CASES.get("sarcos")
    case = replace(family.benchmarks[-1], comparators=("lkgp", BY_STEPS), repeats=2)
    assert case.name == "sarcos-90"
    monkeypatch.setattr(CASES, "all", lambda: [replace(family, benchmarks=(case,))])


def result_of(seconds: float) -> dict:
    return {"total": seconds, "seconds": {"fit": seconds}, "peak memory": 1e9, "nll": seconds}


def test_results_are_kept_and_failures_are_printed(one_case, tmp_path, monkeypatch):
    monkeypatch.setenv("LKGP_DATA", str(tmp_path / "nowhere"))
    lines: list[str] = []
    path = tmp_path / "results.json"
    kept = benchmarks.run(["robot"], path, methods=["lkgp"], print_line=lines.append)
    assert "LKGP_DATA" in kept["runs"][0]["failed"]
    assert len(lines) == 1
    run = benchmarks.run_of(*benchmarks.cases_of("sarcos-90")[0], "nobody")
    assert perform_in_own_process(run, 3600.0)["failed"].startswith("there is no comparator 'nobody'")
    assert json.loads(path.read_text())["versions"]["gpytorch"]


def test_one_contestant_runs_alone_beside_the_results_of_the_others(one_case, tmp_path, monkeypatch):
    asked = []

    def pretend(run, timeout, optimum):
        asked.append((run.method, optimum))
        return {
            **{"seconds": 1.0, "stages": {"fit": 1.0}, "details": {"raw parameters": {"x": [len(asked)]}}},
            **{"peak_memory": 1e9, "product": 0.1, "cells": 10, "observed": 5, "truth": {}},
        }

    monkeypatch.setattr(benchmarks, "perform_in_own_process", pretend)
    path = tmp_path / "results.json"
    benchmarks.run(["robot"], path, methods=["lkgp"])
    kept = benchmarks.run(["robot"], path, methods=[BY_STEPS])
    assert [run["contestant"] for run in kept["runs"]] == ["lkgp", BY_STEPS]
    # The path of the second leads to where the first has ended.
    assert [name for name, _ in asked] == ["lkgp", "lkgp", BY_STEPS, BY_STEPS]
    assert asked[2][1] == kept["runs"][0]["raw parameters"]
    # A later failure does not take the place of what was measured.
    monkeypatch.setattr(benchmarks, "perform_in_own_process", lambda *_: {"failed": "not done after 1 s"})
    assert benchmarks.run(["robot"], path, methods=["lkgp"])["runs"] == kept["runs"]
    with pytest.raises(InputError, match="no method 'nobody'"):
        benchmarks.run(["robot"], path, methods=["nobody"])


def test_a_contestant_that_no_case_lists_runs_where_it_is_asked(monkeypatch):
    monkeypatch.setitem(COMPARATORS.entries, "mine", Comparator("mine", always(object())))
    _, case = benchmarks.cases_of("era5-30")[0]
    assert benchmarks.selected(case, ["mine"]) == ["mine"]
    assert benchmarks.selected(case, ["lkgp", "mine"]) == ["lkgp", "mine"]
    assert benchmarks.selected(case, ["scikit-learn"]) == []
    assert benchmarks.selected(case, []) == list(case.comparators)


def test_groups_and_cases_are_found_by_name(tmp_path):
    assert [case.name for _, case in benchmarks.cases_of("weather")] == ["era5-10", "era5-30", "era5-50"]
    assert [case.name for _, case in benchmarks.cases_of("learning-curves-400")] == ["learning-curves-400"]
    with pytest.raises(InputError, match=r"no benchmark 'wheather'; choose from .* curves, .* the cases .* era5-10"):
        benchmarks.run(["products", "wheather"], tmp_path / "results.json")


def test_every_listed_comparator_has_settings_for_benchmarks():
    known = benchmarks.comparators("benchmark")
    for group in benchmarks.benchmark_cases().values():
        for _, case in group:
            assert case.comparators[0] == "lkgp"
            assert set(case.comparators) <= set(known)


def test_the_median_run_is_kept():
    runs = [result_of(seconds) for seconds in (3.0, 1.0, 2.0)]
    assert benchmarks.median_run(runs)["total"] == 2.0
    assert benchmarks.median_run(runs)["nll"] == 2.0
    assert benchmarks.median_run([{"failed": "x"}]) == {"failed": "x"}


def test_unknown_names_are_refused(tmp_path):
    with pytest.raises(InputError, match="there is no benchmark 'weather-10'"):
        benchmarks.cases_of("weather-10")
    with pytest.raises(InputError, match="there is no comparator 'nobody'"):
        COMPARATORS.get("nobody")
    result = CliRunner().invoke(app, ["bench", "nothing", "--output", str(tmp_path / "x.json")])
    assert result.exit_code == 2
    assert "there is no benchmark 'nothing'" in result.output
