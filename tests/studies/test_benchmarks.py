"""The benchmarks run, compare like with like, and write what they found."""

import json
import math

import numpy as np
import pytest
import torch
from gpytorch.kernels import RBFKernel, ScaleKernel
from linear_operator.operators import MaskedLinearOperator
from typer.testing import CliRunner

from lkgp import InputError
from lkgp.cli import app
from lkgp.studies import contestants, growth, page, problems, products, pruning, pruning_page, suite
from lkgp.studies.paper_recipe import PaperRecipe, PlainRecipe
from lkgp.studies.splits import split_generator, uniform_gaps


@pytest.fixture(scope="module")
def climate() -> problems.Problem:
    return problems.simulated_climate(0.3, places=12, days=20)


@pytest.fixture(scope="module")
def curves() -> problems.Problem:
    rng = np.random.default_rng(0)
    X, T = rng.normal(size=(8, 2)), np.linspace(0, 1, 6)[:, None]
    values = np.sin(X[:, :1]) + T[:, 0] + 0.1 * rng.normal(size=(8, 6))
    observed = rng.random((8, 6)) < 0.7
    return problems.Problem(
        "curves", [X, T], values, observed, lambda: [ScaleKernel(RBFKernel(ard_num_dims=2)), RBFKernel()]
    )


def test_uniform_gaps_are_those_of_the_published_splits():
    observed = uniform_gaps((5, 4), 0.3, split_generator(0))
    np.random.seed(2025)  # noqa: NPY002  (the published splits were made like this)
    withheld = np.random.choice(20, 6, replace=False)  # noqa: NPY002
    assert sorted(np.flatnonzero(~observed.ravel())) == sorted(withheld)


def test_the_simulated_climate_is_a_draw_from_its_prior():
    """Variance, and the correlation over half a period and a whole one."""
    case = problems.simulated_climate(0.2, places=200, days=400)
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


def test_both_recipes_have_the_same_covariance(curves):
    covariances = []
    for recipe in (PaperRecipe, PlainRecipe):
        model = recipe(curves.coords, curves.seen, curves.make_kernels()).model
        model.train()
        covariances.append(model(model.coords[0]).covariance_matrix.detach())
    torch.testing.assert_close(*covariances)
    kernels = [kernel.float() for kernel in curves.make_kernels()]
    dense = [
        kernel(torch.as_tensor(x, dtype=torch.float32)).to_dense().detach()
        for kernel, x in zip(kernels, curves.coords, strict=True)
    ]
    seen = np.flatnonzero(curves.observed.ravel())
    torch.testing.assert_close(covariances[0], torch.kron(*dense)[seen][:, seen])


@pytest.mark.parametrize(
    "name", ["lkgp", "lkgp, with the grid", "lkgp, without the grid", "the paper's settings", "scikit-learn"]
)
def test_contestants_run_and_are_scored(curves, name, monkeypatch):
    monkeypatch.setitem(contestants.PAPER_STEPS, "curves", 3)
    result = contestants.contestant(name)(curves)
    assert result["total"] == pytest.approx(sum(result["seconds"].values()))
    assert result["rmse"] < 2
    assert math.isfinite(result["nll"])
    assert json.dumps(result)


def test_botorch_runs_and_is_scored(curves, monkeypatch):
    result = contestants.run_botorch(curves)
    assert result["rmse"] < 2
    assert "how" not in result
    monkeypatch.setattr(contestants, "BOTORCH_SECONDS", 0.01)
    stopped = contestants.run_botorch(curves)
    assert stopped["how"].startswith("stopped after")
    assert math.isfinite(stopped["nll"])
    assert stopped["nll"] != result["nll"]


def test_the_steps_of_a_long_fit_are_measured_along_its_path(climate, monkeypatch):
    monkeypatch.setitem(contestants.PAPER_STEPS, "simulated climate", 5)
    ours = contestants.run_lkgp(climate)
    assert set(ours["recovered"]) == set(climate.truth)
    result = contestants.run_paper_path(climate, ours["raw parameters"])
    assert list(result["steps"]) == ["0", "2", "4"]
    low, high = min(result["steps"].values()), max(result["steps"].values())
    assert 5 * low <= result["seconds"]["fit"] <= 5 * high
    recipe = PaperRecipe(climate.coords, climate.seen, climate.make_kernels())
    recipe.move_towards(ours["raw parameters"], 0.1)
    assert max(float(p.detach().abs().max()) for p in recipe.model.parameters()) <= 0.1 + 1e-6
    recipe.move_towards(ours["raw parameters"], math.inf)
    length = recipe.model.kernels[1].kernels[0].raw_lengthscale.item()
    assert length == pytest.approx(ours["raw parameters"]["kernels.1.kernels.0.raw_lengthscale"][0], abs=1e-5)
    assert "nll" not in result


