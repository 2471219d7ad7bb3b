"""The competition: its data, its methods, its scores and its page."""

import json

import numpy as np
import pytest
import scipy.stats
import torch
from competition_data import write_competition_data
from study_problems import smooth_problem
from typer.testing import CliRunner

from lkgp import InputError, metrics
from lkgp.cli import app
from lkgp.studies import experiments, runs, spatial_datasets
from lkgp.studies.cases import competition as cases
from lkgp.studies.comparators.fill import FILL
from lkgp.studies.comparators.gpboost import GNEITING, ROUGH, SMOOTH, SPACE_TIME
from lkgp.studies.comparators.inverse_distances import INVERSE_DISTANCES, weighted_by_distance
from lkgp.studies.comparators.linear_interpolation import LINEAR, between_neighbours
from lkgp.studies.comparators.nearest_neighbours import NEAREST, mean_of_nearest
from lkgp.studies.models.cell_table import cell_coords, comparable_coords
from lkgp.studies.pages import competition as page
from lkgp.studies.registry import COMPARATORS
from lkgp.studies.scoring import score

SIMPLE = (NEAREST, INVERSE_DISTANCES, LINEAR)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with small made-up data, named by LKGP_DATA."""
    write_competition_data(tmp_path)
    monkeypatch.setenv("LKGP_DATA", str(tmp_path))
    return tmp_path


def test_the_interval_score_by_hand():
    truth, low, high = (torch.tensor(a, dtype=torch.float64) for a in ([0.0, 3.0, -2.0], [-1.0] * 3, [1.0] * 3))
    # Inside; above by 2, and below by 1, each multiplied by 2 / 0.05.
    assert metrics.interval_score(truth, low, high, 0.95) == pytest.approx((2 + (2 + 80) + (2 + 40)) / 3)
    assert metrics.mae(truth, low) == pytest.approx((1 + 4 + 1) / 3)


def test_only_withheld_cells_with_a_known_truth_are_scored(folder):
    problem = cases.satellite()
    with np.load(folder / "heaton_satellite.npz") as table:
        train, truth = table["train"].astype(float), table["truth"].astype(float)
    assert np.isnan(problem.values).sum() == 6
    assert np.array_equal(problem.seen, train, equal_nan=True)
    assert np.array_equal(problem.make_field().values, train, equal_nan=True)
    prediction = COMPARATORS.get(NEAREST).settings("full", "competition").fit_predict(problem, 0)
    found = score(problem, prediction)
    chosen = np.isnan(train) & np.isfinite(truth)
    y, mean, std = truth[chosen], prediction.mean[chosen], prediction.std[chosen]
    low, high = scipy.stats.norm(mean, std).interval(0.95)
    assert found["test_mae"] == pytest.approx(np.abs(y - mean).mean())
    assert found["test_rmse"] == pytest.approx(np.sqrt(np.mean((y - mean) ** 2)))
    penalty = np.maximum(low - y, 0) + np.maximum(y - high, 0)
    assert found["test_interval_95"] == pytest.approx(np.mean(high - low + 40 * penalty))
    assert found["test_in_95"] == pytest.approx(np.mean((low <= y) & (y <= high)))


@pytest.mark.parametrize("dataset", cases.DATASETS)
def test_what_a_method_sees_does_not_depend_on_the_truth(dataset, folder, monkeypatch):
    problem = cases.make_problem(dataset, 0.0, None, 0)
    before = [COMPARATORS.get(name).settings("full", "competition").fit_predict(problem, 0) for name in SIMPLE]
    for name in ("satellite", "kaust"):
        whole = getattr(spatial_datasets, name)
        monkeypatch.setattr(
            spatial_datasets, name, lambda *given, whole=whole: (*whole(*given)[:3], whole(*given)[3] * 0 + 7.0)
        )
    changed = cases.make_problem(dataset, 0.0, None, 0)
    after = [COMPARATORS.get(name).settings("full", "competition").fit_predict(changed, 0) for name in SIMPLE]
    assert not np.array_equal(problem.values, changed.values, equal_nan=True)
    for one, other in zip(before, after, strict=True):
        assert np.array_equal(one.mean, other.mean)
        assert np.array_equal(one.std, other.std)


@pytest.mark.parametrize("dataset", cases.DATASETS)
@pytest.mark.parametrize("name", [FILL, *SIMPLE])
def test_methods_run_and_beat_the_mean(dataset, name, folder):
    record = runs.perform(runs.Run("competition", dataset, name, 0, 0.0, None, "full"))
    problem = cases.make_problem(dataset, 0.0, None, 0)
    assert record["observed"] == problem.observed.sum()
    assert record["test_in_95"] > 0.3
    assert record["test_rmse"] < problem.values[problem.tested].std()
    assert json.dumps(record)


@pytest.mark.parametrize("name", [ROUGH, SMOOTH, SPACE_TIME, GNEITING])
def test_gpboost_runs_and_is_scored(name, folder):
    pytest.importorskip("gpboost", reason="gpboost is not installed; it comes with pip install 'lkgp[bench]'")
    dataset = cases.SATELLITE if name in (ROUGH, SMOOTH) else "kaust-4"
    record = runs.perform(runs.Run("competition", dataset, name, 0, 0.0, 12, "quick"))
    problem = cases.make_problem(dataset, 0.0, 12, 0)
    assert record["test_rmse"] < 0.8 * problem.values[problem.tested].std()
    assert record["test_in_95"] > 0.6
    assert len(record["report"]["parameters"]) == {ROUGH: 3, SMOOTH: 3, SPACE_TIME: 4, GNEITING: 8}[name]


def test_gpboost_over_time_needs_time(folder):
    pytest.importorskip("gpboost", reason="gpboost is not installed; it comes with pip install 'lkgp[bench]'")
    with pytest.raises(InputError, match="needs a factor of time"):
        runs.perform(runs.Run("competition", cases.SATELLITE, SPACE_TIME, 0, 0.0, 12, "quick"))


def test_simple_methods_are_what_they_say():
    rng = np.random.default_rng(0)
    points, values, targets = rng.random((60, 2)), rng.standard_normal(60), rng.random((9, 2))
    distances = np.linalg.norm(targets[:, None] - points, axis=2)
    nearest = np.argsort(distances, axis=1)
    assert np.allclose(mean_of_nearest(points, values, targets), values[nearest[:, :5]].mean(axis=1))
    first = nearest[:, :12]
    weights = np.take_along_axis(distances, first, axis=1) ** -2.0
    expected = (weights * values[first]).sum(axis=1) / weights.sum(axis=1)
    assert np.allclose(weighted_by_distance(points, values, targets), expected)
    assert np.allclose(weighted_by_distance(points, values, points[:4]), values[:4])
    plane = 2 + points @ [3.0, -1.0]
    inside, outside = np.full((1, 2), 0.5), np.full((1, 2), 9.0)
    assert between_neighbours(points, plane, inside) == pytest.approx(3.0)
    far = np.argmin(np.linalg.norm(outside - points, axis=1))
    assert between_neighbours(points, plane, outside) == pytest.approx(plane[far])
    assert len(weighted_by_distance(points[:2], values[:2], targets)) == 9


def test_time_is_made_comparable_with_space(folder):
    problem = cases.kaust(4)
    space, times = cell_coords(problem)
    assert space.shape == (300, 2)
    assert times[:15, 0].tolist() == list(range(1, 16))
    together = comparable_coords(problem)
    assert together[:, 2].std() == pytest.approx(space.std(axis=0).mean())
    assert comparable_coords(smooth_problem()).shape == (400, 3)


def test_a_small_part_has_something_to_score(folder):
    for dataset in cases.DATASETS:
        problem = cases.make_problem(dataset, 0.0, 12, 0)
        assert problem.values.shape == (12, 12)
        assert problem.tested.any()
        assert problem.observed.any()
    with pytest.raises(InputError, match="no dataset 'moon'"):
        cases.make_problem("moon", 0.0, None, 0)


def test_data_that_are_absent_or_wrong_are_named(tmp_path, monkeypatch):
    monkeypatch.setenv("LKGP_DATA", str(tmp_path))
    with pytest.raises(InputError, match=r"heaton_satellite.npz is not in the folder.*lat, lon, train, truth"):
        spatial_datasets.satellite()
    (tmp_path / "kaust_2a_1.npz").write_text("nonsense")
    with pytest.raises(InputError, match="is not a file with the arrays"):
        spatial_datasets.kaust(1)
    np.savez(tmp_path / "kaust_2a_4.npz", places=np.ones((3, 2)), times=np.ones(2), train=np.ones(3), truth=np.ones(3))
    with pytest.raises(InputError, match="shape"):
        spatial_datasets.kaust(4)
    with pytest.raises(InputError, match="1, 4, 7, not 2"):
        spatial_datasets.kaust(2)


def test_each_dataset_has_its_own_methods(folder):
    planned = experiments.plan("competition", "full")
    assert {run.method for run in planned if run.dataset == "kaust-1"} == {FILL, SPACE_TIME, GNEITING, *SIMPLE}
    assert {run.method for run in planned if run.dataset == cases.SATELLITE} == {FILL, ROUGH, SMOOTH, *SIMPLE}
    only = experiments.plan("competition", "quick", methods=[SPACE_TIME])
    assert [run.dataset for run in only] == ["kaust-1", "kaust-4", "kaust-7"]
    with pytest.raises(InputError, match="no preset 'small' of competition; choose full or quick"):
        experiments.plan("competition", "small")
    with pytest.raises(InputError, match="no method 'LKGP'"):
        experiments.plan("competition", "full", methods=["LKGP"])


def test_one_command_runs_the_competition_and_one_writes_its_page(folder):
    results, target = folder / "results", folder / "experiments.md"
    common = ["--results", str(results), "--dataset", "satellite", "--method", INVERSE_DISTANCES, "--method", FILL]
    for more in (["--quick"], []):
        result = CliRunner().invoke(app, ["experiment", "competition", *common, *more])
        assert result.exit_code == 0, result.output
        assert "2 runs, 0 already done" in result.output
        assert "failed" not in result.output
    contradiction = CliRunner().invoke(app, ["experiment", "competition", *common, "--quick", "--preset", "full"])
    assert contradiction.exit_code == 2
    report = CliRunner().invoke(app, ["experiment", "report", "--results", str(results), "--page", str(target)])
    assert report.exit_code == 0, report.output
    assert not target.exists()  # there are no results for it
    text = (folder / "competition.md").read_text()
    lines = {line.split(" | ")[0].strip("| `"): line for line in text.splitlines() if line.startswith("| ")}
    assert "| 1.10 | 1.53 | 0.83 | 8.85 | 0.97 | 120 min, 2 cores |" in lines["SPDE"]
    assert f"| `{FILL}` | **" in text
    assert " times) |" in lines[INVERSE_DISTANCES]
    assert text.count(", a small part") == 1
    assert text.count("published by Heaton") == 1


def test_the_page_marks_the_best_and_names_failures(tmp_path):
    known = {"experiment": "competition", "dataset": "kaust-1", "seed": 0, "missing": 0.0, "size": None}
    scores = {"test_mae": 0.5, "test_rmse": 0.6, "test_crps": 0.3, "test_interval_95": 3.0, "test_in_95": 0.93}
    records = [
        {**known, "preset": "full", "method": FILL, **scores, "seconds": 10.0, "date": "today"},
        {**known, "preset": "full", "method": GNEITING, "failed": "not done after 7200 s", "date": "today"},
        {
            **{**known, "preset": "full", "method": LINEAR, **scores},
            **{"test_mae": 0.4, "test_in_95": 0.5, "seconds": 1.0, "date": "today"},
        },
    ]
    (tmp_path / page.RESULTS).write_text("\n".join(map(json.dumps, records)) + "\n")
    assert page.write(tmp_path, tmp_path / "page.md")
    text = (tmp_path / "page.md").read_text()
    assert f"| `{FILL}` | 0.500 | **0.600** | **0.300** | **3.000** | **0.930** | 10 s |" in text
    assert f"| {LINEAR} | **0.400** | **0.600** | **0.300** | **3.000** | 0.500 | 1.00 s (0.1 times) |" in text
    assert "failed: not done after 7200 s" in text
    assert not page.write(tmp_path / "nothing", tmp_path / "none.md")


def test_the_published_table_is_whole():
    entries = page.published()
    assert len(entries) == 13
    assert all(set(entry.scores) == {"mae", "rmse", "crps", "interval_95", "in_95"} for entry in entries)
    assert min(entries, key=lambda entry: entry.scores["rmse"]).method == "SPDE"
    assert all(entry.scores["crps"] < entry.scores["mae"] < entry.scores["rmse"] for entry in entries)
