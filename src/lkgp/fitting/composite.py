"""The composite likelihood: the sum of the log likelihoods of small parts of the data, all with the same model.

    log p  =  sum over parts of  -1/2 (r^T A^-1 r + log det A + m log 2 pi),      A = K + D,  r = y - mean

Every part is solved densely, all parts at once: they are padded to the same size with cells that are independent of
all others and have a residual of zero and a variance of one, so that they contribute nothing.
"""

import math
from collections.abc import Sequence
from functools import reduce

import numpy as np
import scipy.optimize
import torch
from torch import Tensor

from lkgp.data.readers import Observations
from lkgp.fitting.contrast import log_prior
from lkgp.fitting.objective import Progress
from lkgp.fitting.parameters import FreeParameters
from lkgp.linalg.triangular import inverse_from_cholesky
from lkgp.model import LatentKroneckerGP, evaluate

# A search stops when a step gains less than this many nats, far less than what tells two forms of a kernel apart, or
# after so many steps.
LEAST_GAIN, MOST_STEPS = 0.05, 60
# Parameters, most of them logarithms, may change by at most this much in a search: nine decades either way. Beyond, the
# likelihood no longer depends on them.
FARTHEST = 20.0


class Composite:
    """The composite likelihood of some parts as a function of the hyperparameters of a model.

    parts: b parts of at most m observations
    data: the data of which they are parts; priors may depend on them
    evaluations: how often it was computed with its gradient
    """

    def __init__(self, parts: Sequence[Observations], data: Observations, progress: Progress | None = None) -> None:
        self.parts, self.data, self.progress, self.evaluations = parts, data, progress, 0
        self.num_observed = sum(part.grid.num_observed for part in parts)
        self.values = self._padded([part.values for part in parts], 0.0)  # (b, m)
        self.present = self._padded([torch.ones_like(part.values) for part in parts], 0.0)  # (b, m)
        width = len(parts[0].grid.coords)
        # The points of every factor k, (b, n_k, d_k), and where the entries of its matrix are that belong to every pair
        # of observations, (b, m m). With a single factor every observation has its own point.
        self.points = [self._padded([part.grid.coords[k] for part in parts], 0.0) for k in range(width)]
        self.pairs = []
        for k in range(width if width > 1 else 0):
            place = self._padded([part.grid.axis_index[k] for part in parts], 0)
            pair = place[:, :, None] * self.points[k].shape[1] + place[:, None, :]
            self.pairs.append(pair.flatten(1))
        self.both = self.present[:, :, None] * self.present[:, None, :]  # (b, m, m)

    @staticmethod
    def _padded(rows: Sequence[Tensor], fill: float) -> Tensor:
        """Rows of several lengths as one tensor."""
        return torch.nn.utils.rnn.pad_sequence(list(rows), batch_first=True, padding_value=fill)

    def factors(self, model: LatentKroneckerGP) -> list[list[Tensor]]:
        """K_k of every part over its points, (b, n_k, n_k), for every factor k of every term."""
        return [
            [evaluate(kernel, x) for kernel, x in zip(term.kernels, self.points, strict=True)] for term in model.terms
        ]

    def expand(self, factor: Tensor, k: int) -> Tensor:
        """S K_k S^T: a matrix over the points of factor k as one over observations, (b, m, m), not masked."""
        if self.pairs:
            return factor.detach().flatten(1).gather(1, self.pairs[k]).view(self.both.shape)
        return factor.detach()

    def signal(self, model: LatentKroneckerGP) -> Tensor:
        """K of every part, (b, m, m), zero where padded; without a derivative."""
        return self._sum([[self.expand(one, k) for k, one in enumerate(term)] for term in self.factors(model)])

    def _sum(self, expanded: Sequence[Sequence[Tensor]]) -> Tensor:
        """The sum of the products of expanded factors, (b, m, m), zero where padded."""
        return reduce(torch.add, [reduce(torch.mul, term) for term in expanded]) * self.both

    def noise(self, model: LatentKroneckerGP) -> Tensor:
        """The diagonal of D of every part, (b, m), zero where padded."""
        return self._padded([model.noise_diagonal(part).expand_as(part.values) for part in self.parts], 0.0)

    def residuals(self, model: LatentKroneckerGP) -> Tensor:
        """r of every part, (b, m), zero where padded."""
        return self._padded([model.residuals(part) for part in self.parts], 0.0)

    def factor(self, signal: Tensor, noise: Tensor) -> Tensor | None:
        """The Cholesky factors L of A = K + D, (b, m, m); None if A is not positive definite."""
        matrix = signal.clone()
        matrix.diagonal(dim1=1, dim2=2).add_(noise + (1 - self.present))
        found, failed = torch.linalg.cholesky_ex(matrix)
        return None if bool(failed.any()) else found

    @torch.no_grad()
    def value(self, model: LatentKroneckerGP) -> float:
        """The log likelihood plus log prior; -inf if it cannot be computed."""
        root, r = self.factor(self.signal(model), self.noise(model)), self.residuals(model)
        if root is None:
            return -math.inf
        z = torch.linalg.solve_triangular(root, r[:, :, None], upper=False)
        return self._total(model, z.square().sum(), root)

    def _total(self, model: LatentKroneckerGP, squares: Tensor, root: Tensor) -> float:
        log_det = 2 * root.diagonal(dim1=1, dim2=2).log().sum()
        scatter = sum(float(model.log_scatter(part)) for part in self.parts)
        found = -0.5 * float(squares + log_det + self.num_observed * math.log(2 * math.pi))
        return found + scatter + float(log_prior(model, self.data))

    def value_and_gradient(self, model: LatentKroneckerGP) -> float:
        """The same, with its gradient added to that of the parameters of the model."""
        with torch.enable_grad():
            factors, noise, r = self.factors(model), self.noise(model), self.residuals(model)
        expanded = [[self.expand(one, k) for k, one in enumerate(term)] for term in factors]
        root = self.factor(self._sum(expanded), noise.detach())
        if root is None:
            return -math.inf
        inverse = inverse_from_cholesky(root)
        weights = inverse @ r.detach()[:, :, None]
        # d log p = tr(G dA) - a^T dr  with  a = A^-1 r  and  G = 1/2 (a a^T - A^-1)
        slopes = inverse.sub_(weights @ weights.mT).mul_(-0.5)
        with torch.enable_grad():
            linear = (slopes.diagonal(dim1=1, dim2=2) * noise).sum() - (weights[:, :, 0] * r).sum()
            linear = linear + log_prior(model, self.data) + sum(model.log_scatter(part) for part in self.parts)
        roots, gradients = [linear], [torch.ones_like(linear)]
        slopes = slopes * self.both
        for term, full in zip(factors, expanded, strict=True):
            for k, one in enumerate(term):
                # d log p / d K_k = S^T (G * product of all other factors) S
                rest = reduce(torch.mul, [other for j, other in enumerate(full) if j != k], slopes)
                roots.append(one)
                gradients.append(self._contract(rest, k))
        # Factors whose kernels have no free parameters have no derivative.
        pairs = [(one, by) for one, by in zip(roots, gradients, strict=True) if one.requires_grad]
        torch.autograd.backward([one for one, _ in pairs], [by for _, by in pairs])
        self.evaluations += 1
        with torch.no_grad():
            total = self._total(model, (r * weights[:, :, 0]).sum(), root)
        if self.progress is not None:
            self.progress(self.evaluations, total / self.num_observed)
        return total

    def _contract(self, slopes: Tensor, k: int) -> Tensor:
        """The transpose of `expand` for slopes that are zero where padded."""
        if not self.pairs:
            return slopes
        n = self.points[k].shape[1]
        return slopes.new_zeros(len(slopes), n * n).scatter_add_(1, self.pairs[k], slopes.flatten(1)).view(-1, n, n)

    @torch.no_grad()
    def best_scale(self, model: LatentKroneckerGP, ratios: Sequence[float]) -> tuple[float, float, float]:
        """The best output scale for each of some ratios of noise to signal, and the best ratio.

        Returns the log likelihood, -inf if it cannot be computed, and the factors by which the output scale and the
        noise are to be multiplied.
        """
        signal, noise, r = self.signal(model), self.noise(model), self.residuals(model)
        size = float(signal.diagonal(dim1=1, dim2=2).sum() / noise.sum())
        best = (-math.inf, 1.0, 1.0)
        for ratio in ratios:
            # A = s (K + q D), where the best s is the mean of r^T (K + q D)^-1 r.
            root = self.factor(signal, ratio * size * noise)
            if root is None:
                continue
            squares = torch.linalg.solve_triangular(root, r[:, :, None], upper=False).square().sum()
            scale = max(float(squares) / self.num_observed, 1e-300)
            log_det = 2 * root.diagonal(dim1=1, dim2=2).log().sum()
            found = -0.5 * float(log_det + self.num_observed * (1 + math.log(2 * math.pi * scale)))
            best = max(best, (found, scale, scale * ratio * size))
        return best


