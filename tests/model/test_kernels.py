"""Kernels made of others have the values that GPyTorch gives them."""

import pytest
import torch
from gpytorch.kernels import (
    IndexKernel,
    LinearKernel,
    MaternKernel,
    PeriodicKernel,
    ProductKernel,
    RBFKernel,
    RQKernel,
    ScaleKernel,
)

from lkgp.model import evaluate


def matern(nu, lengths, active=None):
    kernel = MaternKernel(nu=nu, ard_num_dims=lengths, active_dims=active)
    kernel.lengthscale = torch.linspace(0.4, 0.9, lengths or 1)
    return kernel


def scaled(kernel, scale):
    found = ScaleKernel(kernel)
    found.outputscale = scale
    return found


def examples():
    yield "scaled", scaled(matern(1.5, 3), 2.5), 3
    yield "scaled twice", scaled(scaled(matern(0.5, None), 0.3), 7.0), 3
    yield "two scales", scaled(matern(0.5, None) + scaled(matern(1.5, None), 0.2), 3.0), 1
    yield "cycles", scaled(RQKernel(), 2.0) + scaled(PeriodicKernel() * matern(2.5, None), 0.5), 1
    yield "some columns", scaled(matern(1.5, 2, active=(2, 0)), 1.3) * RBFKernel(active_dims=(1,)), 3
    yield "some columns of some", scaled(matern(1.5, 1, active=(1,)) * matern(0.5, None), 4.0), 3
    yield "lazy parts", ProductKernel(LinearKernel(), scaled(LinearKernel(), 0.3), RBFKernel()), 2
    yield "categories", scaled(IndexKernel(num_tasks=5, rank=2), 0.5) + IndexKernel(num_tasks=5, rank=1), 1


@pytest.mark.parametrize(("name", "kernel", "columns"), list(examples()), ids=[one[0] for one in examples()])
def test_composed_kernels_agree_with_gpytorch(name, kernel, columns):
    kernel.double()
    generator = torch.Generator().manual_seed(0)
    x, y = (torch.rand(n, columns, dtype=torch.float64, generator=generator) for n in (6, 4))
    if name == "categories":
        x, y = (5 * x).floor(), (5 * y).floor()
    for rows, others in ((x, None), (x, y)):
        found = evaluate(kernel, rows, others)
        expected = kernel(rows, rows if others is None else others).to_dense()
        torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)
        weights = torch.rand(expected.shape, dtype=torch.float64, generator=generator)
        ours, theirs = (
            torch.autograd.grad((weights * one).sum(), list(kernel.parameters()), allow_unused=True)
            for one in (found, expected)
        )
        for one, other in zip(ours, theirs, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-12)


def test_many_sets_of_points_at_once():
    kernel = scaled(matern(0.5, None) + scaled(matern(1.5, None), 0.2), 3.0).double()
    x = torch.rand(3, 5, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    together = evaluate(kernel, x)
    for one, found in zip(x, together, strict=True):
        torch.testing.assert_close(found, kernel(one).to_dense(), rtol=1e-12, atol=1e-12)
