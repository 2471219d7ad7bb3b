"""Covariances of places x times along a long axis, for tests of what follows one."""

import numpy as np
import torch
from gpytorch.kernels import MaternKernel, PeriodicKernel, ScaleKernel

from lkgp import LatentKroneckerGP, from_array


def matern(nu, lengthscale):
    kernel = MaternKernel(nu=nu)
    kernel.lengthscale = lengthscale
    return kernel


def cycle(period, keeps=50.0):
    repeats = PeriodicKernel()
    repeats.period_length, repeats.lengthscale = period, 1.5
    return ScaleKernel(repeats * matern(2.5, keeps))


def operator_of(shape, time_kernel, *, irregular=False, known_noise=False, structure="dense", seed=0):
    """Covariances of places (and heights) x times, times last, with runs of missing times."""
    rng = np.random.default_rng(seed)
    coords = [rng.random((n, 2)) for n in shape[:-1]]
    times = np.sort(rng.random(shape[-1])) * shape[-1] if irregular else np.arange(shape[-1])
    y = rng.standard_normal(shape)
    for row in y.reshape(-1, shape[-1]):
        start = rng.integers(0, shape[-1])
        row[start : start + shape[-1] // 3] = np.nan
    variances = 10.0 ** rng.uniform(-3, -1, shape) if known_noise else None
    data = from_array([*coords, times[:, None].astype(float)], y, noise_variance=variances)
    kernels = [matern(1.5, 0.5) for _ in coords]
    model = LatentKroneckerGP([*(k.double() for k in kernels), time_kernel.double()], noise=0.02).double()
    with torch.no_grad():
        return model.covariance(data, ["dense"] * len(coords) + [structure]).detach()


def dense(operator):
    return operator.rows(torch.arange(operator.shape[0])).numpy()


def inverse_and_root(inverse, n):
    solved = inverse.solve(torch.eye(n, dtype=torch.float64)).numpy()
    root = inverse.root(torch.eye(sum(inverse.widths), dtype=torch.float64)).numpy()
    return solved, root @ root.T


def condition(operator, settings):
    matrix = dense(operator)
    root = np.linalg.cholesky(matrix)
    inverse = settings.along(operator, 1).solve(torch.eye(len(matrix), dtype=torch.float64)).numpy()
    eigenvalues = np.linalg.eigvalsh(root.T @ inverse @ root)
    return eigenvalues[-1] / eigenvalues[0]
