"""Inverses of, and solves with, many triangular matrices at once, against NumPy's general solver."""

import numpy as np
import pytest
import torch

from lkgp.linalg.triangular import TriangularSolves, inverse_from_cholesky, triangular_inverse


def factors_of(size, count=3):
    rng = np.random.default_rng(size)
    found = np.tril(rng.standard_normal((count, size, size))) / np.sqrt(size)
    return found + np.eye(size) * (1.5 + rng.uniform(size=(count, 1, size)))


@pytest.mark.parametrize("size", [1, 7, 31, 32, 33, 64, 101])
def test_solves_and_inverses_agree_with_a_general_solver(size):
    factors = factors_of(size)
    rhs = np.random.default_rng(1).standard_normal((3, size, 5))
    # What is above the diagonal is not read.
    given = torch.as_tensor(factors + np.triu(np.full((size, size), 9.0), 1))
    solves = TriangularSolves(given)
    np.testing.assert_allclose(solves.forward(torch.as_tensor(rhs)).numpy(), np.linalg.solve(factors, rhs), rtol=1e-9)
    transposed = np.linalg.solve(factors.transpose(0, 2, 1), rhs)
    np.testing.assert_allclose(solves.backward(torch.as_tensor(rhs)).numpy(), transposed, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(triangular_inverse(given).numpy(), np.linalg.inv(factors), rtol=1e-9, atol=1e-12)
    products = factors @ factors.transpose(0, 2, 1)
    found = inverse_from_cholesky(torch.as_tensor(factors)).numpy()
    np.testing.assert_allclose(found, np.linalg.inv(products), rtol=1e-8, atol=1e-12)
