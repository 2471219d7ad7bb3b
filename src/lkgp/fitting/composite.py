"""The composite likelihood: the sum of the log likelihoods of small parts of the data, all with the same model.

    log p  =  sum over parts of  -1/2 (r^T A^-1 r + log det A + m log 2 pi),      A = K + D,  r = y - mean

Every part is solved densely, all parts at once: they are padded to the same size with cells that are independent of
all others and have a residual of zero and a variance of one, so that they contribute nothing.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, cached_property, reduce

import numpy as np
import torch
from torch import Tensor

from lkgp.data.readers import Observations
from lkgp.fitting import trust_region
from lkgp.fitting.contrast import Contrast
from lkgp.fitting.information import STEP, information_along, of_mean, owners
from lkgp.fitting.objective import Evaluation, Progress
from lkgp.fitting.parameters import FreeParameters
from lkgp.fitting.parts import LEVELS
from lkgp.linalg.kronecker import sum_of
from lkgp.linalg.triangular import TriangularSolves, inverse_from_cholesky
from lkgp.model import LatentKroneckerGP, evaluate

# A search stops when a step gains less than this many nats, far less than what tells two forms of a kernel apart, or
# after so many steps.
LEAST_GAIN, MOST_STEPS = 0.2, 60
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
        self.contrast = Contrast(data)
        self.sizes = [part.grid.num_observed for part in parts]
        self.num_observed = sum(self.sizes)
        self.present = self._padded([torch.ones_like(part.values) for part in parts], 0.0)  # (b, m)
        width = len(parts[0].grid.coords)
        # The points of every factor k, (b, n_k, d_k), and for every part, where the entries of its matrix are that
        # belong to each pair of observations, (m m,). With a single factor every observation has its own point.
        self.points = [self._padded([part.grid.coords[k] for part in parts], 0.0) for k in range(width)]
        self.pairs = []
        for k in range(width if width > 1 else 0):
            n = self.points[k].shape[1]
            places = [part.grid.axis_index[k] for part in parts]
            self.pairs.append([(place[:, None] * n + place).flatten() for place in places])

    @cached_property
    def coarse(self) -> "Composite":
        """The likelihood of one part for each thinning: enough to compare starting values, and for a curvature."""
        return self if len(self.parts) <= LEVELS else Composite(self.parts[:LEVELS], self.data)

    @staticmethod
    def _padded(rows: Sequence[Tensor], fill: float) -> Tensor:
        """Rows of several lengths as one tensor."""
        return torch.nn.utils.rnn.pad_sequence(list(rows), batch_first=True, padding_value=fill)

    def factors(self, model: LatentKroneckerGP) -> list[list[Tensor]]:
        """K_k of every part over its points, (b, n_k, n_k), for every factor k of every term."""
        return [
            [evaluate(kernel, x) for kernel, x in zip(term.kernels, self.points, strict=True)] for term in model.terms
        ]

    def expand(self, factor: Tensor, k: int, part: int) -> Tensor:
        """S K_k S^T of a part: a matrix over the points of factor k (n_k, n_k) as one over observations, (m, m)."""
        size = self.sizes[part]
        if self.pairs:
            return factor.flatten().index_select(0, self.pairs[k][part]).view(size, size)
        return factor[:size, :size]

    def _expanded(self, factors: Sequence[Sequence[Tensor]], part: int) -> list[list[Tensor]]:
        """Every factor of every term of a part, (m, m), without a derivative."""
        return [[self.expand(one[part].detach(), k, part) for k, one in enumerate(term)] for term in factors]

    def _signal(self, factors: Sequence[Sequence[Tensor]]) -> Tensor:
        """K of every part, (b, m, m), zero where padded; without a derivative.

        Part by part: a matrix of one part stays in the cache, those of all do not. The next call overwrites the result:
        new memory for every one would cost as much as filling it.
        """
        found = self._matrices
        for part, size in enumerate(self.sizes):
            found[part, :size, :size] = sum_of(reduce(torch.mul, term) for term in self._expanded(factors, part))
        return found

    @cached_property
    def _matrices(self) -> Tensor:
        """One matrix for every part, (b, m, m), zero where padded."""
        return self.present.new_zeros(*self.present.shape, self.present.shape[1])

    def signal(self, model: LatentKroneckerGP) -> Tensor:
        """K of every part, (b, m, m), zero where padded, until the next evaluation; without a derivative."""
        return self._signal(self.factors(model))

    def noise(self, model: LatentKroneckerGP) -> Tensor:
        """The diagonal of D of every part, (b, m), zero where padded."""
        return self._padded([model.noise_diagonal(part).expand_as(part.values) for part in self.parts], 0.0)

    def residuals(self, model: LatentKroneckerGP) -> Tensor:
        """r of every part, (b, m), zero where padded."""
        return self._padded([model.residuals(part) for part in self.parts], 0.0)

    def factor(self, signal: Tensor, noise: Tensor) -> Tensor | None:
        """The Cholesky factors L of A = K + D, (b, m, m); None if A is not positive definite. K is not changed."""
        before = signal.diagonal(dim1=1, dim2=2).clone()
        # Padded cells are independent, with a variance of one.
        signal.diagonal(dim1=1, dim2=2).add_(noise + (1 - self.present))
        found, failed = torch.linalg.cholesky_ex(signal)
        signal.diagonal(dim1=1, dim2=2).copy_(before)
        return None if bool(failed.any()) else found

    @torch.no_grad()
    def value(self, model: LatentKroneckerGP) -> float:
        """The log likelihood plus log prior; -inf if it cannot be computed."""
        root, r = self.factor(self.signal(model), self.noise(model)), self.residuals(model)
        if root is None:
            return -math.inf
        z = TriangularSolves(root).forward(r[:, :, None])
        return self._total(z.square().sum(), root) + float(self._apart_from_means(model))

    def _total(self, squares: Tensor, root: Tensor) -> float:
        log_det = 2 * root.diagonal(dim1=1, dim2=2).log().sum()
        return -0.5 * float(squares + log_det + self.num_observed * math.log(2 * math.pi))

    def _apart_from_means(self, model: LatentKroneckerGP) -> Tensor:
        """The log prior and the part of the log density that the means do not carry, a scalar."""
        found = self.contrast.log_prior(model)
        return found + sum(model.log_scatter(part) for part in self.parts if part.scatter is not None)

    def value_and_gradient(self, model: LatentKroneckerGP) -> float:
        """The same, with its gradient added to that of the parameters of the model."""
        with torch.enable_grad():
            factors, noise, r = self.factors(model), self.noise(model), self.residuals(model)
        root = self.factor(self._signal(factors), noise.detach())
        if root is None:
            return -math.inf
        inverse = inverse_from_cholesky(root)
        weights = inverse @ r.detach()[:, :, None]
        # d log p = tr(G dA) - a^T dr  with  a = A^-1 r  and  G = 1/2 (a a^T - A^-1)
        # Symmetric: LAPACK leaves columns next to each other, but rows are faster here.
        slopes = inverse.baddbmm_(weights, weights.mT, beta=-0.5, alpha=0.5)
        slopes = slopes if slopes.is_contiguous() else slopes.mT
        with torch.enable_grad():
            linear = (slopes.diagonal(dim1=1, dim2=2) * noise).sum() - (weights[:, :, 0] * r).sum()
            apart = self._apart_from_means(model)
            linear = linear + apart
        roots, gradients = [linear], [torch.ones_like(linear)]
        slopes_by = [[torch.zeros_like(one) for one in term] for term in factors]
        for part, size in enumerate(self.sizes):
            for term, full in zip(slopes_by, self._expanded(factors, part), strict=True):
                for k, by in enumerate(term):
                    # d log p / d K_k = S^T (G * product of all other factors) S
                    others = [other for j, other in enumerate(full) if j != k]
                    self._contract(reduce(torch.mul, others, slopes[part, :size, :size]), k, part, by[part])
        for term, by_term in zip(factors, slopes_by, strict=True):
            roots += term
            gradients += by_term
        # Factors whose kernels have no free parameters have no derivative.
        pairs = [(one, by) for one, by in zip(roots, gradients, strict=True) if one.requires_grad]
        torch.autograd.backward([one for one, _ in pairs], [by for _, by in pairs])
        self.evaluations += 1
        with torch.no_grad():
            total = self._total((r * weights[:, :, 0]).sum(), root) + float(apart)
        if self.progress is not None:
            self.progress(self.evaluations, total / self.num_observed)
        return total

    def _contract(self, slopes: Tensor, k: int, part: int, out: Tensor) -> None:
        """The transpose of `expand`: slopes by the covariances of observations (m, m) become slopes by K_k, `out`."""
        size = self.sizes[part]
        if self.pairs:
            out.view(-1).scatter_add_(0, self.pairs[k][part], slopes.reshape(-1))
        else:
            out[:size, :size] = slopes

    @torch.no_grad()
    def information(self, model: LatentKroneckerGP, parameters: list[Tensor]) -> Tensor:
        """About the information of all parts on the entries of `parameters`, (P, P), from that of the coarse ones."""
        return self.coarse._information(model, parameters) * (self.num_observed / self.coarse.num_observed)

    def _information(self, model: LatentKroneckerGP, parameters: list[Tensor]) -> Tensor:
        factors = self.factors(model)
        root = self.factor(self._signal(factors), self.noise(model))
        if root is None:
            raise torch.linalg.LinAlgError("the covariance of a part is not positive definite")
        solves = TriangularSolves(root)
        weights = solves.backward(solves.forward(self.residuals(model)[:, :, None]))  # (b, m, 1)
        columns = self._directions(model, factors, weights[:, :, 0], parameters)
        solved, found = solves.backward(solves.forward(columns)), []
        for part, size in enumerate(self.sizes):
            found.append(
                information_along(
                    model,
                    self.contrasts[part],
                    weights[part, :size, 0],
                    columns[part, :size],
                    lambda _, part=part, size=size: solved[part, :size],  # type: ignore[misc]
                    parameters,
                )
            )
        return sum_of(found)

    @cached_property
    def contrasts(self) -> list[Contrast]:
        """The prior for each part alone."""
        return [Contrast(part) for part in self.parts]

    def _directions(
        self,
        model: LatentKroneckerGP,
        factors: Sequence[Sequence[Tensor]],
        weights: Tensor,
        parameters: Sequence[Tensor],
    ) -> Tensor:
        """dA_j a of every part for each entry of `parameters`, or sqrt(2) dm_j if it is of the mean, (b, m, P).

        weights: a of every part, (b, m)
        """
        noise, r, columns = self.noise(model), self.residuals(model), []
        cells = self._scatter(weights)

        @cache
        def by_others(t: int, k: int) -> Tensor:
            """The product of all factors but K_k of a term with a, over the points of all factors."""
            found = cells
            for j, factor in enumerate(factors[t]):
                found = along(factor, j, found) if j != k else found
            return found

        for p, mean in zip(parameters, [of_mean(model, [p]).any() for p in parameters], strict=True):
            flat, owned = p.data.view(-1), owners(model, p)
            for i in range(len(flat)):
                before = flat[i].clone()
                flat[i] += STEP
                column = 2**0.5 * (r - self.residuals(model)) if mean else (self.noise(model) - noise) * weights
                for t, k in owned:
                    changed = evaluate(model.terms[t].kernels[k], self.points[k]) - factors[t][k]
                    column = column + self._gather(along(changed, k, by_others(t, k)))
                flat[i] = before
                columns.append(column / STEP)
        return torch.stack(columns, dim=2)

    @cached_property
    def cells(self) -> list[Tensor]:
        """Where the observations of every part are on the product of its padded points, (m,) each."""
        if not self.pairs:
            return [torch.arange(size, device=self.present.device) for size in self.sizes]
        found = []
        for part in self.parts:
            flat = torch.zeros_like(part.grid.axis_index[0])
            for x, index in zip(self.points, part.grid.axis_index, strict=True):
                flat = flat * x.shape[1] + index
            found.append(flat)
        return found

    def _scatter(self, rows: Tensor) -> Tensor:
        """Values at the observations of every part (b, m) on the product of its points, (b, n_1, ..., n_d)."""
        shape = [x.shape[1] for x in self.points]
        found = rows.new_zeros(len(rows), math.prod(shape))
        for part, (cells, size) in enumerate(zip(self.cells, self.sizes, strict=True)):
            found[part, cells] = rows[part, :size]
        return found.view(-1, *shape)

    def _gather(self, values: Tensor) -> Tensor:
        """The reverse of `_scatter`."""
        flat = values.flatten(1)
        return self._padded([flat[part, cells] for part, cells in enumerate(self.cells)], 0.0)

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
            squares = TriangularSolves(root).forward(r[:, :, None]).square().sum()
            scale = max(float(squares) / self.num_observed, 1e-300)
            log_det = 2 * root.diagonal(dim1=1, dim2=2).log().sum()
            found = -0.5 * float(log_det + self.num_observed * (1 + math.log(2 * math.pi * scale)))
            best = max(best, (found, scale, scale * ratio * size))
        return best


def along(factor: Tensor, k: int, values: Tensor) -> Tensor:
    """K_k (b, n_k, n_k) times values (b, n_1, ..., n_d) along their factor k."""
    moved = values.movedim(k + 1, 1)
    return (factor @ moved.reshape(*moved.shape[:2], -1)).view(moved.shape).movedim(1, k + 1)


@dataclass(frozen=True)
class Ascent:
    """How a search ended: at which value, and whether at an optimum or after the last step that it was given."""

    value: float
    finished: bool


def maximise(composite: Composite, model: LatentKroneckerGP, steps: int = MOST_STEPS) -> Ascent:
    """Move the free hyperparameters of a model to the nearest optimum of the composite likelihood.

    The value is -inf if the likelihood cannot be computed where the search begins; then the model stays as it is.

    steps: the number of steps after which the search ends before it is at the optimum
    """
    parameters = FreeParameters(model)
    accepted = [parameters.get()]
    if len(parameters) == 0:
        return Ascent(composite.value(model), True)
    values: dict[bytes, float] = {}

    def at(flat: np.ndarray, _: float) -> Evaluation:
        parameters.set(flat)
        parameters.clear_gradient()
        far = np.abs(flat - accepted[0]).max() > FARTHEST
        value = -math.inf if far else composite.value_and_gradient(model)
        gradient = parameters.gradient() if math.isfinite(value) else np.full_like(flat, math.nan)
        values[flat.tobytes()] = value

        def information() -> np.ndarray:
            parameters.set(flat)
            scales = parameters.scales()
            return composite.information(model, parameters.tensors).cpu().numpy() * scales * scales[:, None]

        return Evaluation(value, gradient, information)

    try:
        finished, _ = trust_region.maximise(at, accepted, steps, LEAST_GAIN)
    except (torch.linalg.LinAlgError, np.linalg.LinAlgError):
        finished = True
    parameters.set(accepted[-1])
    parameters.clear_gradient()
    return Ascent(values[accepted[-1].tobytes()], finished)
