"""The demo, the command line and the README do what they say."""

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import lkgp
from lkgp import demo
from lkgp.cli import app
from lkgp.demo import curves as demo_curves
from lkgp.studies.cases.lcbench import learning_curves

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
    blocked = "import sys; [sys.modules.__setitem__(name, None) for name in ('typer', 'rich', 'matplotlib', 'pandas', 'xarray')]; import lkgp"
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


@pytest.mark.parametrize("page", ["README.md", *(f"docs/{path.name}" for path in sorted((ROOT / "docs").glob("*.md")))])
def test_every_link_and_picture_of_a_page_is_there(page):
    for target in re.findall(r"\]\((?!https?://|#)([^)#]+)", (ROOT / page).read_text()):
        assert ((ROOT / page).parent / target).exists(), f"{page} points at {target}, which is not in the repository"


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
