"""Model files that lkgp 0.1 wrote are still read, and predict what they predicted then."""

from pathlib import Path

import numpy as np
import pytest

from lkgp import BFGS, LKGP, Direct, Iterative, ObservationSpace, Spectral
from lkgp.persistence import ModelContents

FOLDER = Path(__file__).parent / "version1"
METHODS = {
    "direct": Direct,
    "modes": Spectral,
    "cells": ObservationSpace,
    "dense": ObservationSpace,
    "iterative": Iterative,
}


@pytest.mark.parametrize("name", METHODS)
def test_an_old_file_predicts_what_it_did(name):
    gp, told = LKGP.load(FOLDER / f"{name}.lkgp"), np.load(FOLDER / f"{name}.npz")
    assert type(gp.posterior_.plan.method) is METHODS[name]
    assert gp.report_.converged
    new = [told["x"], told["t"]]
    mean, std = gp.predict(new)
    np.testing.assert_allclose(mean, told["mean"], rtol=1e-9)
    # Version 0.1 estimated standard deviations from the draws alone: with a chi distribution, 4.5 standard errors.
    method = gp.posterior_.plan.method
    error = 4.5 / np.sqrt(2 * method.num_samples) if gp.posterior_.variance_error else 1e-6
    np.testing.assert_allclose(told["std"], std, rtol=error)
    np.testing.assert_allclose(gp.sample(2, new, seed=3), told["sample"], rtol=1e-6, atol=1e-9)


def test_settings_keep_their_meaning_under_new_names():
    assert LKGP.load(FOLDER / "modes.lkgp").optimizer == BFGS(sufficient_observations=1000)
    assert LKGP.load(FOLDER / "dense.lkgp").posterior_.plan.method.dense
    assert not LKGP.load(FOLDER / "cells.lkgp").posterior_.plan.method.dense


@pytest.mark.parametrize("name", METHODS)
def test_an_old_file_can_be_saved_and_read_again(name, tmp_path):
    gp = LKGP.load(FOLDER / f"{name}.lkgp")
    gp.save(tmp_path / "new.lkgp")
    again = LKGP.load(tmp_path / "new.lkgp")
    for ours, theirs in zip(gp.predict(), again.predict(), strict=True):
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("name", METHODS)
def test_draws_of_an_old_file_are_not_counted_twice(name):
    before = ModelContents.read(FOLDER / f"{name}.lkgp").header["report"]
    report = LKGP.load(FOLDER / f"{name}.lkgp").report_
    assert report.products == before["products"]
    assert list(report.notes) == before["notes"]
    np.testing.assert_allclose(np.sort(report.sample_residuals), np.sort(before["sample_residuals"]), rtol=1e-6)
