"""The demo, the command line and the pages do what they say."""

import importlib
import importlib.util
import re
import subprocess
import sys
from functools import reduce
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from gpytorch.kernels import MaternKernel, ScaleKernel
from typer.testing import CliRunner

import lkgp
from lkgp import demo
from lkgp.cli import app
from lkgp.demo import curves as demo_curves
from lkgp.linalg.factors import Factor
from lkgp.model import Noise
from lkgp.settings import Settings
from lkgp.studies.cases.lcbench import learning_curves
from lkgp.studies.problems import Problem
from lkgp.studies.registry import COMPARATORS
from lkgp.xarray.formats import base as formats
from lkgp.xarray.formats.files import read_table, write_table

ROOT = Path(__file__).parents[1]


def test_the_shipped_curves_are_small_and_whole():
    settings, epochs, accuracy = demo.load_curves()
    assert settings.shape == (300, 6)
    assert accuracy.shape == (300, 40) == (len(settings), len(epochs))
    assert np.isfinite(accuracy).all()
    assert (ROOT / "src/lkgp/demo/digits_curves.npz").stat().st_size < 1_000_000


def test_the_demo_beats_the_last_value_and_draws(monkeypatch, tmp_path):
    """On every fourth network, so that it is quick."""
    settings, epochs, accuracy = demo.load_curves()
    monkeypatch.setattr(demo_curves, "load_curves", lambda: (settings[::4], epochs, accuracy[::4]))
    result = CliRunner().invoke(app, ["demo", "--output", str(tmp_path / "demo.png"), "--quiet"])
    assert result.exit_code == 0, result.output
    rows = re.findall(r"(lkgp|last value)\s*│\s*([\d.]+)", result.output)
    errors = {name: float(rmse) for name, rmse in rows}
    assert errors["lkgp"] < 0.7 * errors["last value"]
    assert (tmp_path / "demo.png").stat().st_size > 50_000
    refused = CliRunner().invoke(app, ["demo", "--output", str(tmp_path / "no" / "demo.png")])
    assert refused.exit_code == 2


def test_the_naive_forecast_by_hand():
    seen = np.array([[0.0, 1.0, 3.0], [2.0, np.nan, np.nan], [5.0, 6.0, 5.0]])
    mean, spread = demo_curves.last_value(seen)
    assert mean[1].tolist() == [2.0, 2.0, 2.0]
    one_ahead = np.sqrt(np.mean(np.array([1.0, 2.0, 1.0, -1.0]) ** 2))
    assert spread[1, 1] == pytest.approx(one_ahead)
    assert spread[1, 2] == pytest.approx(3.0 / np.sqrt(2))


def test_version_and_help():
    result = CliRunner().invoke(app, ["--version"])
    assert result.output.strip() == lkgp.__version__
    assert "demo" in CliRunner().invoke(app, ["--help"]).output


def test_the_core_imports_without_the_optional_packages():
    absent = ("typer", "rich", "matplotlib", "pandas", "xarray")
    blocked = f"import sys; [sys.modules.__setitem__(name, None) for name in {absent}]; import lkgp"
    subprocess.run([sys.executable, "-W", "ignore", "-c", blocked], check=True)


def test_the_first_example_of_the_readme_runs():
    example = re.search(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL).group(1)
    names: dict = {}
    exec(example, names)
    assert names["draws"].shape == (64, 40, 2)
    filled, _ = names["gp"].predict()
    gaps = np.isnan(names["Y"])
    assert np.sqrt(np.mean((filled - names["field"])[gaps] ** 2)) < 0.15


def test_every_public_name_is_documented():
    page = (ROOT / "docs" / "api.md").read_text()
    for name in lkgp.__all__:
        assert f"`{name}" in page, f"docs/api.md does not name {name}"


@pytest.mark.parametrize(
    "page", ["README.md", "CONTRIBUTING.md", *(f"docs/{path.name}" for path in sorted((ROOT / "docs").glob("*.md")))]
)
def test_every_link_and_picture_of_a_page_is_there(page):
    for target in re.findall(r"\]\((?!https?://|#)([^)#]+)", (ROOT / page).read_text()):
        assert ((ROOT / page).parent / target).exists(), f"{page} points at {target}, which is not in the repository"


