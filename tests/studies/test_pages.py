"""Pages, tables and figures say what the results say."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from lkgp.cli import app
from lkgp.machine import hardware, versions
from lkgp.studies import datasets, experiments
from lkgp.studies.comparators.iterative import ITERATIVE
from lkgp.studies.comparators.lkgp import PAPER_KERNELS, WITH_GRID, WITHOUT_GRID
from lkgp.studies.comparators.paper_recipe import BY_STEPS
from lkgp.studies.measurements import break_even, resources
from lkgp.studies.pages import experiments as experiments_page
from lkgp.studies.pages import performance, sarcos, tables
from lkgp.studies.pages.published import paper_name, paper_results


def result_of(case, contestant, seconds, **more):
    return {
        "case": case,
        "contestant": contestant,
        "total": seconds,
        "seconds": {"fit": seconds},
        "peak memory": 1e9,
        **more,
    }


def test_the_page_says_what_the_results_say(tmp_path):
    report = {"method": "spectral", "fit": "converged", "steps": 5, "predicted": {"memory": 2e9}}
    recovered = {"noise": 0.051}
    results = {
        "hardware": hardware(),
        "versions": versions(),
        "date": "today",
        "runs": [
            result_of("era5-30", BY_STEPS, 2500.0, how="from steps 0, 50, 99 of 100"),
            result_of("era5-30", "lkgp", 100.0, nll=-1.5, rmse=0.05, report=report),
            result_of(
                "climate-10",
                "lkgp",
                400.0,
                nll=0.1,
                rmse=0.2,
                report=report,
                product=0.4,
                recovered=recovered,
                truth={"noise": 0.05},
            ),
            {"case": "sarcos-10", "contestant": WITHOUT_GRID, "failed": "not done after 10 s"},
            result_of("sarcos-90", "lkgp", 50.0, nll=0.1, rmse=0.2, report={**report, "method": "direct: 9 unknowns"}),
            result_of(
                "sarcos-70",
                "lkgp",
                80.0,
                nll=0.1,
                rmse=0.2,
                totals=[79, 80, 91],
                report={**report, "method": "iterative, with the grid"},
            ),
            result_of("sarcos-90", WITH_GRID, 77.0, nll=0.1, rmse=0.2, report=report),
            {
                "case": "products",
                "contestant": "lkgp",
                "rows": [{"name": "2 x 2", "latent": 9e9, "plain": 1e10, "ratio": 0.9}],
            },
            {
                "case": "growth",
                "contestant": "lkgp",
                "rows": {
                    k: [{"cells": 10.0**i, "seconds": 10.0**i, "peak memory": 1e9} for i in (2, 3, 4)]
                    for k in ("product", "fit")
                },
                "predicted": 1.5,
            },
        ],
    }
    performance.write(results, tmp_path / "page.md")
    text = (tmp_path / "page.md").read_text()
    for words in (
        "| 25.0 |",
        "not run to its end",
        "the time of 1000 latent Kronecker products with a single vector",
        "noise 0.051 (true 0.05)",
        "not done after 10 s",
        "0.90",
        "product 1.00, fit 1.00",
        "| lkgp | 80 | 50 |",
        "| lkgp, with the grid |  | 77 |",
        "70 %: iterative, 90 %: direct",
        "the median of 3 runs, 79.0 to 91.0",
    ):
        assert words in text
    for picture in ("performance-ratios.png", "performance-robot.png", "performance-growth.png"):
        assert (tmp_path / picture).stat().st_size > 5000
        assert picture in text


def test_average_ranks():
    scores = {"a": {"x": 1.0, "y": 3.0, "only here": 0.0}, "b": {"x": 2.0, "y": 1.0}, "c": {"x": 3.0, "y": 2.0}}
    assert tables.average_ranks(scores) == {"a": (2.0, 1.0), "b": (1.5, 0.5), "c": (2.5, 0.5)}
    assert tables.average_ranks({"a": {"x": 1.0}, "b": {"x": 1.0}}) == {"a": (1.5, 0.0), "b": (1.5, 0.0)}
    assert tables.average_ranks({}) == {}


def test_the_ranks_that_the_paper_prints_are_positions_of_a_sort():
    """Its columns "Average Rank" are what argsort returns once, not twice: CaGP's 3.000 in test NLL is VNNGP's."""
    published = paper_results()
    sets = {paper_name(dataset) for dataset in datasets.LCBENCH_SETS}
    assert len(sets) == 35
    assert None not in sets
    order = ("LKGP", "SVGP", "VNNGP", "CaGP")
    for metric, printed, ranks in (
        ("train_rmse", (1.171, 2.771, 2.314, 3.743), (1.086, 2.957, 2.229, 3.729)),
        ("train_nll", (1.029, 2.4, 3.286, 3.286), (1.029, 2.371, 3.343, 3.257)),
        ("test_nll", (1.257, 2.543, 3.2, 3.0), (1.314, 2.071, 4.0, 2.614)),
        ("minutes_a100", (1.0, 2.0, 4.0, 3.0), (1.0, 2.0, 4.0, 3.0)),
    ):
        means = np.array([[published[(s, m, metric)][0] for m in order] for s in sets])
        assert (means.argsort(axis=1) + 1).mean(axis=0) == pytest.approx(printed, abs=1e-3)
        found = tables.average_ranks({m: {s: published[(s, m, metric)][0] for s in sets} for m in order})
        assert [found[m][0] for m in order] == pytest.approx(ranks, abs=1e-3)


def test_break_even_is_found_between_ratios():
    rows = [{"missing": 0.1 * i, "without_seconds": 4.0 ** (5 - i), "with_seconds": 2.0} for i in range(1, 10)]
    assert sarcos.crossing(rows, "seconds") == pytest.approx(0.45)
    assert sarcos.crossing(rows[:3], "seconds") is None
    time_point, memory_point = sarcos.break_even_points(4449)
    assert time_point == pytest.approx(1 - np.sqrt(1 / 4449 + 1 / 7))
    assert memory_point == pytest.approx(1 - np.sqrt(1 / 4449**2 + 1 / 49))


def test_one_command_runs_and_one_reports(curves_folder, tmp_path):
    results, page = tmp_path / "results", tmp_path / "experiments.md"
    arguments = ["experiment", "lcbench", "--dataset", "segment", "--seeds", "1", "--results", str(results)]
    alone = CliRunner().invoke(app, [*arguments, "--method", "LKGP"])
    assert "1 run, 0 already done" in alone.output
    result = CliRunner().invoke(app, ["experiment", "report", "--results", str(results), "--page", str(page)])
    assert result.exit_code == 0, result.output
    result = CliRunner().invoke(app, [*arguments, "--method", "LKGP", "--method", "CaGP", "--timeout", "0.5"])
    assert result.exit_code == 0, result.output
    assert "2 runs, 1 already done" in result.output
    resources.measure(results / "synthetic.jsonl", print, sides=(4, 6))
    result = CliRunner().invoke(app, ["experiment", "report", "--results", str(results), "--page", str(page)])
    assert result.exit_code == 0, result.output
    text = page.read_text()
    assert "| test NLL | segment | average rank |" in text
    assert "| LKGP | **" in text
    for picture in ("experiment-curves.png", "experiment-synthetic.png"):
        assert picture in text
        assert (tmp_path / picture).stat().st_size > 10_000
    empty = CliRunner().invoke(app, ["experiment", "report", "--results", str(tmp_path / "empty"), "--page", str(page)])
    assert empty.exit_code == 2
    assert "no results in" in empty.output
    wrong = CliRunner().invoke(app, ["experiment", "robots", "--results", str(results)])
    assert wrong.exit_code == 2
    assert "no experiment 'robots'" in wrong.output


def test_the_report_shows_robots_and_weather(tmp_path):
    generator = np.random.default_rng(0)
    scores = ("train_rmse", "test_rmse", "train_nll", "test_nll", "test_crps", "test_in_95", "seconds", "peak_memory")
    for experiment, dataset in (("sarcos", "test"), ("climate", "ERA5/3")):
        wanted = experiments.plan(experiment, "small", methods=["LKGP", PAPER_KERNELS, "SVGP"])
        if experiment == "sarcos":
            wanted += experiments.plan(experiment, "small", methods=[ITERATIVE])
        assert {run.dataset for run in wanted} == {dataset}
        lines = [
            {**run.__dict__, **{s: generator.random() for s in scores}, "cells": 7000, "date": "2026-01-01"}
            for run in wanted
        ]
        lines[0] = {**wanted[0].__dict__, "failed": "too little memory", "date": "2026-01-01"}
        (tmp_path / f"{experiment}.jsonl").write_text("\n".join(map(json.dumps, lines)) + "\n")
    rows = [{"states": 1000, "missing": r, **break_even.measure_one((30, 7), r)} for r in (0.1, 0.9)]
    (tmp_path / "break_even.jsonl").write_text("\n".join(map(json.dumps, rows)) + "\n")
    experiments_page.write(tmp_path, tmp_path / "page.md")
    text = (tmp_path / "page.md").read_text()
    assert "over 9 pairs of runs" in text
    assert "| LKGP | failed |" in text
    assert "| 1000 x 7 | time, 1 - sqrt(1/p + 1/q) | 0.621 |" in text
    assert "the paper's LKGP on 5000 Nordic places" in text
    assert len(list(tmp_path.glob("experiment-*.png"))) == 3
