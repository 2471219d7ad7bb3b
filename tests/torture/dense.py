"""The dense oracle in extended precision: posterior, likelihood and gradient of one model, without its structure.

Extended precision has 11 bits more than float64 on x86. Where it is not enough, the oracle says so: its own error is
estimated from the difference to the same computation in float64.
"""

import math
from functools import cached_property, reduce

import numpy as np
from tests.torture.dense_kernels import EXTENDED, Parameters, evaluate

# How much smaller than the error of a computation in float64 that in extended precision is, with a margin of 10.
GAIN = 10 * np.finfo(EXTENDED).eps / np.finfo(np.float64).eps

# Posterior standard deviations below this fraction of the prior's are not told apart: where a linear kernel is zero, or
# far below the quietest noise.
FLOOR = 1e-7


def kron(a, b):
    """The Kronecker product in extended precision; np.kron keeps it, too, but is slower."""
    return (a[:, None, :, None] * b[None, :, None, :]).reshape(a.shape[0] * b.shape[0], a.shape[1] * b.shape[1])


def cholesky(matrix):
    """L with L L^T = A, column by column, in the precision of A; raises LinAlgError if A is not positive definite."""
    work = matrix.copy()
    for j in range(len(work)):
        pivot = work[j, j]
        if not pivot > 0:
            raise np.linalg.LinAlgError("the matrix is not positive definite")
        work[j:, j] /= np.sqrt(pivot)
        work[j + 1 :, j + 1 :] -= np.outer(work[j + 1 :, j], work[j + 1 :, j])
    return np.tril(work)


def forward(lower, rhs):
    """L^-1 B."""
    found = rhs.copy()
    for j in range(len(lower)):
        found[j] = (found[j] - lower[j, :j] @ found[:j]) / lower[j, j]
    return found


def backward(lower, rhs):
    """L^-T B."""
    found = rhs.copy()
    for j in reversed(range(len(lower))):
        found[j] = (found[j] - lower[j + 1 :, j] @ found[j + 1 :]) / lower[j, j]
    return found


class DenseModel:
    """A = P (K_1 (x) ... (x) K_d) P^T + D, in extended precision.

    kernels: one GPyTorch kernel a factor, of which only the parameters are read
    coords: (n_k, d_k) each; y: (n_1, ..., n_d) with NaN, less nothing; noise: (n_1, ..., n_d); mean: a number
    """

    def __init__(self, kernels, coords, y, noise, mean):
        self.kernels, self.coords, self.parameters = kernels, [x.astype(EXTENDED) for x in coords], Parameters()
        self.index = np.flatnonzero(~np.isnan(y).ravel())
        self.mean, self.noise = EXTENDED(mean), noise.astype(EXTENDED).ravel()[self.index]
        self.residuals = y.astype(EXTENDED).ravel()[self.index] - self.mean
        self.matrix = self.covariance()
        # The largest prior variance; a linear kernel over a single point is zero everywhere.
        largest = math.prod(np.diag(self.factor(k, x, x)).max() for k, x in enumerate(self.coords))
        self.signal = max(largest, self.noise.min())

    def factor(self, k, x, z):
        return evaluate(self.kernels[k], x, z, self.parameters)

    def latent(self, new, old):
        """K at every cell of a product of coordinates against every cell of another."""
        return reduce(kron, [self.factor(k, x, z) for k, (x, z) in enumerate(zip(new, old, strict=True))])

    def covariance(self):
        return self.latent(self.coords, self.coords)[np.ix_(self.index, self.index)] + np.diag(self.noise)

    @cached_property
    def root(self):
        return cholesky(self.matrix)

    @cached_property
    def whitened(self):
        """L^-1 r."""
        return forward(self.root, self.residuals)

    @cached_property
    def float64(self):
        """The same L and L^-1 r in float64, or None if the factorisation fails there."""
        try:
            lower = np.linalg.cholesky(self.matrix.astype(float))
        except np.linalg.LinAlgError:
            return None
        return lower, np.linalg.solve(lower, self.residuals.astype(float))

    def log_likelihood(self):
        n = len(self.residuals)
        quadratic, logdet = self.whitened @ self.whitened, 2 * np.log(np.diag(self.root)).sum()
        return float(-(quadratic + logdet + n * np.log(EXTENDED(2 * np.pi))) / 2)

    def at(self, new):
        """The posterior at the product of `new`."""
        return DensePosterior(self, [z.astype(EXTENDED) for z in new])

    def score(self, module, name, position, step=1e-6):
        """d log p / d log theta for one parameter, and the square root of its Fisher information.

        d log p = 1/2 a^T dA a - 1/2 tr(A^-1 dA),   F = 1/2 tr(A^-1 dA A^-1 dA)
        """
        value, sides = self.parameters(module, name), []
        for sign in (1, -1):
            moved = value.copy()
            moved.reshape(-1)[position] *= np.exp(EXTENDED(sign * step))
            self.parameters.shifted[id(module), name] = moved
            sides.append(self.covariance())
        self.parameters.shifted.clear()
        return self.score_of((sides[0] - sides[1]) / (2 * EXTENDED(step)))

    def score_of(self, change):
        """The score of a parameter and the root of its Fisher information, from dA (n, n)."""
        inner = forward(self.root, forward(self.root, change).T)  # L^-1 dA L^-T
        score = (self.whitened @ inner @ self.whitened - np.trace(inner)) / 2
        return float(score), float(np.sqrt((inner**2).sum() / 2))

    @cached_property
    def weights(self):
        """a = A^-1 r."""
        return backward(self.root, self.whitened)


class DensePosterior:
    """Mean and covariance at the product of some coordinates."""

    def __init__(self, model, new):
        self.model, self.new, self.shape = model, new, [len(z) for z in new]
        cross = model.latent(new, model.coords)[:, model.index]
        self.explained = forward(model.root, cross.T)  # L^-1 C^T, (n, N')
        self.prior = reduce(kron, [np.diag(model.factor(k, z, z))[None] for k, z in enumerate(new)])[0]
        self.mean = model.mean + self.explained.T @ model.whitened
        self.variance = self.prior - (self.explained**2).sum(axis=0)
        self.cross = cross

    @cached_property
    def std(self):
        """Posterior standard deviations, (N',), at least FLOOR of the largest prior one."""
        return np.sqrt(np.maximum(self.variance, self.floor**2)).astype(float)

    @property
    def floor(self):
        return FLOOR * math.sqrt(float(self.model.signal))

    @cached_property
    def own_error(self):
        """Estimated errors of the oracle itself: of its mean, in standard deviations, and of those, relative."""
        if self.model.float64 is None:
            return np.inf, np.inf
        lower, whitened = self.model.float64
        explained = np.linalg.solve(lower, self.cross.T.astype(float))
        mean = explained.T @ whitened + float(self.model.mean)
        variance = self.prior.astype(float) - (explained**2).sum(axis=0)
        of_mean = np.abs(mean - self.mean).astype(float) / self.std
        of_std = np.abs(variance - self.variance) / self.std**2 / 2
        return float(GAIN * of_mean.max()), float(GAIN * of_std.max())

    @property
    def covariance(self):
        return self.model.latent(self.new, self.new) - self.explained.T @ self.explained

    def sensitivity(self):
        """|A^-1 c|, (N',): the change of the mean by a residual of norm one is at most this."""
        return np.sqrt((backward(self.model.root, self.explained) ** 2).sum(axis=0)).astype(float)
