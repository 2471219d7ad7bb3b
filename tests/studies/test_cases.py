"""The cases have the published shapes, and the simulated ones the distribution that they claim."""

import math
import sys

import numpy as np
import pytest

from lkgp.studies import cases as cases_package
from lkgp.studies.benchmarks import cases_of, run_of
from lkgp.studies.cases.simulated_climate import simulated_climate
from lkgp.studies.experiments import plan
from lkgp.studies.problems import Problem
from lkgp.studies.registry import CASES
from lkgp.studies.runs import perform


def benchmark_problem(name: str) -> Problem:
    family, case = cases_of(name)[0]
    return run_of(family, case, "lkgp").problem()


NEW_CASE = """
from study_problems import tiny_problem

from lkgp.studies.registry import CASES, BenchmarkCase, CaseFamily, Design

CASES.register(
    CaseFamily(
        "tiny",
        lambda dataset, missing, size, seed: tiny_problem(),
        designs={"small": Design(("tiny",), (0.3,), None, seeds=2)},
        benchmarks=(BenchmarkCase("tiny-30", "tiny", "a tiny problem", ("lkgp",), "tiny", 0.3),),
    )
)
"""


def test_a_new_case_is_one_new_file(tmp_path, monkeypatch):
    entries = {entry.name: entry for entry in CASES.all()}
    monkeypatch.setattr(CASES, "entries", entries)
    (tmp_path / "tiny.py").write_text(NEW_CASE)
    monkeypatch.setattr(cases_package, "__path__", [*cases_package.__path__, str(tmp_path)])
    try:
        assert benchmark_problem("tiny-30").values.shape == (8, 6)
        planned = plan("tiny", "small", methods=["LKGP"])
        assert [run.seed for run in planned] == [0, 1]
        assert perform(planned[0])["cells"] == 48
    finally:
        sys.modules.pop(f"{cases_package.__name__}.tiny", None)


def test_the_simulated_climate_is_a_draw_from_its_prior():
    """Variance, and the correlation over half a period and a whole one."""
    case = simulated_climate(0.2, places=200, days=400)
    assert (~case.observed).sum() == int(0.2 * 200 * 400)
    truth = case.truth
    assert case.values.var() == pytest.approx(truth["scale"] + truth["noise"], rel=0.3)
    day = float(case.coords[1][1, 0] - case.coords[1][0, 0])
    period = round(truth["period"] / day)
    whole, half = (
        np.mean(case.values[:, lag:] * case.values[:, :-lag]) / case.values.var() for lag in (period, period // 2)
    )
    expected = math.exp(-0.5 * (period * day / truth["length of time"]) ** 2) / (1 + truth["noise"])
    assert whole == pytest.approx(expected, abs=0.25)
    assert abs(half) < 0.25


def test_real_cases_have_the_published_shapes(data_folder):
    curves = benchmark_problem("learning-curves-400")
    assert curves.coords[0].shape == (400, 7)
    assert curves.observed.sum() == 11286
    assert curves.values[curves.observed[:, -1], -1].std() == pytest.approx(1.227, abs=1e-3)
    robot = benchmark_problem("sarcos-30")
    assert robot.values.shape == (4449, 7)
    assert (~robot.observed).sum() == int(0.3 * 4449 * 7)
    weather = benchmark_problem("era5-50")
    assert weather.values.shape == (1617, 744)
    assert weather.values[weather.observed].std() == pytest.approx(1)
