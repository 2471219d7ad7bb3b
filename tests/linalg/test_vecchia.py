"""Vecchia's preconditioner against dense matrices."""

import numpy as np
import pytest
import torch
from gpytorch.kernels import IndexKernel, MaternKernel, PeriodicKernel, RBFKernel, RQKernel

from lkgp import LatentKroneckerGP, from_array
from lkgp.linalg.correlated_cells import earlier_by_correlation, factor_places
from lkgp.linalg.preconditioners import Vecchia
from lkgp.model import Term


def operator_of(coords, kernels, noise=0.01, missing=0.3, seed=0, terms=()):
    rng = np.random.default_rng(seed)
    y = rng.standard_normal([len(x) for x in coords])
    y[rng.random(y.shape) < missing] = np.nan
    data = from_array([np.asarray(x, dtype=float) for x in coords], y)
    model = LatentKroneckerGP([kernel.double() for kernel in kernels], noise=noise).double()
    for term in terms:
        model.terms.append(Term([kernel.double() for kernel in term]))
    with torch.no_grad():
        return model.covariance(data).detach()


def matern(lengthscale, nu=0.5, columns=None):
    kernel = MaternKernel(nu=nu, ard_num_dims=columns)
    kernel.lengthscale = torch.as_tensor(lengthscale)
    return kernel


def dense(operator):
    return operator.rows(torch.arange(operator.shape[0])).numpy()


@pytest.fixture
def places_and_times():
    rng = np.random.default_rng(3)
    return operator_of(
        [rng.random((12, 2)), np.sort(rng.random(9))[:, None]], [matern([0.3, 0.5], columns=2), matern(0.2, 1.5)]
    )


def test_all_earlier_cells_make_it_exact(places_and_times):
    matrix = dense(places_and_times)
    n = len(matrix)
    inverse = Vecchia(neighbours=n - 1).build(places_and_times)
    np.testing.assert_allclose(inverse.solve(torch.eye(n, dtype=torch.float64)).numpy() @ matrix, np.eye(n), atol=1e-9)
    np.testing.assert_allclose(float(inverse.logdet), np.linalg.slogdet(matrix)[1], rtol=1e-12)
    root = inverse.root(torch.eye(n, dtype=torch.float64)).numpy()
    np.testing.assert_allclose(root @ root.T, matrix, atol=1e-12)


def losses_along_factors(operator):
    """-log(correlation) of every pair of cells along each factor, (d, n, n)."""
    found = []
    for factor, axis in zip(operator.terms[0], operator.grid.axis_index, strict=True):
        covariance = factor.dense().numpy()
        deviations = np.sqrt(np.diag(covariance))
        found.append(-np.log(covariance / deviations / deviations[:, None])[np.ix_(axis, axis)])
    return np.array(found)


def test_each_row_predicts_a_cell_from_its_neighbours(places_and_times, monkeypatch):
    """M^-1 = U^T F^-1 U from the definition, cell by cell, in NumPy."""
    matrix = dense(places_and_times)
    n = len(matrix)
    # so that all earlier cells are candidates
    monkeypatch.setattr("lkgp.linalg.correlated_cells.CANDIDATES", n)
    inverse = Vecchia(neighbours=5, seed=2).build(places_and_times)
    order = np.random.default_rng(2).permutation(n)
    predictions, variances = np.zeros((n, n)), np.zeros(n)
    losses = losses_along_factors(places_and_times)
    for position, i in enumerate(order):
        before = order[:position]
        total, largest = losses[:, i, before].sum(axis=0), losses[:, i, before].max(axis=0)
        best = np.argsort(total)[:3]
        # then the smallest box, its corners first
        others = np.setdiff1d(np.argsort(largest - 1e-3 * total), best, assume_unique=True)[: 5 - len(best)]
        chosen = before[np.concatenate([best, others])]
        weights = np.linalg.solve(matrix[np.ix_(chosen, chosen)], matrix[chosen, i])
        predictions[i, chosen] = weights
        variances[i] = matrix[i, i] - matrix[i, chosen] @ weights
    u = np.eye(n) - predictions
    expected = u.T @ np.diag(1 / variances) @ u
    np.testing.assert_allclose(inverse.solve(torch.eye(n, dtype=torch.float64)).numpy(), expected, atol=1e-8)
    np.testing.assert_allclose(float(inverse.logdet), np.log(variances).sum(), rtol=1e-10)
    single = inverse.solve(torch.eye(n)).numpy()
    assert single.dtype == np.float32
    np.testing.assert_allclose(single, expected, rtol=1e-4, atol=1e-4 * np.abs(expected).max())
    root = inverse.root(torch.eye(n, dtype=torch.float64)).numpy()
    np.testing.assert_allclose(root @ root.T @ expected, np.eye(n), atol=1e-8)


def test_a_markov_chain_needs_one_neighbour_in_the_order_of_time():
    """An exponential kernel without noise over one axis: the two nearest earlier cells screen all others."""
    operator = operator_of([np.linspace(0, 5, 60)[:, None]], [matern(1.0)], noise=1e-10, missing=0.0)
    # A point between two earlier ones depends on both; nearest earlier ones may lie on one side, so take a few.
    matrix = dense(operator)
    inverse = Vecchia(neighbours=30).build(operator)
    spectrum = np.linalg.eigvals(inverse.solve(torch.from_numpy(matrix)).numpy()).real
    np.testing.assert_allclose(spectrum, 1.0, atol=1e-5)


def test_eigenvalues_have_mean_one(places_and_times):
    matrix = torch.from_numpy(dense(places_and_times))
    inverse = Vecchia(neighbours=8).build(places_and_times)
    assert float(inverse.solve(matrix).trace()) == pytest.approx(len(matrix), rel=1e-10)


