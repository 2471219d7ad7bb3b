"""Draws from the prior along a factor that is too large for a triangle have the covariance of the model."""

import numpy as np
import pytest
import torch
from factor_checks import dense_of, kernel_of

from lkgp import InputError
from lkgp.linalg.factors import base, lattice, markov
from lkgp.model import LatentKroneckerGP
from lkgp.posterior import structured_roots
from lkgp.posterior.factor_roots import FactorRoot
from lkgp.posterior.prior_draws import PriorDraws
from lkgp.posterior.structured_roots import StructuredRoot

PLANE = torch.as_tensor(np.stack(np.meshgrid(np.arange(5) * 0.3, np.arange(6) * 0.3, indexing="ij"), -1).reshape(-1, 2))
TIMES = torch.tensor([[0.0], [0.4], [1.0]], dtype=torch.float64)


@pytest.fixture(autouse=True)
def small_limits(monkeypatch):
    monkeypatch.setattr(lattice, "LATTICE_PAYS", 10)
    monkeypatch.setattr(markov, "MARKOV_PAYS", 10)
    monkeypatch.setattr(base, "MOST_ROOT_POINTS", 10)


def draws_of(num, seed=0):
    model = LatentKroneckerGP([kernel_of("0.5", 0.4), kernel_of("1.5", 0.8)]).double()
    return PriorDraws(model, (PLANE, TIMES), num, torch.Generator().manual_seed(seed))


def covariance_of(plane, times):
    return np.kron(dense_of("0.5", 0.4, plane), dense_of("1.5", 0.8, times))


def check_covariance(values, covariance):
    """The empirical covariance of many draws (N, num), within five standard errors."""
    num = values.shape[1]
    spread = np.sqrt(np.outer(covariance.diagonal(), covariance.diagonal()) + covariance**2) / np.sqrt(num)
    assert np.abs(values @ values.T / num - covariance).max() <= np.max(5 * spread)
    assert (np.abs(values @ values.T / num - covariance) <= 5 * spread).mean() > 0.999


def test_draws_on_the_grid():
    draws = draws_of(4000)
    assert [type(root) for root in draws.known.terms[0].roots] == [StructuredRoot, FactorRoot]
    check_covariance(draws((PLANE, TIMES)).numpy(), covariance_of(PLANE, TIMES))
    some = torch.tensor([3, 17, 4])
    whole = draws((PLANE, TIMES)).view(30, 3, -1)
    torch.testing.assert_close(draws((PLANE[some], TIMES[1:])).view(3, 2, -1), whole[some][:, 1:])


def test_draws_at_new_points_of_both_factors_are_consistent():
    draws = draws_of(4000)
    before = draws((PLANE, TIMES))
    new = torch.tensor([[0.1, 0.2], [0.75, 0.35]], dtype=torch.float64)
    later = torch.tensor([[0.2], [2.0]], dtype=torch.float64)
    draws((new[:1], TIMES))
    draws((PLANE[:3], later))
    plane, times = torch.cat([PLANE[:8], new]), torch.cat([TIMES, later])
    check_covariance(draws((plane, times)).numpy(), covariance_of(plane, times))
    torch.testing.assert_close(draws((PLANE, TIMES)), before)


def test_roots_of_new_points_have_the_covariance_of_the_model():
    root = draws_of(1).known.terms[0].roots[0]
    new = torch.tensor([[0.1, 0.2], [0.75, 0.35], [5.0, 5.0]], dtype=torch.float64)
    with torch.no_grad():
        grown = root.extended(new[:1]).extended(new[1:])
    every = torch.cat([PLANE, new])
    rows = grown.rows(torch.arange(len(every))).rows_at(torch.arange(len(every))).numpy()
    own = np.eye(grown.width)
    own[:30, :30] = dense_of("0.5", 0.4, PLANE)
    np.testing.assert_allclose(rows @ own @ rows.T, dense_of("0.5", 0.4, every), atol=1e-5)


def test_means_and_variances_given_the_grid():
    draws = draws_of(3)
    plane = torch.cat([torch.tensor([[0.1, 0.2]], dtype=torch.float64), PLANE[4:6]])
    means, left = draws.given_training((plane, TIMES[:2]))
    cross = covariance_of_cross(plane, TIMES[:2])
    weights = np.linalg.solve(covariance_of(PLANE, TIMES), cross.T)
    np.testing.assert_allclose(means(slice(None)).numpy(), weights.T @ draws((PLANE, TIMES)).numpy(), atol=1e-5)
    exact = covariance_of(plane, TIMES[:2]).diagonal() - (weights * cross.T).sum(axis=0)
    np.testing.assert_allclose(left.flatten().numpy(), exact, atol=1e-5)


def covariance_of_cross(plane, times):
    return np.kron(dense_of("0.5", 0.4, plane, PLANE), dense_of("1.5", 0.8, times, TIMES))


def test_limits_are_named(monkeypatch):
    draws = draws_of(2)
    new = torch.tensor([[0.1, 0.2]], dtype=torch.float64)
    monkeypatch.setattr(structured_roots, "MOST_ITERATIONS", 1)
    with pytest.raises(InputError, match="did not converge: after 1 iterations"):
        draws((new, TIMES))
    monkeypatch.setattr(structured_roots, "MOST_WEIGHTS", 20)
    with pytest.raises(InputError, match="more than the limit of 20"):
        draws((new, TIMES))


def test_the_same_seed_makes_the_same_draws():
    torch.testing.assert_close(draws_of(3, seed=4)((PLANE, TIMES)), draws_of(3, seed=4)((PLANE, TIMES)), atol=0, rtol=0)
