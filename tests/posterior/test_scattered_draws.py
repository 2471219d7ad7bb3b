"""Draws, means and variances along a factor of scattered points that is never stored as a matrix."""

import numpy as np
import pytest
import torch
from factor_checks import check_draws, dense_of, kernel_of
from oracle import Oracle

from lkgp import LKGP, InputError, ObservationSpace
from lkgp.linalg import noise_roots
from lkgp.linalg.factors import base, lazy
from lkgp.linalg.preconditioners import Vecchia
from lkgp.model import LatentKroneckerGP, Term
from lkgp.posterior.factor_roots import FactorRoot
from lkgp.posterior.prior_draws import PriorDraws
from lkgp.posterior.structured_roots import StructuredRoot

PLACES = torch.rand(30, 2, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
TIMES = torch.tensor([[0.0], [0.4], [1.0]], dtype=torch.float64)


@pytest.fixture(autouse=True)
def small_limits(monkeypatch):
    monkeypatch.setattr(base, "MOST_ROOT_POINTS", 10)
    monkeypatch.setattr(base, "MOST_DENSE_POINTS", 20)


def draws_of(num, **limits):
    model = LatentKroneckerGP([kernel_of("0.5", 0.4), kernel_of("1.5", 0.8)]).double()
    return PriorDraws(model, (PLACES, TIMES), num, torch.Generator().manual_seed(0), **limits)


@pytest.mark.parametrize("name", ["0.5", "1.5", "2.5"])
def test_the_root_is_exact(name):
    check_draws(Term([kernel_of(name, 0.4)]).factor(0, PLACES, "lazy"), dense_of(name, 0.4, PLACES))


def test_the_root_over_several_blocks_of_rows(monkeypatch):
    monkeypatch.setattr(base, "WORK_ENTRIES", 7 * len(PLACES))
    factor = Term([kernel_of("0.5", 0.4)]).factor(0, PLACES, "lazy")
    check_draws(factor, dense_of("0.5", 0.4, PLACES))
    assert factor.noise_root().way.startswith("Cholesky factorisation of 30 points")


def test_a_factor_that_rounding_makes_indefinite_gets_more_noise_and_says_so(monkeypatch):
    monkeypatch.setattr(noise_roots, "FIRST_SHARE", 1e-17)
    twice = torch.cat([PLACES, PLACES[:5]])
    root = Term([kernel_of("2.5", 3.0)]).factor(0, twice, "lazy").noise_root()
    assert "1e-17" not in root.way
    np.testing.assert_allclose((root.root @ root.root.mT).numpy(), dense_of("2.5", 3.0, twice), atol=1e-7)


@pytest.mark.parametrize("most", [0, 2**29], ids=["never stored", "stored in float32"])
def test_predictions_against_the_oracle(most, monkeypatch):
    monkeypatch.setattr(lazy, "MOST_SINGLE_NUMBERS", most)
    rng = np.random.default_rng(2)
    values = np.where(rng.uniform(size=(30, 3)) < 0.3, np.nan, rng.standard_normal((30, 3)))
    kernels = [kernel_of("0.5", 0.4), kernel_of("1.5", 0.8)]
    solver = ObservationSpace(preconditioner=Vecchia(neighbours=8))
    gp = LKGP(kernels, mean=0.0, noise=0.05, standardize=False, solver=solver)
    gp.fit([PLACES.numpy(), TIMES.numpy()], values, optimize=False)
    assert gp.report_.structures == ("lazy", "dense")
    pairs = (("0.5", 0.4), ("1.5", 0.8))
    formulas = [lambda x, z, pair=pair: dense_of(*pair, x, z) for pair in pairs]
    oracle = Oracle(formulas, [PLACES.numpy(), TIMES.numpy()], values, 0.05)
    mean, std = gp.predict()
    np.testing.assert_allclose(mean, oracle.mean_at(oracle.coords), atol=2e-3)
    exact = oracle.covariance_at(oracle.coords).diagonal() ** 0.5
    np.testing.assert_allclose(std.ravel(), exact, rtol=0.03)


def test_draws_have_the_covariance_of_the_model():
    draws = draws_of(4000)
    assert [type(root) for root in draws.known.terms[0].roots] == [StructuredRoot, FactorRoot]
    values = draws((PLACES, TIMES)).numpy()
    covariance = np.kron(dense_of("0.5", 0.4, PLACES), dense_of("1.5", 0.8, TIMES))
    spread = np.sqrt(np.outer(covariance.diagonal(), covariance.diagonal()) + covariance**2) / np.sqrt(4000)
    assert np.abs((values @ values.T / 4000 - covariance) / spread).max() <= 5.5


def test_a_root_beyond_the_memory_limit_is_refused():
    with pytest.raises(InputError, match=r"at 30 scattered points.*raise max_memory"):
        draws_of(2, max_memory=100.0)
