"""The experiments: data and splits as published, methods against their dense definitions, runs that are never lost, and the report."""

import hashlib
import json
import zipfile
from dataclasses import replace

import numpy as np
import pooch
import pytest
import scipy.stats
import torch
from cases import Case, name
from gpytorch.kernels import IndexKernel, RBFKernel, ScaleKernel
from scipy.io import savemat
from typer.testing import CliRunner

import xarray
from lkgp import InputError
from lkgp.cli import app
from lkgp.curves.values import ValueScale
from lkgp.studies import cagp, datasets, methods, plans, problems, records, report, runs, synthetic, tables, units
from lkgp.studies.imaginary import ImaginaryObservationsGP
from lkgp.studies.paper_recipe import PaperRecipe, PlainRecipe
from lkgp.studies.splits import cut_curves, split_generator, uniform_gaps
from lkgp.studies.variational import SVGP, VNNGP, product_kernel, rows_of

GRIDS = [
    Case("two factors", (7, 6), "random"),
    Case("learning curves", (8, 7), "curves"),
    Case("a row missing", (5, 6), "row"),
    Case("several columns", (6, 7), "random", columns=(3, 2)),
]


# Splits


def test_splits_are_drawn_as_in_the_paper():
    np.random.seed(2025 + 3)  # noqa: NPY002
    chosen = np.random.choice(50, 40, replace=False)  # noqa: NPY002
    expected = np.ones((50, 12), dtype=bool)
    for row in chosen:
        expected[row, np.random.randint(12) :] = False  # noqa: NPY002
    assert np.array_equal(cut_curves((50, 12), split_generator(3), cut=0.8), expected)
    np.random.seed(2025)  # noqa: NPY002
    hidden = np.random.choice(60, 18, replace=False)  # noqa: NPY002
    observed = uniform_gaps((12, 5), 0.3, split_generator(0))
    assert set(np.flatnonzero(~observed)) == set(hidden)


# Data


@pytest.fixture
def curves_folder(tmp_path, monkeypatch):
    """A small set of learning curves in the form of LCBench."""
    generator = np.random.default_rng(0)
    X = generator.uniform(0.1, 1, (40, 7))
    epochs = np.arange(1, 13)
    Y = X[:, :1] + X[:, 1:2] * epochs**-0.7 + 0.01 * generator.normal(size=(40, 12))
    (tmp_path / "lcbench").mkdir()
    np.savez(tmp_path / "lcbench" / "segment.npz", X=X, Y=Y)
    monkeypatch.setenv("LKGP_DATA", str(tmp_path))
    return tmp_path, X, Y


def test_both_forms_of_lcbench_give_the_same_arrays(curves_folder):
    folder, X, Y = curves_folder
    found = datasets.lcbench("segment")
    assert np.array_equal(found[0], X)
    assert np.array_equal(found[1], Y)
    runs_ = {
        str(i): {"config": dict(zip(datasets.CONFIGURATION, X[i], strict=True)), "log": {datasets.LOSS: Y[i].tolist()}}
        for i in np.random.default_rng(1).permutation(40)  # in any order
    }
    (folder / "data_2k_lw.json").write_text(json.dumps({"car": runs_}))
    found = datasets.lcbench("car")
    assert np.array_equal(found[0], X)
    assert np.array_equal(found[1], Y)
    with zipfile.ZipFile(folder / "data_2k_lw.zip", "w") as archive:
        archive.write(folder / "data_2k_lw.json", "data_2k_lw.json")
    (folder / "data_2k_lw.json").unlink()
    assert np.array_equal(datasets.lcbench("car")[1], Y)
    with pytest.raises(InputError, match="helena is not in it"):
        datasets.lcbench("helena")
    with pytest.raises(InputError, match="no set 'mnist'"):
        datasets.lcbench("mnist")


