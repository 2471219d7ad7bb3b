"""The covariance functions of GPyTorch's kernels, written down in NumPy in extended precision."""

import math

import gpytorch.kernels as gk
import numpy as np

EXTENDED = np.longdouble


def number(tensor):
    """A parameter as an array in extended precision."""
    return tensor.detach().double().numpy().astype(EXTENDED)


class Parameters:
    """The parameters of kernels by module and name; `shifted` holds those that are replaced, for derivatives."""

    def __init__(self):
        self.shifted = {}

    def __call__(self, module, name):
        if (id(module), name) in self.shifted:
            return self.shifted[id(module), name]
        return number(getattr(module, name))


def distance_squared(x, z, lengthscale):
    difference = (x[:, None, :] - z[None, :, :]) / lengthscale.reshape(-1)
    return (difference**2).sum(axis=-1)


def rbf(kernel, x, z, value):
    return np.exp(-distance_squared(x, z, value(kernel, "lengthscale")) / 2)


def matern(kernel, x, z, value):
    r = np.sqrt(EXTENDED(2 * kernel.nu)) * np.sqrt(distance_squared(x, z, value(kernel, "lengthscale")))
    polynomial = {0.5: 1, 1.5: 1 + r, 2.5: 1 + r + r**2 / 3}[kernel.nu]
    return polynomial * np.exp(-r)


def rational_quadratic(kernel, x, z, value):
    alpha = value(kernel, "alpha").item()
    return (1 + distance_squared(x, z, value(kernel, "lengthscale")) / (2 * alpha)) ** (-EXTENDED(alpha))


def periodic(kernel, x, z, value):
    """exp(-2 sum over columns of sin^2(pi d / p) / lengthscale): the length is not squared in GPyTorch."""
    difference = np.abs(x[:, None, :] - z[None, :, :]) / value(kernel, "period_length").reshape(-1)
    waves = np.sin(EXTENDED(np.pi) * difference + EXTENDED(PI_REST) * difference) ** 2
    return np.exp(-2 * (waves / value(kernel, "lengthscale").reshape(-1)).sum(axis=-1))


# pi - float64(pi)
PI_REST = 1.2246467991473532e-16


def cosine(kernel, x, z, value):
    difference = np.abs(x - z.T) / value(kernel, "period_length").reshape(-1)
    return np.cos(EXTENDED(np.pi) * difference + EXTENDED(PI_REST) * difference)


def piecewise_polynomial(kernel, x, z, value):
    r, q = np.sqrt(distance_squared(x, z, value(kernel, "lengthscale"))), kernel.q
    j = math.floor(x.shape[1] / 2) + q + 1
    polynomial = {
        0: 1,
        1: (j + 1) * r + 1,
        3: 1
        + (j + 3) * r
        + EXTENDED(6 * j**2 + 36 * j + 45) / 15 * r**2
        + EXTENDED(j**3 + 9 * j**2 + 23 * j + 15) / 15 * r**3,
    }[q]
    return np.maximum(0, 1 - r) ** (j + q) * polynomial


def linear(kernel, x, z, value):
    return value(kernel, "variance").item() * (x @ z.T)


def index(kernel, x, z, value):
    root = value(kernel, "covar_factor")
    matrix = root @ root.T + np.diag(value(kernel, "var"))
    return matrix[np.ix_(x[:, 0].astype(int), z[:, 0].astype(int))]


def hamming(kernel, x, z, value):
    differing = (x.shape[1] // kernel.vocab_size) - x @ z.T
    alpha, beta = value(kernel, "alpha").item(), value(kernel, "beta").item()
    return ((1 + EXTENDED(alpha)) / (alpha + differing)) ** beta


SIMPLE = {
    gk.RBFKernel: rbf,
    gk.MaternKernel: matern,
    gk.RQKernel: rational_quadratic,
    gk.PeriodicKernel: periodic,
    gk.CosineKernel: cosine,
    gk.PiecewisePolynomialKernel: piecewise_polynomial,
    gk.LinearKernel: linear,
    gk.IndexKernel: index,
    gk.HammingIMQKernel: hamming,
}


def evaluate(kernel, x, z, value):
    """k(x, z) for x (a, d), z (b, d), (a, b).

    value: the `Parameters`
    """
    if isinstance(kernel, gk.ScaleKernel):
        return value(kernel, "outputscale").item() * evaluate(kernel.base_kernel, x, z, value)
    if isinstance(kernel, gk.AdditiveKernel):
        return sum(evaluate(part, x, z, value) for part in kernel.kernels)
    if isinstance(kernel, gk.ProductKernel):
        return math.prod(evaluate(part, x, z, value) for part in kernel.kernels)
    if kernel.active_dims is not None:
        columns = kernel.active_dims.numpy()
        x, z = x[:, columns], z[:, columns]
    return SIMPLE[type(kernel)](kernel, x, z, value)