def resolve(name: str) -> object:
    """The object with a dotted name; as much of the name as possible is a module."""
    parts = name.split(".")
    for depth in range(len(parts), 0, -1):
        try:
            module = importlib.import_module(".".join(parts[:depth]))
        except ModuleNotFoundError:
            continue
        return reduce(getattr, parts[depth:], module)
    raise ModuleNotFoundError(name)


@pytest.mark.parametrize("page", ["CONTRIBUTING.md", "docs/architecture.md", "docs/api.md"])
def test_every_name_and_path_on_a_page_exists(page):
    text = (ROOT / page).read_text()
    for name in set(re.findall(r"`(lkgp(?:\.\w+)+)", text)):
        resolve(name)
    for path in set(re.findall(r"`((?:src|tests|scripts|docs)/[\w./-]+)", text)):
        assert (ROOT / path.replace("NAME.py", "")).exists(), f"{page} names {path}"


@pytest.fixture(scope="module")
def architecture():
    """The script that writes the generated parts of docs/architecture.md."""
    spec = importlib.util.spec_from_file_location("architecture", ROOT / "scripts" / "architecture.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules["architecture"] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules["architecture"]


def test_the_page_about_the_architecture_shows_the_present_imports(architecture):
    """The counts of files and lines may lag behind a little."""
    layers, page = architecture.read_rooms(), architecture.PAGE.read_text()
    present = architecture.with_generated(page, architecture.generated(layers))
    counts, advice = re.compile(r"\| (\d+) \| (\d+) \|"), "run: python scripts/architecture.py"
    assert counts.sub("", page) == counts.sub("", present), advice
    for old, new in zip(counts.findall(page), counts.findall(present), strict=True):
        assert np.allclose(np.array(old, dtype=int), np.array(new, dtype=int), rtol=0.25, atol=2), advice
    assert architecture.PICTURE.read_text() == architecture.picture(layers), advice


def test_every_room_is_above_those_that_it_imports(architecture):
    """Also those that the contract in pyproject.toml does not list."""
    layers = architecture.read_rooms()
    floors = {room.name: floor for floor, layer in enumerate(layers) for room in layer}
    for room in (room for layer in layers for room in layer):
        assert all(floors[room.name] <= floors[name] for name in room.imports), room.name


@pytest.fixture
def extensions(monkeypatch):
    """What the examples in CONTRIBUTING.md define; the registries forget them afterwards."""
    monkeypatch.setattr(Settings, "known", dict(Settings.known))
    monkeypatch.setattr(Factor, "kinds", dict(Factor.kinds))
    monkeypatch.setattr(Noise, "known", dict(Noise.known))
    monkeypatch.setattr(COMPARATORS, "entries", dict(COMPARATORS.entries))
    monkeypatch.setattr(formats, "FORMATS", dict(formats.FORMATS))
    names: dict = {"__name__": "examples"}
    sys.modules["examples"] = sys  # dataclasses look for the module of a class
    for block in re.findall(r"```python\n(.*?)```", (ROOT / "CONTRIBUTING.md").read_text(), re.DOTALL):
        exec(block, names)
    yield names
    del sys.modules["examples"]


@pytest.fixture
def small():
    """Coordinates and values of a small grid with gaps."""
    rng = np.random.default_rng(0)
    coords = [rng.uniform(size=(12, 2)), np.arange(9.0)]
    Y = np.sin(4 * coords[0][:, :1]) + np.cos(coords[1] / 3) + 0.1 * rng.normal(size=(12, 9))
    Y[rng.random(Y.shape) < 0.3] = np.nan
    return coords, Y


def test_the_example_of_a_way_of_inference_is_exact(extensions, small, tmp_path):
    ours, direct = (lkgp.LKGP(solver=solver).fit(*small) for solver in (extensions["Dense"](), lkgp.Direct()))
    assert ours.report_.converged
    assert ours.report_.method.startswith("dense: ")
    assert np.allclose(ours.predict()[0], direct.predict()[0], atol=1e-5)
    assert ours.log_marginal_likelihood() == pytest.approx(direct.log_marginal_likelihood(), abs=1e-4)
    ours.save(tmp_path / "model.lkgp")
    assert lkgp.LKGP.load(tmp_path / "model.lkgp").solver == extensions["Dense"]()


def test_the_examples_of_a_noise_and_a_mean_are_learned(extensions, small, tmp_path):
    gp = lkgp.LKGP(noise=extensions["ChangingNoise"]()).fit(*small)
    assert gp.report_.converged
    assert gp.model_.noise.slope != 0
    mean, std = gp.predict([None, [3.5, 12.0]], observation_noise=True)
    assert mean.shape == std.shape == (12, 2)
    gp.save(tmp_path / "model.lkgp")
    again, _ = lkgp.LKGP.load(tmp_path / "model.lkgp").predict()
    assert (again == gp.predict()[0]).all()
    data = lkgp.from_array(*small)
    kernels = [ScaleKernel(MaternKernel(ard_num_dims=2)), MaternKernel()]
    model = lkgp.LatentKroneckerGP(kernels, mean=extensions["Trend"]()).double()
    found = lkgp.fit(model, data)
    assert found.converged
    assert found.model.mean.slope != 0
    posterior = lkgp.condition(found.model, data, lkgp.plan(found.model, data))
    assert posterior.mean(data.grid.coords).shape == (12, 9)


def test_the_examples_of_a_factor_a_preconditioner_and_an_optimiser_work(extensions, small):
    data = lkgp.from_array(*small)
    model = lkgp.LatentKroneckerGP([ScaleKernel(MaternKernel(ard_num_dims=2)), MaternKernel()]).double()
    with torch.no_grad():
        diagonal, dense = (model.covariance(data, (kind, "dense")) for kind in ("diagonal", "dense"))
        first = torch.diag(dense.factors[0].entries_diagonal())
        latent = torch.kron(first, dense.factors[1].dense())[data.grid.index][:, data.grid.index]
        x = torch.randn(len(latent), 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
        assert torch.allclose(diagonal @ x, latent @ x + model.noise_diagonal(data)[:, None] * x)
    exact = lkgp.LKGP(solver=lkgp.Direct()).fit(*small)
    solver = lkgp.ObservationSpace(preconditioner=extensions["Jacobi"]())
    gp = lkgp.LKGP(exact.model_.kernels, noise=exact.model_.noise, solver=solver).fit(*small, optimize=False)
    same = lkgp.LKGP(exact.model_.kernels, noise=exact.model_.noise, solver=lkgp.Direct()).fit(*small, optimize=False)
    assert np.allclose(gp.predict()[0], same.predict()[0], atol=1e-4)
    ascent = lkgp.LKGP(optimizer=extensions["Ascent"]()).fit(*small)
    assert ascent.report_.fit == "50 steps were taken"
    assert ascent.log_marginal_likelihood() == pytest.approx(exact.log_marginal_likelihood(), abs=2.0)


def test_the_examples_of_a_comparator_and_a_file_format_are_found(extensions, small, tmp_path):
    coords, Y = small
    problem = Problem("small", [coords[0], coords[1][:, None]], np.nan_to_num(Y), np.isfinite(Y), list)
    predicted = COMPARATORS.get("row mean").settings("small", "sarcos").fit_predict(problem, 0)
    assert np.allclose(predicted.mean[:, 0], np.nanmean(Y, axis=1))
    frame = pd.DataFrame({"station": ["a", "b"], "value": [1.5, 2.5]})
    write_table(frame, tmp_path / "table.jsonl")
    assert read_table(tmp_path / "table.jsonl").equals(frame)


def test_real_learning_curves_are_continued_better_than_by_the_last_value(data_folder):
    """LCBench Fashion-MNIST, first 60 curves, split 0."""
    case = learning_curves(curves=60)
    Y, observed, seen = case.values, case.observed, case.seen
    gp = lkgp.LKGP().fit(case.coords, seen)
    mean, std = gp.predict(observation_noise=True)
    hidden = ~observed & observed.any(axis=1)[:, None]
    last, _ = demo_curves.last_value(np.where(observed.any(axis=1)[:, None], seen, 0.0))
    error, naive = (np.sqrt(np.mean((guess - Y)[hidden] ** 2)) for guess in (mean, last))
    assert error < naive
    truth, m, s = (torch.as_tensor(a[~observed]) for a in (Y, mean, std))
    assert 0.85 < lkgp.metrics.coverage(truth, m, s, 0.95) <= 1.0