def maximise(composite: Composite, model: LatentKroneckerGP, steps: int = MOST_STEPS) -> float:
    """Move the free hyperparameters of a model to the nearest optimum of the composite likelihood; return its value.

    -inf if the likelihood cannot be computed where the search begins; then the model stays as it is.

    steps: the number of steps after which the search ends before it is at the optimum
    """
    parameters, n = FreeParameters(model), composite.num_observed
    start = parameters.get()
    best, best_at = -math.inf, start

    def function(flat: np.ndarray) -> tuple[float, np.ndarray]:
        nonlocal best, best_at
        parameters.set(flat)
        parameters.clear_gradient()
        value = composite.value_and_gradient(model)
        gradient = parameters.gradient()
        if not (math.isfinite(value) and np.isfinite(gradient).all()):
            # A large value makes the line search step back.
            worse = -best / n if math.isfinite(best) else 0.0
            return worse + 10 * max(1.0, abs(worse)), np.zeros_like(flat)
        if value > best:
            best, best_at = value, flat.copy()
        return -value / n, -gradient / n

    options = {"maxiter": steps, "ftol": LEAST_GAIN / n, "gtol": LEAST_GAIN / n}
    bounds = [(x - FARTHEST, x + FARTHEST) for x in start]
    scipy.optimize.minimize(function, start, jac=True, method="L-BFGS-B", bounds=bounds, options=options)
    parameters.set(best_at)
    parameters.clear_gradient()
    return best
