"""The same model written down densely in NumPy, float64. Shares no code with the library."""

from dataclasses import dataclass

import numpy as np


def squared_exponential(x, z, lengthscale):
    """x (a, d), z (b, d) -> (a, b)."""
    difference = (x[:, None, :] - z[None, :, :]) / lengthscale
    return np.exp(-0.5 * (difference**2).sum(axis=-1))


def matern52(x, z, lengthscale):
    return matern(x, z, lengthscale, 2.5)


def matern(x, z, lengthscale, nu):
    """nu: 0.5, 1.5 or 2.5."""
    difference = (x[:, None, :] - z[None, :, :]) / lengthscale
    r = np.sqrt(2 * nu) * np.sqrt((difference**2).sum(axis=-1))
    return {0.5: 1.0, 1.5: 1 + r, 2.5: 1 + r + r**2 / 3}[nu] * np.exp(-r)


def rational_quadratic(x, z, lengthscale, alpha):
    difference = (x[:, None, :] - z[None, :, :]) / lengthscale
    return (1 + (difference**2).sum(axis=-1) / (2 * alpha)) ** -alpha


def periodic(x, z, lengthscale, period):
    """GPyTorch's parameterisation: exp(-2 sin^2(pi d / p) / lengthscale)."""
    difference = np.abs(x[:, None, :] - z[None, :, :])
    return np.exp(-2 * (np.sin(np.pi * difference / period) ** 2 / lengthscale).sum(axis=-1))


def kronecker(matrices):
    product = np.ones((1, 1))
    for matrix in matrices:
        product = np.kron(product, matrix)
    return product


@dataclass
class Oracle:
    """kernels: one function a factor, (a, d), (b, d) -> (a, b); coords: (n_k, d_k); y: grid-shaped with NaN;
    noise: a number, or grid-shaped."""

    kernels: list
    coords: list
    y: np.ndarray
    noise: object
    mean: float = 0.0

    def __post_init__(self):
        self.index = np.flatnonzero(~np.isnan(self.y).ravel())
        self.values = self.y.ravel()[self.index] - self.mean
        noise = np.broadcast_to(np.asarray(self.noise, dtype=float), self.y.shape).ravel()[self.index]
        cov = kronecker([kernel(x, x) for kernel, x in zip(self.kernels, self.coords, strict=True)])
        self.matrix = cov[np.ix_(self.index, self.index)] + np.diag(noise)

    def log_likelihood(self):
        sign, logdet = np.linalg.slogdet(self.matrix)
        assert sign > 0
        quadratic = self.values @ np.linalg.solve(self.matrix, self.values)
        return -0.5 * (quadratic + logdet + len(self.values) * np.log(2 * np.pi))

    def _blocks(self, new):
        cross = kronecker([kernel(z, x) for kernel, x, z in zip(self.kernels, self.coords, new, strict=True)])[
            :, self.index
        ]
        prior = kronecker([kernel(z, z) for kernel, z in zip(self.kernels, new, strict=True)])
        return cross, prior

    def mean_at(self, new):
        cross, _ = self._blocks(new)
        return (self.mean + cross @ np.linalg.solve(self.matrix, self.values)).reshape([len(z) for z in new])

    def covariance_at(self, new):
        cross, prior = self._blocks(new)
        return prior - cross @ np.linalg.solve(self.matrix, cross.T)

    def variance_at(self, new):
        return np.diag(self.covariance_at(new)).reshape([len(z) for z in new])