def test_both_parts_of_sarcos_are_read(tmp_path, monkeypatch):
    monkeypatch.setenv("LKGP_DATA", str(tmp_path))
    table = np.random.default_rng(0).normal(size=(30, 28))
    for stem in ("sarcos_inv", "sarcos_inv_test"):
        savemat(tmp_path / f"{stem}.mat", {stem: table})
    for part in ("training", "test"):
        X, Y = datasets.sarcos(part)
        assert np.array_equal(np.hstack([X, Y]), table)
    problem = problems.sarcos(0.4, 0, "training", states=20)
    assert problem.values.shape == (20, 7)
    assert np.nanmean(problem.seen, axis=0) == pytest.approx(np.zeros(7), abs=1e-12)
    savemat(tmp_path / "sarcos_inv.mat", {"other": table})
    with pytest.raises(InputError, match="not a MATLAB file with the variable sarcos_inv"):
        datasets.sarcos("training")
    with pytest.raises(InputError, match="parts training and test"):
        datasets.sarcos("validation")


def test_nordic_files_are_read_a_day_a_file(tmp_path, monkeypatch):
    monkeypatch.setenv("LKGP_DATA", str(tmp_path))
    generator = np.random.default_rng(0)
    lat, lon = generator.uniform(55, 70, (4, 5)), generator.uniform(5, 30, (4, 5))
    sea = generator.random((4, 5)) < 0.3
    fields = generator.normal(size=(3, 4, 5))
    (tmp_path / "nordic").mkdir()
    for i, day in enumerate(("20200101", "20200102", "20200103")):
        values = np.where(sea, np.nan, fields[i])[None]
        coords = {
            "lat": (("Y", "X"), lat, {"standard_name": "latitude"}),
            "lon": (("Y", "X"), lon, {"standard_name": "longitude"}),
        }
        dataset = xarray.Dataset({"TG": (("time", "Y", "X"), values)}, coords=coords)
        dataset.to_netcdf(tmp_path / "nordic" / f"NGCD_TG_type2_version_25.03_{day}.nc")
    places, values = datasets.nordic("TG", days=3)
    assert np.array_equal(places, np.stack([lat[~sea], lon[~sea]], axis=1))
    assert np.array_equal(values, fields[:, ~sea].T)
    with pytest.raises(InputError, match="1 of 4 days of TG, the first of them 20200104"):
        datasets.nordic("TG", days=4)
    problem = problems.nordic("TG", 0.2, places=6, days=3)
    assert problem.values.shape == (6, 3)


def test_any_netcdf_file_is_read_by_name(tmp_path):
    path = tmp_path / "fields.nc"
    xarray.Dataset({"a": (("t", "y", "x"), np.zeros((2, 3, 4))), "b": ("t", np.zeros(2))}).to_netcdf(path)
    assert datasets.netcdf(path).shape == (2, 3, 4)
    assert datasets.netcdf(path, "b").shape == (2,)
    with pytest.raises(InputError, match="no variable 'c'; it has a, b"):
        datasets.netcdf(path, "c")
    with pytest.raises(InputError, match="is not there"):
        datasets.netcdf(tmp_path / "nothing.nc")
    (tmp_path / "text.nc").write_text("no")
    with pytest.raises(InputError, match="not a netCDF file"):
        datasets.netcdf(tmp_path / "text.nc")


def test_offline_and_damaged_downloads_are_said_clearly(tmp_path, monkeypatch):
    monkeypatch.setenv("LKGP_DATA", str(tmp_path))

    def offline(*_args, **_kwargs):
        raise ConnectionError

    monkeypatch.setattr(pooch, "retrieve", offline)
    with pytest.raises(InputError, match=r"segment.npz could not be downloaded .* LKGP_DATA"):
        datasets.lcbench("segment")

    def damaged(*_args, **_kwargs):
        raise ValueError("SHA256 hash does not match")

    monkeypatch.setattr(pooch, "retrieve", damaged)
    with pytest.raises(InputError, match="not the file that was expected"):
        datasets.sarcos("test")
    asked = []

    def served(url, known_hash, fname, path):
        asked.append((url, known_hash))
        np.savez(tmp_path / fname, X=np.zeros((2, 7)), Y=np.zeros((2, 5)))
        return str(tmp_path / fname)

    monkeypatch.setattr(pooch, "retrieve", served)
    assert datasets.lcbench("segment")[1].shape == (2, 5)
    assert asked[0][0].endswith("/data/LCBench/segment.npz")
    assert asked[0][1].startswith("sha256:")
    monkeypatch.setenv("LKGP_DATA", str(tmp_path / "nowhere"))
    with pytest.raises(InputError, match="not a folder"):
        datasets.lcbench("segment")


