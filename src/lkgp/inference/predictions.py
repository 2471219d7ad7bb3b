"""The equations A X = B behind predictions, with errors in units of the posterior standard deviation.

Let r = b - A x, let S be the posterior covariance of f, and s = D A^-1 k_* that of one cell with the observed ones.
Since S <= D over the observed cells, the error of a prediction k_*^T x is at most |D^-1/2 r| standard deviations:

    k_*^T A^-1 r  =  s^T D^-1 r  <=  sqrt(S_**) (r^T D^-1 S D^-1 r)^1/2  <=  sqrt(S_**) |D^-1/2 r|.

If r consists of rounding errors, which are independent, the error is about |D^-1/2 r| / sqrt(n) standard deviations.
For draws, `accuracy` has sharper bounds.

The weights w of a linear predictor, with A w ~ c, have the mean squared error

    v(w)  =  k_** - 2 c^T w + w^T A w  =  S_** + r^T A^-1 r,      r^T A^-1 r <= |D^-1/2 r|^2,

so that errors of a solve make a variance larger, never smaller, and only to second order.
"""

import math
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from lkgp.data.readers import Observations
from lkgp.inference.accuracy import DrawErrors
from lkgp.linalg.kronecker import LatentKronecker
from lkgp.solvers import Reason, Solution
from lkgp.solvers.refinement import Correction, LinearEquations, Refined

# The error of a posterior mean, in posterior standard deviations: invisible beside any error bar.
MEAN_ERROR = 0.01
# The error of a sample, relative to the posterior standard deviation: with 64 samples a standard deviation has an error
# of 9 %, and errors add in squares, so a further 10 % is negligible.
SMALL_ERROR = 0.1
# The same in float32, where rounding errors leave less to choose: 30 % widen a standard deviation by 4 %.
SMALL_FLOAT32_ERROR = 0.3
# The largest rounding error of a prior covariance, relative to the posterior variance: it widens a standard deviation
# by at most 12 %, and usually by far less, because it is the largest of many.
UNRESOLVED = 0.25
# The relative error of a variance from weights: half a per cent of the standard deviation.
VARIANCE_ERROR = 0.01
# If rounding errors stop the refinement of a variance, this much of it is accepted.
ROUNDING_ERROR = 0.1
# The rounding error of a variance k_** - c^T A^-1 c, in units of eps k_**: (1 + |w|_1)^2 for weights w whose absolute
# values add up to about 7, as they do in two-dimensional interpolation. Measured against extended precision: 0.5 to
# 1.1 times this.
ROUNDING_UNITS = 64
# The errors of draws are added up over so many observations at a time.
ROWS_AT_ONCE = 2**16


def variance_floor(prior: Tensor) -> Tensor:
    """The rounding error of posterior variances that are computed as differences from the prior variances."""
    return ROUNDING_UNITS * torch.finfo(prior.dtype).eps * prior


class TruncatedSystem(Protocol):
    """A system that equals A up to rounding and truncation; see `inference.base.System`."""

    noise: Tensor
    data: Observations

    @property
    def kernel_rounding(self) -> float: ...

    @property
    def operator(self) -> LatentKronecker: ...

    def correction(self, residual: Tensor, goal: float) -> Solution: ...


class TruncatedEquations(LinearEquations):
    """A X = B for B (n, c), corrected by solves with a system that equals A up to rounding and truncation."""

    def __init__(self, system: TruncatedSystem, rhs: Tensor, norms: Tensor, rtol: float) -> None:
        super().__init__(system.operator, rhs, norms, rtol)
        self.system, self.inner_iterations, self.inner_products = system, 0, 0

    def correction(self, residual: Tensor, excess: Tensor, budget: int) -> Correction:
        inner = self.system.correction(residual.double(), 1 / float(excess.max()))
        self.inner_iterations, self.inner_products = (
            self.inner_iterations + inner.iterations,
            self.inner_products + inner.products,
        )
        return Correction(inner.values.to(residual.dtype), 1, 0)


@dataclass(frozen=True, eq=False)
class SampleAccuracy:
    """How accurate a solution must be for draws f(X) + e from the prior, B (n, c): beside posterior deviations.

    latent: the functions f at the observed cells, (n, c)
    noise: the diagonal of D, (n,)
    allowed: the largest error relative to the posterior standard deviation
    """

    rhs: Tensor
    latent: Tensor
    noise: Tensor
    allowed: float

    def errors(self, solution: Tensor, residual: Tensor, units: Tensor) -> DrawErrors:
        """The errors of X from its residuals B - A X, both (n, c) and in `units` (c,)."""
        errors = DrawErrors(solution.shape[1], solution.device)
        # block by block: in the largest problems, arrays of this size decide how much memory is needed
        for start in range(0, len(solution), ROWS_AT_ONCE):
            part = slice(start, start + ROWS_AT_ONCE)
            noise, left = self.noise[part], residual[part] * units
            # f(X) - K x, K x = b - D x - r
            known = self.rhs[part] - noise[:, None].to(solution) * solution[part] * units
            errors.add(left, self.latent[part] - known + left, noise)
        return errors

    def excess(self, errors: DrawErrors) -> Tensor:
        """The ratio of the residuals to those that are small enough, (c,); zero if all are."""
        share = errors.worst_share / self.allowed
        # Columns with larger residuals must shrink them; those with smaller ones need not.
        relative = errors.norms / errors.norms.square().mean().sqrt().clamp(min=1e-300)
        return share * relative if share > 1 else torch.zeros_like(relative)


