"""The weights of single entries of a factor, for every structure, against the dense matrix."""

import numpy as np
import pytest
import torch
from gpytorch.kernels import MaternKernel

from lkgp.model import Term


def regular(n):
    return torch.linspace(0, 3, n, dtype=torch.float64)[:, None]


def lattice():
    x, y = np.meshgrid(np.arange(5.0), np.arange(7.0), indexing="ij")
    return torch.from_numpy(np.stack([x.ravel(), y.ravel()], axis=1)[np.random.default_rng(0).permutation(35)[:30]])


def rows_of_points():
    x, y = np.meshgrid(np.array([0.0, 0.7, 2.0]), np.arange(6.0), indexing="ij")
    return torch.from_numpy(np.stack([x.ravel(), y.ravel()], axis=1)[:-1])


STRUCTURES = {
    "dense": regular(9),
    "toeplitz": regular(9),
    "low_rank": regular(9),
    "lazy": regular(70),
    "markov": regular(70).square(),
    "lattice": lattice(),
    "circles": rows_of_points(),
}


@pytest.mark.parametrize("kind", STRUCTURES)
def test_weights_of_entries_give_their_sum_and_its_derivative(kind):
    coords = STRUCTURES[kind]
    kernel = MaternKernel(nu=1.5).double()
    term, rng = Term([kernel]), np.random.default_rng(1)
    rows, columns = (torch.from_numpy(rng.integers(0, len(coords), 200)) for _ in range(2))
    weights = torch.from_numpy(rng.standard_normal(200))
    left, right = (torch.from_numpy(rng.standard_normal((len(coords), 2))) for _ in range(2))
    with torch.no_grad():
        factor = term.factor(0, coords, kind)
        together = factor.gather_weights(rows, columns, weights) + factor.pull_back(left, right) * 0.5
    matrix = term.factor(0, coords, "dense").dense()
    expected = (weights * matrix[rows, columns]).sum() + 0.5 * (left * (matrix @ right)).sum()
    found = term.factor(0, coords, kind).inner(together)
    assert float(found.detach()) == pytest.approx(float(expected.detach()), rel=1e-9)
    slopes = [torch.autograd.grad(value, kernel.raw_lengthscale)[0] for value in (found, expected)]
    if kind != "low_rank":  # its root is not differentiable
        torch.testing.assert_close(*slopes, rtol=1e-8, atol=1e-10)