def test_iterations_are_those_of_the_real_step(monkeypatch):
    """What is counted with one probe is what linear_operator does with all of them, nearly."""
    rng = np.random.default_rng(0)
    values = rng.standard_normal((60, 20)).cumsum(axis=1)
    values[rng.random(values.shape) < 0.3] = np.nan
    recipe = PaperRecipe(
        [rng.standard_normal((60, 2)), np.linspace(0, 1, 20)], values, [ScaleKernel(RBFKernel()), RBFKernel()]
    )
    recipe.model.likelihood.noise = 0.001
    recipe.model.kernels[1].lengthscale = 0.1
    products = []
    matmul = MaskedLinearOperator._matmul
    monkeypatch.setattr(
        MaskedLinearOperator, "_matmul", lambda self, rhs: products.append(rhs.shape) or matmul(self, rhs)
    )
    counted = recipe.iterations_of_step()
    assert len(products) == counted
    products.clear()
    recipe.step()
    assert 30 < counted < 1000
    assert products.count(products[0]) - 1 == pytest.approx(counted, rel=0.3)


def test_the_iterations_of_a_very_long_fit_are_counted_along_its_path(climate, monkeypatch):
    monkeypatch.setitem(contestants.PAPER_STEPS, "simulated climate", 5)
    ours = contestants.run_lkgp(climate)["raw parameters"]
    # Made up, so that the sums can be checked: an iteration takes 2 s and a step 3 s besides.
    places = iter((100, 300, 500))
    monkeypatch.setattr(PaperRecipe, "iterations_of_step", lambda self: next(places))

    def step(self, max_iterations):
        return 0.0, 3.0 + 2.0 * max_iterations

    monkeypatch.setattr(PaperRecipe, "step", step)
    result = contestants.run_paper_iterations(climate, ours)
    assert result["steps"] == pytest.approx({"0": 203.0, "2": 603.0, "4": 1003.0})
    assert result["seconds"] == pytest.approx({"fit": 203 + 403 + 603 + 803 + 1003})
    assert result["total"] == result["seconds"]["fit"]
    assert result["how"] == "100, 300, 500 iterations in steps 0, 2, 4 of 5, at 2 s each"
    assert "nll" not in result