def test_length_scales_are_recognised():
    rng = np.random.default_rng(0)
    for nu in (0.5, 1.5, 2.5):
        operator = operator_of(
            [rng.random((400, 2)), np.arange(3.0)[:, None]], [matern([0.1, 0.4], nu, 2), matern(1.0)]
        )
        scale = factor_places(operator, 0).scale
        assert scale[0] / scale[1] == pytest.approx(4.0, rel=0.1)


def test_one_scale_for_an_isotropic_kernel_on_a_lattice():
    x, y = np.meshgrid(np.arange(20.0), 2.5 * np.arange(15.0), indexing="ij")
    points = np.stack([x.ravel(), y.ravel()], axis=1)
    found = factor_places(operator_of([points, np.arange(2.0)[:, None]], [matern(6.0, 1.5), matern(1.0)]), 0)
    assert found.ordered
    assert found.scale[0] == found.scale[1]


def correlations(operator):
    latent = dense(operator) - np.diag(operator.noise_diagonal().numpy())
    deviations = np.sqrt(np.diag(latent))
    return latent / deviations / deviations[:, None]


def captured(operator, count):
    """The correlations with the better half of the neighbours over those with the best cells, sum over sum."""
    n, half = operator.shape[0], -(-count // 2)
    order = torch.from_numpy(np.random.default_rng(0).permutation(n))
    found = earlier_by_correlation(operator, order, count).numpy()
    matrix = np.abs(correlations(operator))[np.ix_(order, order)]
    shares = []
    for i in range(2 * count, n):
        assert (found[i] < i).all()
        assert len(set(found[i])) == count
        shares.append(np.sort(matrix[i, found[i]])[-half:].sum() / np.sort(matrix[i, :i])[-half:].sum())
    return np.array(shares)


def test_cells_a_period_apart_are_neighbours():
    season, decay = PeriodicKernel(), RBFKernel()
    season.period_length, season.lengthscale, decay.lengthscale = 12.0, 0.05, 40.0
    times = np.arange(150.0)[:, None]
    places = np.random.default_rng(0).random((6, 2))
    operator = operator_of([places, times], [matern(0.5), season * decay])
    assert factor_places(operator, 1).turns.period == pytest.approx(12.0)
    assert captured(operator, 10).mean() > 0.97
    alone = operator_of([places, times], [matern(0.5), season])
    assert captured(alone, 10).mean() > 0.95


def test_neighbours_complete_a_product():
    """With heavy tails, the cells two steps away on either axis are more correlated than the corners of a square."""
    axes = [np.arange(9.0)[:, None], np.arange(7.0)[:, None]]
    heavy = [RQKernel() for _ in axes]
    for kernel in heavy:
        kernel.alpha, kernel.lengthscale = 0.2, 0.3
    operator = operator_of(axes, heavy, missing=0.0)
    centre = 4 * 7 + 3
    order = torch.tensor([cell for cell in range(63) if cell != centre] + [centre])
    rows, columns = np.divmod(order[earlier_by_correlation(operator, order, 8)[-1]].numpy(), 7)
    square = {(a, b) for a in (3, 4, 5) for b in (2, 3, 4)} - {(4, 3)}
    assert set(zip(rows, columns, strict=True)) == square


def test_categories_are_neighbours_by_their_correlation():
    kernel = IndexKernel(num_tasks=6, rank=2)
    kernel.covar_factor = torch.nn.Parameter(torch.tensor([[1, 0], [0, 1], [1, 0.1], [0.1, 1], [1, -0.1], [0.7, 0.7]]))
    kernel.raw_var.data.fill_(-3.0)
    operator = operator_of([np.arange(6.0)[:, None], np.arange(40.0)[:, None]], [kernel, matern(3.0)])
    assert factor_places(operator, 0).scale is None
    assert captured(operator, 8).mean() > 0.97


def test_sum_of_terms():
    rng = np.random.default_rng(1)
    operator = operator_of(
        [rng.random((30, 2)), np.arange(10.0)[:, None]], [matern(0.2), matern(1.0)],
        terms=[[matern(0.6, 2.5), matern(8.0, 2.5)]],
    )  # fmt: skip
    assert captured(operator, 8).mean() > 0.95
    matrix = dense(operator)
    inverse = Vecchia(neighbours=len(matrix)).build(operator)
    np.testing.assert_allclose(float(inverse.logdet), np.linalg.slogdet(matrix)[1], rtol=1e-10)


@pytest.mark.parametrize("count", [1, 2, 5])
def test_few_cells(count):
    operator = operator_of([np.arange(float(count))[:, None]], [matern(1.0)], missing=0.0)
    inverse = Vecchia().build(operator)
    np.testing.assert_allclose(float(inverse.logdet), np.linalg.slogdet(dense(operator))[1], rtol=1e-10, atol=1e-12)


def test_indefinite_matrices_are_repaired_and_counted():
    """A squared exponential kernel with hardly any noise is singular in double precision."""
    operator = operator_of([np.linspace(0, 1, 80)[:, None]], [RBFKernel()], noise=1e-4, missing=0.0)
    operator.noise.fill_(1e-18)
    inverse = Vecchia(neighbours=20).build(operator)
    assert inverse.local.repaired > 0
    assert torch.isfinite(inverse.solve(torch.ones(80, 1, dtype=torch.float64))).all()
    assert (
        Vecchia(neighbours=20).build(operator_of([np.linspace(0, 1, 80)[:, None]], [RBFKernel()])).local.repaired == 0
    )
