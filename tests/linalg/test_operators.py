"""The operators against dense matrices, and against linear_operator's own conformance tests."""

import unittest

import numpy as np
import pytest
import torch
from cases import CASES, name
from gpytorch.kernels import RBFKernel
from linear_operator import settings
from linear_operator.test.linear_operator_test_case import LinearOperatorTestCase

from lkgp import PartialGrid
from lkgp.linalg import DenseFactor, LatentKronecker, LazyFactor, LowRankFactor, ToeplitzFactor
from lkgp.linalg.products import kronecker_matmul
from lkgp.model import LatentKroneckerGP


@pytest.fixture(autouse=True)
def as_linear_operator_has_it():
    """Importing BoTorch, as other tests do, turns these settings off for the whole process."""
    with settings.fast_computations(covar_root_decomposition=True, log_prob=True, solves=True):
        yield


def random_covariance(size):
    root = torch.randn(size, size)
    return root @ root.mT + torch.eye(size)


def small_grid():
    observed = torch.tensor([[1, 1], [1, 0], [1, 1]], dtype=torch.bool)
    return PartialGrid((torch.arange(3.0), torch.arange(2.0)), observed)


class TestDenseFactors(LinearOperatorTestCase, unittest.TestCase):
    seed = 1

    def create_linear_op(self):
        factors = [random_covariance(size).requires_grad_(True) for size in (3, 2)]
        return LatentKronecker(*factors, torch.tensor(0.7, requires_grad=True), grid=small_grid())

    def evaluate_linear_op(self, linear_op):
        index = linear_op.grid.index
        dense = torch.kron(*(self.dense_factor(factor) for factor in linear_op.factors))
        return dense[index][:, index] + torch.diag(linear_op.noise.expand(5))

    def dense_factor(self, factor):
        return factor.dense()


class TestToeplitzFactorAndCellNoise(TestDenseFactors):
    def create_linear_op(self):
        toeplitz = ToeplitzFactor(torch.tensor([2.0, 0.7, 0.2], requires_grad=True))
        noise = (torch.rand(5) + 0.5).requires_grad_(True)
        return LatentKronecker(toeplitz, random_covariance(2).requires_grad_(True), noise, grid=small_grid())

    def dense_factor(self, factor):
        if isinstance(factor, DenseFactor):
            return factor.dense()
        lag = (torch.arange(3)[:, None] - torch.arange(3)).abs()
        return factor.column[lag]


@pytest.mark.parametrize("case", CASES, ids=name)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_product_rows_and_diagonal_match_the_dense_matrix(case, dtype):
    model, data, dense = case.build(), case.data(), case.oracle().matrix
    operator = model.covariance(data).detach().to(dtype)
    block = np.random.default_rng(1).normal(size=(len(dense), 3))
    tolerance = 1e-11 if dtype == torch.float64 else 1e-4
    columns = torch.as_tensor(block, dtype=dtype)
    with torch.no_grad():
        np.testing.assert_allclose((operator @ columns).numpy(), dense @ block, atol=tolerance, rtol=tolerance)
        np.testing.assert_allclose(
            (operator @ columns[:, 0]).numpy(), dense @ block[:, 0], atol=tolerance, rtol=tolerance
        )
        some = torch.tensor([0, len(dense) - 1])
        np.testing.assert_allclose(operator.rows(some).numpy(), dense[some.numpy()], atol=tolerance, rtol=tolerance)
    np.testing.assert_allclose(operator.diagonal().numpy(), np.diag(dense), atol=tolerance, rtol=tolerance)


@pytest.mark.parametrize("case", CASES, ids=name)
def test_cross_covariance_matches_the_dense_matrix(case):
    model, data, oracle = case.build(), case.data(), case.oracle()
    new = case.new_coords()
    dense, _ = oracle._blocks(new)
    cross = model.cross_covariance(data.grid, [torch.as_tensor(x) for x in new])
    block = np.random.default_rng(1).normal(size=(dense.shape[1], 2))
    with torch.no_grad():
        np.testing.assert_allclose((cross @ torch.as_tensor(block)).numpy(), dense @ block, atol=1e-10)
        np.testing.assert_allclose(cross.rows(torch.tensor([0, 2])).numpy(), dense[[0, 2]], atol=1e-10)


STRUCTURES = ["dense", "toeplitz", "lazy", "low_rank"]