def test_products_and_growth_are_measured(monkeypatch):
    for shape, dtype in (((12, 10), torch.float32), ((5, 4, 3), torch.float64)):
        row = products.compare(shape, 3, dtype, repeats=1)
        assert row["ratio"] == pytest.approx(row["latent"] / row["plain"])
    rows = [{"cells": cells, "seconds": seconds} for cells, seconds in ((1e2, 9.0), (1e4, 1e3), (1e6, 1e6))]
    assert page.last_exponent(rows) == pytest.approx(1.5)
    assert growth.product_seconds((20, 20)) > 0
    monkeypatch.setattr(growth, "PRODUCT_SIZES", (10, 20, 30))
    monkeypatch.setattr(growth, "FIT_SIZES", (10, 14, 20))
    lines: list[str] = []
    found = growth.measure(lines.append)
    assert len(lines) == 6
    assert [row["cells"] for row in found["rows"]["fit"]] == [100, 196, 400]


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
        "hardware": suite.hardware(),
        "versions": suite.versions(),
        "date": "today",
        "runs": [
            result_of("era5-30", suite.PAPER, 2500.0, how="from steps 0, 50, 99 of 100"),
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
            {"case": "sarcos-10", "contestant": suite.DENSE, "failed": "not done after 10 s"},
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
            result_of("sarcos-90", suite.GRID, 77.0, nll=0.1, rmse=0.2, report=report),
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
    page.write(results, tmp_path / "page.md")
    text = (tmp_path / "page.md").read_text()
    for words in (
        "| 25.0 |",
        "not run to its end",
        "the time of 1000 single-vector",
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


def test_results_are_kept_and_failures_are_told(tmp_path, monkeypatch):
    monkeypatch.setenv("LKGP_DATA", str(tmp_path / "nowhere"))
    monkeypatch.setattr(suite, "BOUTS", {"robot": [suite.Bout("sarcos-90", ("lkgp",), 2)]})
    lines: list[str] = []
    kept = suite.run(["robot"], tmp_path / "results.json", lines.append)
    assert "LKGP_DATA" in kept["runs"][0]["failed"]
    assert len(lines) == 1
    assert suite.run_alone("sarcos-90", "nobody")["failed"].startswith("LKGP_DATA names")
    assert json.loads((tmp_path / "results.json").read_text())["versions"]["gpytorch"]


def test_one_contestant_runs_alone_beside_the_results_of_the_others(tmp_path, monkeypatch):
    asked = []

    def pretend(case, name, optimum, timeout):
        asked.append((name, optimum))
        return {"total": 1.0, "seconds": {"fit": 1.0}, "peak memory": 1e9, "raw parameters": {"x": [len(asked)]}}

    monkeypatch.setattr(suite, "run_alone", pretend)
    monkeypatch.setattr(suite, "BOUTS", {"robot": [suite.Bout("sarcos-90", ("lkgp", suite.PLAIN), 2)]})
    suite.run(["robot"], tmp_path / "results.json", only=["lkgp"])
    kept = suite.run(["robot"], tmp_path / "results.json", only=[suite.PLAIN])
    assert [run["contestant"] for run in kept["runs"]] == ["lkgp", suite.PLAIN]
    # The path of the second leads to where the first has ended.
    assert [name for name, _ in asked] == ["lkgp", "lkgp", suite.PLAIN, suite.PLAIN]
    assert asked[2][1] == kept["runs"][0]["raw parameters"]
    # A later failure does not take the place of what was measured.
    monkeypatch.setattr(suite, "run_alone", lambda *_: {"failed": "not done after 1 s"})
    assert suite.run(["robot"], tmp_path / "results.json", only=["lkgp"])["runs"] == kept["runs"]
    with pytest.raises(InputError, match="no contestant 'nobody'"):
        suite.run(["robot"], tmp_path / "results.json", only=["nobody"])


def test_groups_and_cases_are_found_by_name(tmp_path):
    assert [bout.case for bout in suite.bouts_of("weather")] == ["era5-10", "era5-30", "era5-50"]
    assert [bout.case for bout in suite.bouts_of("learning-curves-400")] == ["learning-curves-400"]
    with pytest.raises(InputError, match=r"no benchmark 'wheather'; there are curves, .* and the cases .* era5-10"):
        suite.run(["products", "wheather"], tmp_path / "results.json")


def test_the_median_run_is_kept():
    runs = [result_of("c", "lkgp", seconds, nll=seconds) for seconds in (3.0, 1.0, 2.0)]
    assert suite.median(runs)["total"] == 2.0
    assert suite.median(runs)["nll"] == 2.0
    assert suite.median([{"failed": "x"}]) == {"failed": "x"}


def test_unknown_names_are_refused(tmp_path):
    with pytest.raises(InputError, match="there is no case 'weather-10'"):
        suite.make_case("weather-10")
    with pytest.raises(InputError, match="there is no contestant 'nobody'"):
        contestants.contestant("nobody")
    result = CliRunner().invoke(app, ["bench", "nothing", "--output", str(tmp_path / "x.json")])
    assert result.exit_code == 2
    assert "there is no benchmark 'nothing'" in result.output


def test_real_cases_have_the_published_shapes(data_folder):
    curves = suite.make_case("learning-curves-400")
    assert curves.coords[0].shape == (400, 7)
    assert curves.observed.sum() == 11286
    assert curves.values[curves.observed[:, -1], -1].std() == pytest.approx(1.227, abs=1e-3)
    robot = suite.make_case("sarcos-30")
    assert robot.values.shape == (4449, 7)
    assert (~robot.observed).sum() == int(0.3 * 4449 * 7)
    weather = suite.make_case("era5-50")
    assert weather.values.shape == (1617, 744)
    assert weather.values[weather.observed].std() == pytest.approx(1)


def test_replays_of_curves_spend_and_lose_what_the_pruner_says(monkeypatch, tmp_path):
    """Curves that never cross: whatever is stopped, a pruner that waits for the end spends all, and the best is known from the start."""
    rng = np.random.default_rng(0)
    X = rng.random((30, 2))
    Y = X[:, :1] + np.exp(-0.5 * np.arange(1, 11)) + 0.001 * rng.normal(size=(30, 10))
    monkeypatch.setattr(pruning, "lcbench", lambda name: (X, Y))
    everything = pruning.replay("some", 0, "none", "default", runs=20)
    assert (everything.spent, everything.best_kept, everything.regret) == (1.0, True, 0.0)
    ours = pruning.replay("some", 0, "lkgp", "default", runs=20)
    assert ours.spent < 0.7  # ten runs must complete, and the others have two epochs of ten
    assert ours.best_kept
    assert ours.regret == 0.0
    few = {
        "lkgp": {"default": pruning.PRUNERS["lkgp"]["default"]},
        "median": {"default": pruning.PRUNERS["median"]["default"]},
    }
    monkeypatch.setattr(pruning, "PRUNERS", few)
    said = []
    looked_at, other = (pruning.measure(said.append, name, runs=12) for name in (pruning.SETS[0], "some"))
    assert len(said) == 2 * (pruning.ORDERS + pruning.OTHER_ORDERS)
    many = pruning.measure_many(said.append, runs=15)
    fresh = pruning.measure_fresh(said.append, "some", runs=12)
    assert [(r["family"], r["setting"]) for r in fresh["fresh"]] == [("lkgp", "default"), ("median", "default")]
    cases = {"pruning-a": looked_at, "pruning-b": other, "pruning-many": many, "pruning-fresh-some": fresh}
    results = {"runs": [{"case": case, "contestant": "lkgp", **found} for case, found in cases.items()]}
    section = "\n".join(pruning_page.section(results))
    assert f"| lkgp | default | {pruning.ORDERS} |" in section
    assert f"| lkgp | default | {pruning.OTHER_ORDERS} |" in section
    assert "1 sets more, of which" in section
    assert "1 sets with runs that were drawn after" in section
    assert f"With 15 runs of {pruning.SETS[0]}" in section
    name, _ = pruning_page.chart(results, tmp_path)
    assert (tmp_path / name).stat().st_size > 10_000
    assert pruning_page.section({"runs": []}) == []
