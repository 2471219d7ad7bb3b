"""The scripts that compare versions and measure constants run, on sizes so small that nothing is learned."""

import importlib
import math
from pathlib import Path

import numpy as np
import pytest
from gpytorch.kernels import RBFKernel, ScaleKernel

from lkgp.studies.problems import FIRST_NOISE, Problem

SCRIPTS = Path(__file__).parents[1] / "scripts"
# Those that start other processes take seconds, of which nearly all is importing torch.
IN_PROCESSES = ("SOLVE_ARRAYS", "DIRECT_ARRAYS")


@pytest.fixture
def script(monkeypatch):
    """Imports a script by its name."""
    monkeypatch.syspath_prepend(str(SCRIPTS))
    return importlib.import_module


def test_every_constant_is_measured(script):
    calibrate, effort = script("calibrate_costs"), script("calibration.comparing").Effort(seconds=0.0, scale=0.03)
    for name in calibrate.MEASUREMENTS.keys() - set(IN_PROCESSES):
        constant, where, value, measured, put = calibrate.row(name, effort)
        assert constant == name
        assert where.startswith("lkgp.")
        assert float(value) > 0
        assert measured
        assert put


def test_memory_is_measured(script):
    simulated = script("calibration.simulated")
    direct = importlib.import_module("lkgp.inference").Direct()
    assert simulated.bytes_of_curves(16, 0.003, direct) >= 0
    assert simulated.in_own_process(math.sqrt, 4.0) == 2.0


def test_crossovers_lose_least(script):
    crossover = script("calibration.comparing").crossover
    sizes = [10, 20, 40]
    assert crossover(sizes, [0.5, 2.0, 3.0])[1] == 20
    assert crossover(sizes, [2.0, 2.0, 3.0])[1] == 0
    assert crossover(sizes, [0.5, 0.5, 0.9])[1] == math.inf
    assert crossover(sizes, [0.5, 2.0, 0.95])[1] == 20  # one that is slightly wrong is outvoted
    assert crossover(sizes, [0.5, 1.05, 3.0], present=30)[1] == 30  # either way will do at 20
    assert crossover(sizes, [0.5, 1.5, 3.0], present=30)[1] == 20


def test_a_saved_problem_is_fitted_as_given(script, tmp_path):
    compare, worker = script("compare_versions"), script("fit_saved_problem")
    rng = np.random.default_rng(0)
    coords = [np.linspace(0, 1, 6)[:, None], np.linspace(0, 1, 5)[:, None]]
    values = np.sin(3 * coords[0]) * coords[1].T + 0.1 * rng.normal(size=(6, 5))
    observed = rng.uniform(size=(6, 5)) < 0.8
    problem = Problem("small", coords, values, observed, lambda: [ScaleKernel(RBFKernel()), RBFKernel()])
    compare.save_problem(problem, tmp_path)
    found = worker.fit(tmp_path)
    by_hand = worker.lkgp.LKGP(problem.make_kernels(), noise=FIRST_NOISE, standardize=False).fit(coords, problem.seen)
    assert found["log_likelihood"] == by_hand.report_.log_likelihood
    mean, std = by_hand.predict(observation_noise=True)
    with np.load(tmp_path / "prediction.npz") as saved:
        np.testing.assert_array_equal(saved["mean"], mean)
        np.testing.assert_array_equal(saved["std"], std)


def test_versions_are_compared_in_pairs(script, tmp_path):
    compare = script("compare_versions")
    trees = {"before": tmp_path / "a", "after": tmp_path / "b"}

    def record(label, pair, seconds, **others):
        scores = {"test_nll": 0.5, "test_rmse": 0.25, "log_likelihood": -1.0, "peak_memory": 2e9}
        return {
            "case": "x",
            "pair": pair,
            **compare.identity(label, trees[label]),
            "seconds": seconds,
            **scores,
            **others,
        }

    records = [
        record("before", "1", 2.0),
        record("after", "1", 1.0),
        record("after", "2", 3.0),
        record("before", "2", 4.0),
    ]
    unfinished = [record("before", "3", 9.0), record("after", "3", 9.0, failed="no memory"), record("before", "4", 9.0)]
    pairs = compare.finished_pairs("x", trees, records + unfinished + [record("after", "1", 9.0) | {"case": "y"}])
    assert [pair["before"]["seconds"] for pair in pairs] == [2.0, 4.0]
    table = compare.table_of("x", pairs)
    assert "| seconds, median | 3.00 | 2.00 | -1 | 0.625 |" in table
    assert "| all seconds | 2.00, 4.00 | 1.00, 3.00 | | |" in table
    assert "no pair" in compare.table_of("x", [])


def test_ways_are_compared_side_by_side(script, monkeypatch, capsys):
    compare = script("compare_ways")
    monkeypatch.setattr(compare, "ROWS", 12)
    monkeypatch.setattr(compare, "STEPS", 8)
    for gaps in (compare.staircase, compare.few_cut, compare.at_random, compare.block, compare.rows, compare.clouds):
        problem = compare.simulated(gaps, 1.5)
        assert 12 <= problem[1].grid.num_observed < 12 * 8
    names = compare.possible_ways(problem, "posterior", math.inf)
    assert names == list(compare.WAYS)
    ticks = iter(range(1000))
    for task in compare.TASKS:
        compare.measure(problem, task, names if task != "fit" else names[:2], 1, lambda: float(next(ticks)))
    printed = capsys.readouterr().out
    assert printed.count("| **automatic over direct** | | | **1.00** |") == 3
    assert "| posterior | automatic | 1.00 | direct, 1 iterations for the mean | |" in printed