@pytest.mark.parametrize("structure", STRUCTURES)
def test_every_kind_of_factor_is_the_same_matrix(structure):
    x = torch.linspace(0, 3, 40, dtype=torch.float64)[:, None]
    kernel = RBFKernel().double()
    model = LatentKroneckerGP([kernel])
    dense = kernel(x).to_dense().detach()
    factor = model.terms[0].factor(0, x, structure)
    expected = {"dense": DenseFactor, "toeplitz": ToeplitzFactor, "lazy": LazyFactor, "low_rank": LowRankFactor}[
        structure
    ]
    assert isinstance(factor, expected)
    rhs = torch.randn(40, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        torch.testing.assert_close(factor.matmul(rhs), dense @ rhs, atol=1e-10, rtol=1e-10)
        torch.testing.assert_close(factor.rows_at(torch.tensor([3, 39])), dense[[3, 39]], atol=1e-10, rtol=1e-10)
        torch.testing.assert_close(
            factor[torch.tensor([1, 5]), torch.tensor([5, 7])], dense[[1, 5], [5, 7]], atol=1e-10, rtol=1e-10
        )
    if structure == "low_rank":
        assert factor.low_rank_root.shape[-1] < 25


def test_lazy_factors_make_no_matrix_and_pass_gradients_on(monkeypatch):
    points = torch.rand(300, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    kernel = RBFKernel(ard_num_dims=2).double()
    largest = 0

    def evaluate(a, b):
        nonlocal largest
        largest = max(largest, len(a) * len(b))
        return kernel(a, b).to_dense()

    rhs = torch.ones(300, 1, dtype=torch.float64)
    monkeypatch.setattr("lkgp.linalg.factors.base.WORK_ENTRIES", 3000)
    lazy = LazyFactor(points, points, evaluate=evaluate)
    (rhs.mT @ lazy._matmul(rhs)).backward()
    assert largest == 3000
    by_blocks = kernel.raw_lengthscale.grad.clone()
    kernel.raw_lengthscale.grad = None
    (rhs.mT @ kernel(points).to_dense() @ rhs).backward()
    torch.testing.assert_close(by_blocks, kernel.raw_lengthscale.grad)


@pytest.mark.parametrize("wide", [1, 1000])
@pytest.mark.parametrize("aligned_from", [6, 1000])
@pytest.mark.parametrize("shape", [(9,), (9, 7), (5, 4, 3), (11, 3, 7)])
def test_chunks_of_columns_aligned_rows_and_batches_change_nothing(shape, aligned_from, wide, monkeypatch):
    monkeypatch.setattr("lkgp.linalg.products.WIDE", wide)
    monkeypatch.setattr("lkgp.linalg.kronecker.CHUNK_CELLS", 2 * int(np.prod(shape)))
    monkeypatch.setattr("lkgp.linalg.kronecker.CHUNK_COLUMNS", 1)
    monkeypatch.setattr("lkgp.linalg.products.ALIGNED_FROM", aligned_from)
    generator = torch.Generator().manual_seed(0)
    factors = [torch.randn(size, size, dtype=torch.float64, generator=generator) for size in shape]
    observed = torch.rand(shape, generator=generator) < 0.7
    grid = PartialGrid(tuple(torch.arange(float(size)) for size in shape), observed)
    operator = LatentKronecker(*factors, torch.tensor(0.3, dtype=torch.float64), grid=grid)
    dense = torch.ones(1, 1, dtype=torch.float64)
    for factor in factors:
        dense = torch.kron(dense, factor)
    dense = dense[grid.index][:, grid.index] + 0.3 * torch.eye(grid.num_observed)
    rhs = torch.randn(grid.num_observed, 5, dtype=torch.float64, generator=generator)
    with torch.no_grad():
        torch.testing.assert_close(operator @ rhs, dense @ rhs)
        torch.testing.assert_close(operator @ rhs[:, :1], dense @ rhs[:, :1])


def test_a_product_with_the_root_of_a_zero_factor_is_zero():
    """A linear kernel at zero has no modes, and its root no columns."""
    roots = [torch.ones(3, 2), torch.ones(4, 0), torch.ones(2, 2)]
    found = kronecker_matmul(roots, torch.ones(0, 5))
    assert found.shape == (5, 24)
    assert bool((found == 0).all())