def test_published_files_have_the_checksums_that_are_kept(data_folder):
    for file, digest in datasets.checksums().items():
        path = data_folder / file if file.endswith(".mat") else data_folder / "lcbench" / file
        assert digest == "sha256:" + hashlib.sha256(path.read_bytes()).hexdigest()


# Methods


def dense_cagp(case, S):
    """Bound, mean and variance by the definition, in NumPy."""
    oracle = case.oracle()
    cross, prior = oracle._blocks(case.coords)
    K = oracle.matrix - case.noise * np.eye(len(oracle.values))
    H = S.T @ oracle.matrix @ S
    v = np.linalg.solve(H, S.T @ oracle.values)
    mean = case.mean + cross @ S @ v
    variance = np.diag(prior - cross @ S @ np.linalg.solve(H, S.T @ cross.T))
    # q over the observed cells, and its divergence from the prior, by the formula for two Gaussians
    m, C = K @ S @ v, K - K @ S @ np.linalg.solve(H, S.T @ K)
    n = len(m)
    inverse = np.linalg.inv(K)
    divergence = 0.5 * (np.trace(inverse @ C) - n + m @ inverse @ m + np.linalg.slogdet(K)[1] - np.linalg.slogdet(C)[1])
    misfit = ((oracle.values - m) ** 2).sum() + np.trace(C)
    bound = -0.5 * (misfit / case.noise + n * np.log(2 * np.pi * case.noise)) - divergence
    return bound, mean, variance


@pytest.mark.parametrize("case", GRIDS, ids=name)
def test_cagp_is_its_dense_definition(case):
    case = Case(
        case.name, case.shape, case.gaps, columns=case.columns, kinds=("matern", "matern")
    )  # K must be well conditioned
    gp = cagp.ComputationAwareGP(case.build(), case.data(), num_actions=5)
    with torch.no_grad():
        gp.entries.add_(
            0.1 * torch.randn(len(gp.entries), dtype=torch.float64, generator=torch.Generator().manual_seed(0))
        )
    bound, mean, variance = dense_cagp(case, gp.actions().detach().numpy())
    coords = [torch.as_tensor(x) for x in case.coords]
    found = [part.numpy() for part in gp.predict(coords)]
    assert gp.elbo().item() == pytest.approx(bound, rel=1e-6)
    np.testing.assert_allclose(found[0], mean, rtol=1e-8, atol=1e-9)
    np.testing.assert_allclose(found[1], variance, rtol=1e-7, atol=1e-9)
    exact = case.oracle()
    assert (found[1] >= exact.variance_at(case.coords).ravel() - 1e-9).all()
    assert bound <= exact.log_likelihood()


