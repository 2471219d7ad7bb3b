"""Kernel values between points that nearly coincide, against differences in NumPy."""

import copy
import pickle

import numpy as np
import pytest
import torch
from gpytorch.kernels import MaternKernel, PeriodicKernel, RBFKernel, RQKernel, ScaleKernel

from lkgp.model.kernels import evaluate


def nearly_coinciding_points():
    rng = np.random.default_rng(0)
    points = rng.uniform(3, 5, (40, 2))
    return np.concatenate([points, points + 1e-8 * rng.standard_normal(points.shape)])


@pytest.mark.parametrize("same", [True, False])
def test_matern_half_keeps_all_digits_between_close_points(same):
    x = nearly_coinciding_points()
    kernel = ScaleKernel(MaternKernel(nu=0.5)).double()
    length, scale = kernel.base_kernel.lengthscale.item(), kernel.outputscale.item()
    other = x if same else x[:60]
    expected = scale * np.exp(-np.linalg.norm(x[:, None] - other[None], axis=2) / length)
    columns = None if same else torch.as_tensor(other)
    found = evaluate(kernel, torch.as_tensor(x), columns).detach().numpy()
    np.testing.assert_allclose(found, expected, rtol=0, atol=2e-15)


def test_values_do_not_depend_on_the_other_points():
    x = torch.as_tensor(nearly_coinciding_points())
    kernel = MaternKernel(nu=0.5).double()
    torch.testing.assert_close(evaluate(kernel, x)[:3, :5], evaluate(kernel, x[:3], x[:5]), rtol=0, atol=2e-15)


@pytest.mark.parametrize("kernel", [RBFKernel(), RQKernel(), MaternKernel(nu=1.5), PeriodicKernel()])
def test_derivatives_at_coinciding_points_are_finite_and_right(kernel):
    kernel = kernel.double()
    x = torch.as_tensor(nearly_coinciding_points()[:4]).requires_grad_(True)
    z = x.detach()[:3].clone()
    weights = torch.linspace(1, 2, 12, dtype=torch.float64).view(4, 3)

    def value(points):
        return (weights * evaluate(kernel, points, z)).sum()

    value(x).backward()
    assert torch.isfinite(x.grad).all()
    step = torch.zeros_like(x.detach())
    step[3, 1] = 1e-6
    slope = (value(x.detach() + step) - value(x.detach() - step)) / 2e-6
    assert abs(x.grad[3, 1] - slope) < 1e-6 * (1 + abs(slope))


def test_copies_of_a_kernel_have_their_own_distances():
    kernel = ScaleKernel(MaternKernel(nu=0.5)).double()
    x = torch.as_tensor(nearly_coinciding_points())
    evaluate(kernel, x)
    twin = pickle.loads(pickle.dumps(copy.deepcopy(kernel)))
    kernel.base_kernel.lengthscale = 5.0
    assert twin.base_kernel.covar_dist.args[0] is twin.base_kernel
    assert not torch.allclose(evaluate(twin, x), evaluate(kernel, x))
