"""Products, growth, break-even points and pruners are measured."""

import numpy as np
import pytest
import torch

from lkgp.studies.cases.pruning import SETS
from lkgp.studies.measurements import break_even, growth, products, pruning
from lkgp.studies.pages import pruning as pruning_page
from lkgp.studies.pages.performance_sections import last_exponent


def test_products_and_growth_are_measured(monkeypatch):
    for shape, dtype in (((12, 10), torch.float32), ((5, 4, 3), torch.float64)):
        row = products.compare(shape, 3, dtype, repeats=1)
        assert row["ratio"] == pytest.approx(row["latent"] / row["plain"])
    rows = [{"cells": cells, "seconds": seconds} for cells, seconds in ((1e2, 9.0), (1e4, 1e3), (1e6, 1e6))]
    assert last_exponent(rows) == pytest.approx(1.5)
    assert products.product_seconds((20, 20)) > 0
    monkeypatch.setattr(growth, "PRODUCT_SIZES", (10, 20, 30))
    monkeypatch.setattr(growth, "FIT_SIZES", (10, 14, 20))
    lines: list[str] = []
    found = growth.measure(lines.append)
    assert len(lines) == 6
    assert [row["cells"] for row in found["rows"]["fit"]] == [100, 196, 400]


def test_matrices_without_structure_have_as_many_numbers_as_pairs_of_cells():
    found = break_even.measure_one((30, 7), 0.5)
    assert found["without_bytes"] == 4 * found["observed"] ** 2


def test_replays_of_curves_spend_and_lose_what_the_pruner_says(monkeypatch, tmp_path):
    """Curves that never cross: whatever is stopped, the best run is known from the start."""
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
    looked_at, other = (pruning.measure(said.append, name, name in SETS, runs=12) for name in (SETS[0], "some"))
    assert len(said) == 2 * (pruning.ORDERS + pruning.OTHER_ORDERS)
    many = pruning.measure_many(said.append, SETS[0], runs=15)
    fresh = pruning.measure_fresh(said.append, "some", runs=12)
    assert [(r["family"], r["setting"]) for r in fresh["fresh"]] == [("lkgp", "default"), ("median", "default")]
    cases = {"pruning-a": looked_at, "pruning-b": other, "pruning-many": many, "pruning-fresh-some": fresh}
    results = {"runs": [{"case": case, "contestant": "lkgp", **found} for case, found in cases.items()]}
    section = "\n".join(pruning_page.write(results))
    assert f"| lkgp | default | {pruning.ORDERS} |" in section
    assert f"| lkgp | default | {pruning.OTHER_ORDERS} |" in section
    assert "1 set of which half" in section
    assert "1 set with runs that were drawn after" in section
    assert f"With 15 runs of {SETS[0]}" in section
    name, _ = pruning_page.chart(results, tmp_path)
    assert (tmp_path / name).stat().st_size > 10_000
    assert pruning_page.write({"runs": []}) == []