def test_cagp_with_an_action_for_every_observation_is_exact():
    case = GRIDS[0]
    gp = cagp.ComputationAwareGP(case.build(), case.data(), num_actions=10**6)
    mean, variance = gp.predict([torch.as_tensor(x) for x in case.coords])
    np.testing.assert_allclose(mean.numpy(), case.oracle().mean_at(case.coords).ravel(), rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(variance.numpy(), case.oracle().variance_at(case.coords).ravel(), rtol=1e-7, atol=1e-10)


def test_cagp_learns_hyperparameters_and_actions():
    case = GRIDS[1]
    gp = cagp.ComputationAwareGP(case.build(), case.data(), num_actions=6)
    entries = gp.entries.detach().clone()
    bounds = cagp.fit(gp, steps=30, rate=0.05)
    assert bounds[-1] > bounds[0]
    assert not torch.equal(entries, gp.entries)
    assert bounds[-1] * len(entries) <= case.oracle().log_likelihood() + 60  # the hyperparameters moved, too


@pytest.mark.parametrize("case", GRIDS, ids=name)
def test_imaginary_observations_have_the_exact_mean_and_variance(case):
    gp = ImaginaryObservationsGP(case.build(), case.data(), rtol=1e-12)
    mean, variance = gp.predict(4000, torch.Generator().manual_seed(0))
    exact = case.oracle()
    # The imagined cells still tell a little: a millionth of what a real one does.
    np.testing.assert_allclose(mean.detach().numpy(), exact.mean_at(case.coords).ravel(), atol=1e-4)
    np.testing.assert_allclose(variance.detach().numpy(), exact.variance_at(case.coords).ravel(), rtol=0.12, atol=1e-3)


def test_imaginary_observations_have_a_gradient_that_is_right():
    case = Case("complete", (6, 5), "none")
    gp = ImaginaryObservationsGP(case.build(), case.data(), rtol=1e-13)
    # On a complete grid the approximation of the determinant is exact.
    assert gp.objective().item() * 30 == pytest.approx(case.oracle().log_likelihood(), rel=1e-9)
    gp.objective().backward()
    parameter = gp.model.kernels[1].raw_lengthscale
    step, found = 1e-5, parameter.grad.item()
    values = []
    for sign in (1, -1):
        with torch.no_grad():
            parameter.add_(sign * step)
            values.append(gp.objective().item())
            parameter.sub_(sign * step)
    assert found == pytest.approx((values[0] - values[1]) / (2 * step), rel=1e-5)
    case = GRIDS[1]
    losses = ImaginaryObservationsGP(case.build(), case.data()).fit(15, 0.05)
    assert losses[-1] > losses[0]


def small_problem():
    generator = np.random.default_rng(0)
    X, T = generator.uniform(-1.5, 1.5, (25, 2)), np.linspace(0, 1, 16)[:, None]
    values = np.sin(2 * X[:, :1] + 3 * T.T) + X[:, 1:] * T.T + 0.1 * generator.standard_normal((25, 16))
    observed = generator.random((25, 16)) < 0.7
    return problems.Problem(
        "small", [X, T], values, observed, lambda: [ScaleKernel(RBFKernel(ard_num_dims=2)), RBFKernel()]
    )


def test_rows_and_their_kernel_are_those_of_the_grid():
    case = Case("several columns", (4, 5), "none", columns=(3, 2))
    coords = [torch.as_tensor(x) for x in case.coords]
    rows = rows_of(coords, torch.arange(20))
    with torch.no_grad():
        found = product_kernel(case.kernels(), coords)(rows).to_dense().numpy()
    np.testing.assert_allclose(found, case.oracle().matrix - case.noise * np.eye(20), atol=1e-10)
    tasks = [torch.randn(4, 2), torch.arange(3.0)[:, None]]
    kernels = [RBFKernel(ard_num_dims=2), IndexKernel(num_tasks=3, rank=3)]
    with torch.no_grad():
        found = product_kernel(kernels, tasks)(rows_of(tasks, torch.arange(12))).to_dense()
        expected = torch.kron(kernels[0](tasks[0]).to_dense(), kernels[1](tasks[1]).to_dense())
    torch.testing.assert_close(found, expected)


def test_svgp_with_all_points_comes_close_to_the_exact_posterior():
    """Held at the true hyperparameters, with every row an inducing point, only the variational distribution is learned."""
    case = Case("two factors", (6, 5), "random", noise=0.3)
    data, coords = case.data(), [torch.as_tensor(x) for x in case.coords]
    gp = SVGP(coords, data.grid.index, data.values, case.kernels(), inducing=10**6, batch=10**6)
    gp.likelihood.noise = torch.tensor(case.noise, dtype=torch.float64)
    gp.model.mean_module.constant.data.fill_(case.mean)
    for parameter in (
        *gp.model.covar_module.parameters(),
        *gp.likelihood.parameters(),
        *gp.model.mean_module.parameters(),
    ):
        parameter.requires_grad_(False)
    gp.model.variational_strategy.inducing_points.requires_grad_(False)
    bounds = gp.fit(600, 0.05)
    mean, variance = gp.predict()
    np.testing.assert_allclose(mean.numpy(), case.oracle().mean_at(case.coords).ravel(), atol=0.02)
    np.testing.assert_allclose(variance.numpy(), case.oracle().variance_at(case.coords).ravel() + case.noise, atol=0.03)
    assert bounds[-1] <= case.oracle().log_likelihood() / len(data.values) + 1e-6


@pytest.mark.parametrize("inducing", [10**6, 150])
def test_vnngp_learns_from_neighbours(inducing):
    problem = small_problem()
    coords, observed, y = methods.rows(problem)
    gp = VNNGP(coords, observed, y, problem.make_kernels(), neighbours=12, inducing=inducing, batch=100)
    bounds = gp.fit(50, 0.05)
    mean, variance = gp.predict()
    assert bounds[-1] > bounds[0]
    found = runs.score(
        problem, methods.Prediction(methods.on_grid(problem, mean), methods.on_grid(problem, variance.sqrt()))
    )
    assert found["test_rmse"] < 0.7 * problem.values.std()


@pytest.mark.parametrize("recipe_class", [PaperRecipe, PlainRecipe])
def test_samples_of_the_recipe_are_those_of_the_posterior(recipe_class, monkeypatch):
    monkeypatch.setattr("lkgp.studies.paper_recipe.TOLERANCE", 1e-4)
    case = Case("two factors", (7, 6), "random")
    recipe = recipe_class(case.coords, case.y, case.kernels())
    recipe.model.likelihood.noise = case.noise
    recipe.model.mean_module.constant.data.fill_(case.mean)
    samples = recipe.sample(4000).double().numpy()
    np.testing.assert_allclose(samples.mean(axis=0), case.oracle().mean_at(case.coords).ravel(), atol=0.1)
    np.testing.assert_allclose(np.cov(samples.T), case.oracle().covariance_at(case.coords), atol=0.15)


@pytest.mark.parametrize("method", methods.NAMES)
def test_every_method_beats_the_mean(method):
    problem = small_problem()
    shorter = {
        "LKGP, the paper's recipe": methods.Recipe(15),
        "SVGP": methods.InducingPoints(60, 60, 0.05, batch=100),
        "VNNGP": methods.Neighbours(16, 50, 0.05, batch=100),
        "CaGP": methods.ComputationAware(40, 80, 0.1),
    }
    prediction = shorter.get(method, methods.small_methods("lcbench")[method])(problem, seed=0)
    found = runs.score(problem, prediction)
    assert prediction.mean.shape == prediction.std.shape == (25, 16)
    assert found["test_rmse"] < 0.75 * problem.values.std()
    assert 0.7 < found["test_in_95"] <= 1


def test_predictions_in_other_units_are_scored_in_those_of_the_data():
    """A Gaussian for the logarithm of shifted values is a log-normal for the values."""
    generator = np.random.default_rng(1)
    values = np.exp(generator.standard_normal(40))
    scale = replace(ValueScale.of(values, "minimize", "log"), knee=np.inf)
    inside = units.CurveUnits(scale, shift=0.5, width=2.0)
    y = (values - 0.5) / 2.0
    mean, std = inside.apply(y) + 0.3 * generator.standard_normal(40), generator.uniform(0.2, 0.9, 40)
    found = units.scores(inside, y, mean, std, (0.5, 0.95))
    # log(2 y + 0.5) has mean m and deviation s
    m, s = mean * scale.scale + scale.shift, std * scale.scale
    law = scipy.stats.lognorm(s=s, scale=np.exp(m) / 2.0, loc=-0.25)
    assert found["nll"] == pytest.approx(-law.logpdf(y).mean(), rel=1e-9)
    assert found["rmse"] == pytest.approx(np.sqrt(np.mean((law.median() - y) ** 2)), rel=1e-9)
    assert found["in_50"] == pytest.approx(np.mean((law.ppf(0.25) <= y) & (y <= law.ppf(0.75))))
    draws = law.rvs((40_000, 40), random_state=2)
    crps = np.abs(draws - y).mean() - 0.5 * np.abs(draws[::2] - draws[1::2]).mean()
    assert found["crps"] == pytest.approx(crps, rel=0.03)
    plain = units.scores(units.Plain(), y, mean, std, (0.95,))
    assert plain["crps"] == pytest.approx(units.crps_by_quantiles(units.Plain(), y, mean, std), rel=0.01)
    assert plain["nll"] == pytest.approx(-scipy.stats.norm(mean, std).logpdf(y).mean())


def test_presets_have_every_method():
    for preset in methods.PRESETS.values():
        for experiment in plans.EXPERIMENTS[1:]:
            assert tuple(preset(experiment)) == methods.NAMES


# Runs


def test_runs_resume_and_nothing_is_lost(curves_folder, tmp_path, monkeypatch):
    path = tmp_path / "lcbench.jsonl"
    wanted = plans.plan("lcbench", "small", methods=["LKGP", "CaGP"], datasets=["segment"], seeds=1)
    done = []

    def alone(run, timeout):
        done.append(run)
        if run.method == "CaGP" and len(done) < 3:
            return {**run.__dict__, "failed": "it was interrupted"}
        return {**run.__dict__, "test_nll": 0.1, "test_rmse": 0.2, "seconds": 1.0}

    monkeypatch.setattr(runs, "perform_alone", alone)
    said = []
    runs.run_all(wanted, path, said.append)
    assert [run.method for run in done] == ["LKGP", "CaGP"]
    with path.open("a") as file:
        file.write('{"experiment": "lcb')  # the machine went down
    runs.run_all(wanted, path, said.append)
    assert [run.method for run in done] == ["LKGP", "CaGP", "CaGP"]  # only what had failed
    kept = records.read(path)
    assert len(kept) == 3
    assert [r.get("failed") for r in report.latest(kept)] == [None, None]
    assert "2 runs, 1 of them done before" in said
    # A result that only lacks the end of its line is one; what took too long is tried again with more time only.
    path.write_text(path.read_text().rstrip("\n"))
    records.append(path, {**wanted[0].__dict__, "seed": 7, "failed": "not done after 60 s", "limit": 60.0})
    assert len(records.read(path)) == 4
    slow = replace(wanted[0], seed=7)
    runs.run_all([slow], path, said.append, timeout=60.0)
    assert len(done) == 3
    runs.run_all([slow], path, said.append, timeout=61.0)
    assert done[3:] == [slow]
    path.write_text("nonsense\n" + path.read_text())
    with pytest.raises(InputError, match="line 1 of"):
        records.read(path)


def test_a_run_in_a_process_of_its_own_is_scored_or_says_why_not(curves_folder):
    good = plans.plan("lcbench", "small", methods=["LKGP"], datasets=["segment"], seeds=1)[0]
    record = runs.perform_alone(good)
    assert record["test_rmse"] < 1
    assert record["observed"] < record["cells"] == 480
    assert record["peak_memory"] > 1e7
    assert record["versions"]["torch"]
    assert len(record["shown"]["mean"][0]) == 12
    bad = plans.plan("climate", "paper", methods=["LKGP"], datasets=["TG"], ratios=[0.1], seeds=1)[0]
    assert "days of TG" in runs.perform_alone(bad)["failed"]
    assert runs.perform_alone(good, timeout=0.01)["failed"] == "not done after 0 s"


def test_plans_name_what_is_wrong():
    with pytest.raises(InputError, match="no experiment 'robot'"):
        plans.plan("robot", "small")
    with pytest.raises(InputError, match="no preset 'tiny'"):
        plans.plan("sarcos", "tiny")
    with pytest.raises(InputError, match="no method 'GP'"):
        plans.plan("sarcos", "small", methods=["GP"])
    assert len(plans.plan("lcbench", "paper", methods=["LKGP"])) == 350
    assert len(plans.plan("sarcos", "small")) == 9 * len(methods.NAMES)


# Tables, figures, report


def test_average_ranks():
    scores = {"a": {"x": 1.0, "y": 3.0, "only here": 0.0}, "b": {"x": 2.0, "y": 1.0}, "c": {"x": 3.0, "y": 2.0}}
    assert tables.average_ranks(scores) == {"a": (2.0, 1.0), "b": (1.5, 0.5), "c": (2.5, 0.5)}
    assert tables.average_ranks({"a": {"x": 1.0}, "b": {"x": 1.0}}) == {"a": (1.5, 0.0), "b": (1.5, 0.0)}
    assert tables.average_ranks({}) == {}


def test_the_ranks_that_the_paper_prints_are_positions_of_a_sort():
    """Its columns "Average Rank" are what argsort gives, once, not twice: CaGP's 3.000 +- 0.000 in test NLL is the place of VNNGP."""
    published = tables.paper_results()
    sets = {tables.paper_name(dataset) for dataset in datasets.LCBENCH_SETS}
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
    assert report.crossing(rows, "seconds") == pytest.approx(0.45)
    assert report.crossing(rows[:3], "seconds") is None
    time_point, memory_point = report.break_even_points(4449)
    assert time_point == pytest.approx(1 - np.sqrt(1 / 4449 + 1 / 7))
    assert memory_point == pytest.approx(1 - np.sqrt(1 / 4449**2 + 1 / 49))
    found = synthetic.break_even_one((30, 7), 0.5)
    assert found["without_bytes"] == 4 * found["observed"] ** 2


def test_one_command_runs_and_one_reports(curves_folder, tmp_path):
    results, page = tmp_path / "results", tmp_path / "experiments.md"
    arguments = ["experiment", "lcbench", "--dataset", "segment", "--seeds", "1", "--results", str(results)]
    alone = CliRunner().invoke(app, [*arguments, "--method", "LKGP"])
    assert "1 runs, 0 of them done before" in alone.output
    result = CliRunner().invoke(app, ["experiment", "report", "--results", str(results), "--page", str(page)])
    assert result.exit_code == 0, result.output
    result = CliRunner().invoke(app, [*arguments, "--method", "LKGP", "--method", "CaGP", "--timeout", "0.5"])
    assert result.exit_code == 0, result.output
    assert "2 runs, 1 of them done before" in result.output
    synthetic.measure(results / "synthetic.jsonl", print, sides=(4, 6))
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
        wanted = plans.plan(experiment, "small", methods=["LKGP", methods.LKGP_PAPER, "SVGP"])
        if experiment == "sarcos":
            wanted += plans.plan(experiment, "small", methods=[methods.ITERATIVE])
        assert {run.dataset for run in wanted} == {dataset}
        lines = [
            {**run.__dict__, **{s: generator.random() for s in scores}, "cells": 7000, "date": "2026-01-01"}
            for run in wanted
        ]
        lines[0] = {**wanted[0].__dict__, "failed": "too little memory", "date": "2026-01-01"}
        (tmp_path / f"{experiment}.jsonl").write_text("\n".join(map(json.dumps, lines)) + "\n")
    rows = [{"states": 1000, "missing": r, **synthetic.break_even_one((30, 7), r)} for r in (0.1, 0.9)]
    (tmp_path / "break_even.jsonl").write_text("\n".join(map(json.dumps, rows)) + "\n")
    report.write(tmp_path, tmp_path / "page.md")
    text = (tmp_path / "page.md").read_text()
    assert "over 9 pairs of runs" in text
    assert "| LKGP | failed |" in text
    assert "| 1000 x 7 | time, 1 - sqrt(1/p + 1/q) | 0.621 |" in text
    assert "the paper's LKGP on 5000 Nordic places" in text
    assert len(list(tmp_path.glob("experiment-*.png"))) == 3
