"""Every comparator runs, predicts and is scored; a new one is one new file."""

import json
import math
import sys
from dataclasses import replace

import pytest
from study_problems import smooth_problem, tiny_problem

from lkgp import InputError
from lkgp.studies import comparators as comparators_package
from lkgp.studies import experiments, runs
from lkgp.studies.comparators.botorch import FitBoTorch
from lkgp.studies.comparators.cagp import FitCaGP
from lkgp.studies.comparators.inverse_distances import INVERSE_DISTANCES
from lkgp.studies.comparators.linear_interpolation import LINEAR
from lkgp.studies.comparators.nearest_neighbours import NEAREST
from lkgp.studies.comparators.paper_recipe import SETTINGS, FitRecipe
from lkgp.studies.comparators.svgp import FitSVGP
from lkgp.studies.comparators.vnngp import FitVNNGP
from lkgp.studies.registry import CASES, COMPARATORS, PRESETS, CaseFamily, Comparator, always, comparators
from lkgp.studies.scoring import score

EXPERIMENT_COMPARATORS = (
    "LKGP",
    "LKGP, the paper's kernels",
    "LKGP, the paper's recipe",
    "iterative GP without the grid",
    "SVGP",
    "VNNGP",
    "CaGP",
    "imaginary observations",
)


@pytest.fixture
def tiny_case(monkeypatch):
    """A family of cases with one tiny problem."""
    family = CaseFamily("tiny", lambda dataset, missing, size, seed: tiny_problem())
    monkeypatch.setitem(CASES.entries, "tiny", family)
    return "tiny"


TOY = """
from dataclasses import dataclass

import numpy as np

from lkgp.studies.predictions import Prediction
from lkgp.studies.registry import COMPARATORS, Comparator, always


@dataclass(frozen=True)
class ColumnMeans:
    def fit_predict(self, problem, seed):
        mean = np.broadcast_to(np.nanmean(problem.seen, axis=0), problem.values.shape)
        return Prediction(mean, np.full(mean.shape, np.nanstd(problem.seen)), {"columns": mean.shape[1]})


COMPARATORS.register(Comparator("column means", always(ColumnMeans())))
"""


def test_a_new_comparator_is_one_new_file(tiny_case, tmp_path, monkeypatch):
    entries = {entry.name: entry for entry in COMPARATORS.all()}
    monkeypatch.setattr(COMPARATORS, "entries", entries)
    (tmp_path / "column_means.py").write_text(TOY)
    monkeypatch.setattr(comparators_package, "__path__", [*comparators_package.__path__, str(tmp_path)])
    try:
        assert list(comparators("small"))[-1] == "column means"
        assert {run.method for run in experiments.plan("sarcos", "small")} >= {"column means", "LKGP"}
        record = runs.perform(runs.Run(tiny_case, "tiny", "column means", 0, 0.3, None, "small"))
    finally:
        sys.modules.pop(f"{comparators_package.__name__}.column_means", None)
    assert record["report"] == {"columns": 6}
    assert record["cells"] == 48
    assert record["seconds"] > 0
    assert 0 < record["test_rmse"] < 2
    assert json.dumps(record)


def test_what_a_comparator_needs_is_said(tiny_case, monkeypatch):
    needy = Comparator("needy", always(object()), needs=("no_such_package",))
    monkeypatch.setitem(COMPARATORS.entries, "needy", needy)
    run = runs.Run(tiny_case, "tiny", "needy", 0, 0.3, None, "small")
    with pytest.raises(InputError, match="needy needs the package no_such_package"):
        runs.perform(run)
    with pytest.raises(InputError, match="SVGP has no settings for the preset 'benchmark'"):
        runs.perform(replace(run, method="SVGP", preset="benchmark"))


CONTESTANTS = ("lkgp", "lkgp, with the grid", "lkgp, without the grid", SETTINGS, "scikit-learn")


@pytest.mark.parametrize("name", [*CONTESTANTS, NEAREST, INVERSE_DISTANCES, LINEAR])
def test_contestants_run_and_are_scored(tiny_case, name, monkeypatch):
    if name == SETTINGS:
        shorter = replace(COMPARATORS.get(name), settings=always(FitRecipe(3, exact=True)))
        monkeypatch.setitem(COMPARATORS.entries, name, shorter)
    result = runs.perform(runs.Run(tiny_case, "tiny", name, 0, 0.3, None, "benchmark"))
    assert result["seconds"] == pytest.approx(sum(result["stages"].values()))
    assert result["product"] > 0
    assert result["test_rmse"] < 2
    assert math.isfinite(result["test_nll"])
    assert json.dumps(result)


def test_botorch_runs_and_is_scored():
    problem = tiny_problem()
    result = FitBoTorch().fit_predict(problem, 0)
    found = score(problem, result)
    assert found["test_rmse"] < 2
    assert "how" not in result.details
    stopped = FitBoTorch(longest_fit=0.01).fit_predict(problem, 0)
    assert stopped.details["how"].startswith("stopped after")
    assert math.isfinite(score(problem, stopped)["test_nll"])
    assert score(problem, stopped)["test_nll"] != found["test_nll"]


@pytest.mark.parametrize("method", EXPERIMENT_COMPARATORS)
def test_every_method_beats_the_mean(method):
    problem = smooth_problem()
    shorter = {
        "LKGP, the paper's recipe": FitRecipe(15),
        "SVGP": FitSVGP(60, 60, 0.05, batch=100),
        "VNNGP": FitVNNGP(16, 50, 0.05, batch=100),
        "CaGP": FitCaGP(40, 80, 0.1),
    }
    chosen = shorter.get(method) or COMPARATORS.get(method).settings("small", "lcbench")
    prediction = chosen.fit_predict(problem, seed=0)
    found = score(problem, prediction)
    assert prediction.mean.shape == prediction.std.shape == (25, 16)
    assert found["test_rmse"] < 0.75 * problem.values.std()
    assert 0.7 < found["test_in_95"] <= 1


def test_presets_have_every_method():
    for preset in PRESETS:
        assert tuple(comparators(preset)) == EXPERIMENT_COMPARATORS
        for experiment in experiments.experiment_names()[1:]:
            for entry in comparators(preset).values():
                assert hasattr(entry.settings(preset, experiment), "fit_predict")
