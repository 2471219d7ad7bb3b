"""Every kind of factor is the same matrix: products, rows, decompositions and gradients; and it stays what it is."""

import math

import numpy as np
import pytest
import torch
from cases import Case
from dense_gradients import dense_log_likelihood, gradients
from gpytorch.kernels import MaternKernel, RBFKernel, ScaleKernel
from inference_cases import TIGHT

from lkgp import InputError
from lkgp.errors import TooLargeError
from lkgp.inference import Probes, log_likelihood
from lkgp.linalg import Factor, LatentKronecker
from lkgp.model import Term

KINDS = ["dense", "toeplitz", "lazy", "low_rank"]
# These have files of their own, because they need other kernels or points.
ELSEWHERE = ["circles", "few_modes", "lattice", "markov", "sum"]
POINTS = torch.linspace(0, 3, 60, dtype=torch.float64)[:, None]


def kernel_of(length=0.7):
    kernel = ScaleKernel(RBFKernel()).double()
    kernel.base_kernel.lengthscale, kernel.outputscale = length, 1.3
    return kernel


def normal(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_every_kind_is_in_these_tests():
    assert {*KINDS, *ELSEWHERE} == {
        kind for kind, factor in Factor.kinds.items() if factor.__module__.startswith("lkgp.")
    }


@pytest.mark.parametrize("kind", KINDS)
def test_parts_and_decompositions_are_those_of_the_matrix(kind):
    kernel = kernel_of()
    dense = kernel(POINTS).to_dense().detach()
    with torch.no_grad():
        factor = Term([kernel]).factor(0, POINTS, kind)
        z = normal(60, 4)
        torch.testing.assert_close(factor @ z, dense @ z, atol=1e-9, rtol=1e-9)
        torch.testing.assert_close(factor.transposed_product(z), (dense @ z).mT, atol=1e-9, rtol=1e-9)
        out = torch.empty(4, 60, dtype=torch.float64)
        torch.testing.assert_close(factor.transposed_product_into(z, out), (dense @ z).mT, atol=1e-9, rtol=1e-9)
        torch.testing.assert_close(factor.rows_at(torch.tensor([5, 59])), dense[[5, 59]], atol=1e-9, rtol=1e-9)
        torch.testing.assert_close(factor.entries_diagonal(), dense.diagonal(), atol=1e-9, rtol=1e-9)
        torch.testing.assert_close(factor.dense(), dense, atol=1e-9, rtol=1e-9)
        assert factor.largest_row_sum() == pytest.approx(float(dense.abs().sum(dim=1).max()), rel=1e-9)
        root = factor.basis().root
        torch.testing.assert_close(root @ root.mT, dense, atol=1e-9, rtol=0)
        triangular = factor.triangular_root().root
        torch.testing.assert_close(triangular @ triangular.mT, dense, atol=1e-9, rtol=0)
        rough = factor.rounded(torch.float32)
        torch.testing.assert_close(rough @ z.float(), (dense @ z).float(), atol=1e-3, rtol=1e-3)


@pytest.mark.parametrize("kind", KINDS[:-1])
def test_weights_pull_gradients_back_to_the_kernel(kind):
    """d tr(left^T K right) by `pull_back`, and d tr(W^T K) by `fold`, as autograd through the dense matrix has it."""
    left, right, whole = normal(60, 3), normal(60, 3, seed=1), normal(60, 60, seed=2)
    found = {}
    for way in ("dense", kind):
        kernel = kernel_of()
        factor = Term([kernel]).factor(0, POINTS, way)
        with torch.no_grad():
            weights = factor.pull_back(left, right) + factor.pull_back(2 * right, left) + factor.fold(whole)
        value = factor.inner(weights)
        value.backward()
        found[way] = [float(value.detach()), *(p.grad.item() for p in kernel.parameters())]
    kernel = kernel_of()
    dense = kernel(POINTS).to_dense()
    value = ((left @ right.mT + 2 * right @ left.mT + whole) * dense).sum()
    value.backward()
    truth = [float(value.detach()), *(p.grad.item() for p in kernel.parameters())]
    for numbers in found.values():
        np.testing.assert_allclose(numbers, truth, rtol=1e-8)


def test_a_large_structured_factor_is_not_turned_dense(monkeypatch):
    monkeypatch.setattr("lkgp.linalg.factors.base.MOST_DENSE_POINTS", 50)
    with torch.no_grad():
        for kind in ("toeplitz", "lazy"):
            factor = Term([kernel_of()]).factor(0, POINTS, kind)
            with pytest.raises(InputError, match=f"a {kind} factor of 60 points would take .* GB as a dense matrix"):
                factor.dense()
            # Its eigenpairs are found from single rows.
            dense = kernel_of()(POINTS).to_dense()
            basis = factor.basis(1e-6)
            left = dense - basis.root @ basis.root.mT
            assert float(left.diagonal().sum()) <= 1e-6
            assert float(left.diagonal().sum()) <= basis.tail + 1e-10
            assert factor.leading(5, 1e-9).rank <= 5
        monkeypatch.setattr("lkgp.linalg.factors.base.MOST_MODES_BY_ROWS", 4)
        with pytest.raises(TooLargeError, match="more than 4 modes"):
            factor.basis(1e-6)


def test_the_structure_that_suits_is_chosen(monkeypatch):
    monkeypatch.setattr("lkgp.linalg.factors.toeplitz.TOEPLITZ_PAYS", 30)
    irregular = POINTS + 0.01 * normal(60, 1).abs()
    assert Term([kernel_of()]).structures([POINTS]) == ("toeplitz",)
    assert Term([kernel_of()]).structures([irregular]) == ("dense",)
    assert Term([kernel_of()]).structures([POINTS[:20]]) == ("dense",)


def test_draws_along_a_regular_column_have_the_covariance():
    for length, way in ((0.7, "circulant embedding"), (30.0, "pivoted Cholesky factorisation, because")):
        with torch.no_grad():
            dense = kernel_of(length)(POINTS).to_dense()
            root = Term([kernel_of(length)]).factor(0, POINTS, "toeplitz").noise_root()
            whole = root.times(torch.eye(root.width, dtype=torch.float64))
        assert root.way.startswith(way)
        torch.testing.assert_close(whole @ whole.mT, dense, atol=1e-10, rtol=0)


def test_many_scattered_points_are_never_a_matrix(monkeypatch):
    scattered = torch.rand(60, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    assert Term([kernel_of()]).structures([scattered]) == ("dense",)
    monkeypatch.setattr("lkgp.linalg.factors.base.MOST_DENSE_POINTS", 50)
    assert Term([kernel_of()]).structures([scattered]) == ("lazy",)


@pytest.mark.parametrize("method", TIGHT.values(), ids=TIGHT)
def test_a_toeplitz_factor_changes_no_result_of_any_way(method, monkeypatch):
    """Likelihood gradients with probes of the whole space against the dense oracle."""
    monkeypatch.setattr("lkgp.linalg.factors.toeplitz.TOEPLITZ_PAYS", 5)
    monkeypatch.setattr("lkgp.inference.observation_space.JITTER", 1e-9)
    case = Case("regular", (4, 9), "random", kinds=("matern", "rbf"), regular=True)
    model, data = case.build(), case.data()
    assert model.structures(data.grid) == ("dense", "toeplitz")
    n, cells = data.grid.num_observed, data.grid.num_cells
    whole = math.sqrt(n + cells) * torch.eye(n + cells, dtype=torch.float64)
    found = log_likelihood(model, data, method, Probes(whole[:cells], whole[cells:]), value=False)
    dense = gradients(dense_log_likelihood(model, case, data), model)
    torch.testing.assert_close(gradients(found.objective, model), dense, atol=2e-5, rtol=2e-5)


def test_a_sum_of_products_is_the_sum_of_its_terms():
    case = Case("two terms", (5, 6), "random")
    grid = case.data().grid
    first = [torch.as_tensor(x) for x in (np.cov(np.random.default_rng(0).normal(size=(5, 9))), np.eye(6) + 0.5)]
    second = [
        torch.ones(5, 5, dtype=torch.float64),
        torch.as_tensor(np.exp(-np.abs(np.subtract.outer(range(6), range(6))))),
    ]
    noise = torch.rand(grid.num_observed, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) + 0.1
    operator = LatentKronecker(*first, *second, noise, grid=grid, num_terms=2)
    index = grid.index.numpy()
    dense = sum(np.kron(a.numpy(), b.numpy()) for a, b in (first, second))[np.ix_(index, index)] + np.diag(
        noise.numpy()
    )
    x = normal(len(index), 3)
    np.testing.assert_allclose(operator.product(x).numpy(), dense @ x.numpy(), atol=1e-10)
    with torch.no_grad():
        np.testing.assert_allclose((operator @ x).numpy(), dense @ x.numpy(), atol=1e-10)
    np.testing.assert_allclose(operator.rows(torch.tensor([0, 3])).numpy(), dense[[0, 3]], atol=1e-10)
    np.testing.assert_allclose(operator.diagonal().numpy(), dense.diagonal(), atol=1e-10)


def test_a_rough_kernel_over_many_points_needs_no_matrix_for_a_product():
    points = torch.linspace(0, 1, 20000, dtype=torch.float64)[:, None]
    kernel = MaternKernel(nu=0.5).double()
    with torch.no_grad():
        factor = Term([kernel]).factor(0, points, "toeplitz")
        product = factor @ torch.ones(20000, 1, dtype=torch.float64)
        row = factor.rows_at(torch.tensor([7]))
    assert float(product[7]) == pytest.approx(float(row.sum()), rel=1e-9)
