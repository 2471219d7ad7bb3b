"""Small problems for tests of the studies."""

import numpy as np
from gpytorch.kernels import RBFKernel, ScaleKernel

from lkgp.studies.problems import Problem


def smooth_problem() -> Problem:
    """A smooth function of two inputs and time, 25 x 16, with 30 % missing."""
    generator = np.random.default_rng(0)
    X, T = generator.uniform(-1.5, 1.5, (25, 2)), np.linspace(0, 1, 16)[:, None]
    values = np.sin(2 * X[:, :1] + 3 * T.T) + X[:, 1:] * T.T + 0.1 * generator.standard_normal((25, 16))
    observed = generator.random((25, 16)) < 0.7
    return Problem("smooth", [X, T], values, observed, lambda: [ScaleKernel(RBFKernel(ard_num_dims=2)), RBFKernel()])


def tiny_problem() -> Problem:
    """Eight curves of six epochs, with 30 % missing."""
    rng = np.random.default_rng(0)
    X, T = rng.normal(size=(8, 2)), np.linspace(0, 1, 6)[:, None]
    values = np.sin(X[:, :1]) + T[:, 0] + 0.1 * rng.normal(size=(8, 6))
    observed = rng.random((8, 6)) < 0.7
    return Problem("curves", [X, T], values, observed, lambda: [ScaleKernel(RBFKernel(ard_num_dims=2)), RBFKernel()])