class SampleEquations(TruncatedEquations):
    """A X = B for draws f(X) + e from the prior, refined until their errors are small beside posterior deviations.

    latent: the functions f at every cell, (c, N); None if they are unknown
    """

    def __init__(self, system: TruncatedSystem, rhs: Tensor, norms: Tensor, rtol: float, latent: Tensor | None) -> None:
        super().__init__(system, rhs, norms, rtol)
        self.accuracy = None if latent is None else sample_accuracy(system, rhs, latent)

    def excess(self, unknowns: Tensor, residual: Tensor, size: Tensor, first: bool) -> Tensor:
        excess = super().excess(unknowns, residual, size, first)
        if self.accuracy is None or not bool(torch.isfinite(excess).all()):
            return excess
        errors = self.accuracy.errors(unknowns, residual, self.norms)
        excess = torch.maximum(excess, self.accuracy.excess(errors).to(excess))
        unresolved = errors.unresolved_share(self.system.kernel_rounding)
        # a tensor of float64 first, because the number may exceed float32
        return torch.maximum(excess, excess.new_tensor(unresolved / UNRESOLVED, dtype=torch.float64).to(excess))


def sample_accuracy(system: TruncatedSystem, rhs: Tensor, latent: Tensor) -> SampleAccuracy:
    """The accuracy that B (n, c) requires, with errors in the dtype of the data; latent: f at every cell, (c, N)."""
    data = system.data
    allowed = SMALL_ERROR if data.values.dtype == torch.float64 else SMALL_FLOAT32_ERROR
    return SampleAccuracy(rhs, data.grid.gather(latent.mT), system.noise, allowed)


class PredictionEquations(TruncatedEquations):
    """A X = B, refined until all predictions k_*^T X are accurate, or until that no longer helps."""

    def __init__(self, system: TruncatedSystem, rhs: Tensor, norms: Tensor, rtol: float) -> None:
        super().__init__(system, rhs, norms, rtol)
        self.precision = (1 / system.noise.sqrt()).to(rhs.dtype)[:, None]
        # In float32 nothing but rounding errors is left at that point.
        self.allowed = MEAN_ERROR * (1.0 if rhs.dtype == torch.float64 else math.sqrt(len(rhs)))

    def size(self, residual: Tensor) -> Tensor:
        # |D^-1/2 r|, in the units of B
        return torch.linalg.vector_norm(self.precision * residual, dim=0) * self.norms

    def excess(self, unknowns: Tensor, residual: Tensor, size: Tensor, first: bool) -> Tensor:
        return torch.maximum(torch.linalg.vector_norm(residual, dim=0) / self.rtol, size / self.allowed)

    def judge(self, refined: Refined) -> Reason:
        if refined.reason is not Reason.STAGNATED:
            return refined.reason
        fine = torch.linalg.vector_norm(refined.residual, dim=0) <= self.rtol
        # Rounding errors are independent of one another.
        fine &= refined.size <= MEAN_ERROR * math.sqrt(len(self.rhs))
        return Reason.CONVERGED if bool(fine.all()) else refined.reason


class VarianceEquations(PredictionEquations):
    """A W = C for the weights W of linear predictors, refined until their mean squared errors are accurate.

    prior: k_**, (c,)
    """

    def __init__(self, system: TruncatedSystem, rhs: Tensor, norms: Tensor, rtol: float, prior: Tensor) -> None:
        super().__init__(system, rhs, norms, rtol)
        self.prior, self.floor = prior, variance_floor(prior)

    def excess(self, unknowns: Tensor, residual: Tensor, size: Tensor, first: bool) -> Tensor:
        # v(w) = k_** - c^T w - r^T w
        explained = ((self.rhs + residual * self.norms) * unknowns).sum(dim=0) * self.norms
        self.variance = torch.maximum(self.prior - explained, self.floor)
        return size / (VARIANCE_ERROR * self.variance).sqrt()

    def judge(self, refined: Refined) -> Reason:
        if refined.reason is not Reason.STAGNATED:
            return refined.reason
        fine = refined.size.square() <= ROUNDING_ERROR * self.variance
        return Reason.CONVERGED if bool(fine.all()) else refined.reason
