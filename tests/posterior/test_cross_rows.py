"""Predictions off the grid where covariances with the fitted points are too many for a matrix."""

import numpy as np
import pytest
import torch
from factor_checks import dense_of, kernel_of

from lkgp import LKGP
from lkgp.linalg.factors import base, lattice
from lkgp.posterior import cross_rows, posterior

PLANE = np.stack(np.meshgrid(np.arange(5) * 0.3, np.arange(6) * 0.3, indexing="ij"), -1).reshape(-1, 2)
SCATTERED = np.random.default_rng(1).uniform(0, 1.5, (30, 2))
TIMES = np.array([[0.0], [0.4], [1.0], [1.3]])
KERNELS = ("0.5", "1.5"), (0.4, 0.8)
NEW = np.array([[0.1, 0.2], [0.75, 0.35], [3.0, 0.0]])


@pytest.fixture(autouse=True)
def small_limits(monkeypatch):
    monkeypatch.setattr(lattice, "LATTICE_PAYS", 10)
    monkeypatch.setattr(base, "MOST_DENSE_POINTS", 20)
    monkeypatch.setattr(base, "MOST_ROOT_POINTS", 10)
    monkeypatch.setattr(posterior, "MOST_CROSS_NUMBERS", 1)


@pytest.mark.parametrize("places", [PLANE, SCATTERED], ids=["lattice", "lazy"])
@pytest.mark.parametrize("block", [2**22, 40], ids=["one block", "several blocks"])
def test_mean_at_fitted_and_new_points_against_a_dense_computation(places, block, monkeypatch):
    monkeypatch.setattr(cross_rows, "WORK_ENTRIES", block)
    rng = np.random.default_rng(0)
    values = np.where(rng.uniform(size=(30, 4)) < 0.3, np.nan, rng.standard_normal((30, 4)))
    gp = LKGP([kernel_of("0.5", 0.4), kernel_of("1.5", 0.8)], mean=0.0, noise=0.05, standardize=False)
    gp.fit([places, TIMES], values, optimize=False)
    wanted = np.concatenate([places[[7, 3]], NEW, places[20:22]]), np.concatenate([TIMES[1:3], [[0.7]]])
    found = gp.predict(list(wanted), std=False)
    everywhere = [np.concatenate(pair) for pair in zip(wanted, (places, TIMES), strict=True)]
    dense = [dense_of(name, length, torch.as_tensor(x)) for name, length, x in zip(*KERNELS, everywhere, strict=True)]
    seen = np.flatnonzero(np.isfinite(values).ravel())
    crosses = [k[: len(x), len(x) :] for k, x in zip(dense, wanted, strict=True)]
    inner = [k[len(x) :, len(x) :] for k, x in zip(dense, wanted, strict=True)]
    a = np.kron(*inner)[np.ix_(seen, seen)] + 0.05 * np.eye(len(seen))
    expected = np.kron(*crosses)[:, seen] @ np.linalg.solve(a, values.ravel()[seen])
    np.testing.assert_allclose(np.asarray(found).ravel(), expected, atol=1e-6)
