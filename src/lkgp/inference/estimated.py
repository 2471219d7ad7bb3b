"""Common settings of the inference methods that solve iteratively: tolerances, probes and samples."""

import math
from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import Literal, Self

import torch
from torch import Tensor

from lkgp.errors import InputError
from lkgp.inference.base import LatentSolution, Method, Purpose, System
from lkgp.inference.mixed_precision import MixedPrecisionEquations
from lkgp.inference.predictions import SMALL_ERROR, SampleAccuracy, sample_accuracy
from lkgp.settings import check_positive
from lkgp.solvers import Solution
from lkgp.solvers.base import column_norms

# Loss in nats caused by the error of a gradient, divided by the squared relative error of its solves; measured on
# learning curves and weather data.
GRADIENT_NATS = 2e5
# The error of a gradient may cost this fraction of the expected gain.
SHARE_OF_GAIN = 0.1
# The loosest relative tolerance of any solve in a fit: beyond it, a gradient is not trusted.
LOOSEST_RTOL = 0.1
# Relative tolerance of solves for the curvature of the likelihood, which only affects the length of steps.
CURVATURE_RTOL = 0.1
# The error of a gradient from s probes costs P / (2 s) nats for P parameters. With s = this number times P over the
# gain at which a search stops, it costs a tenth of that gain.
PROBES_PER_PARAMETER = 5
# An inner solve aims at this fraction of the required residual, because truncation adds to it.
INNER_SHARE = 0.8
# The minimum number of probes: a single probe gives no estimate of its own error.
FEWEST_PROBES = 2


@dataclass(frozen=True, kw_only=True)
class EstimatedMethod(Method):
    """Settings of the inference methods that use iterative solves.

    residual_rtol: relative residual of the solve for the mean
    sample_rtol: relative residual of the solves for samples
    rtol: relative error, in the norm of A, of the solves for the likelihood, whose own error is of second order
    fit_rtol: the same while hyperparameters are being fitted
    precision: precision of the products inside a solve, which is refined in float64 in either case
    num_probes: number of random vectors for the log-determinant, and the maximum number for the gradient
    num_samples: number of posterior samples from which the variance is estimated
    lanczos_steps: number of Lanczos steps for the log-determinant
    max_iterations: maximum number of iterations per solve
    """

    residual_rtol: float = 1e-6
    sample_rtol: float = 1e-2
    rtol: float = 1e-3
    fit_rtol: float = 0.03
    precision: Literal["float32", "float64"] = "float32"
    num_probes: int = 8
    num_samples: int = 64
    lanczos_steps: int = 50
    max_iterations: int = 1000

    def __post_init__(self) -> None:
        names = ("residual_rtol", "sample_rtol", "rtol", "fit_rtol", "num_probes", "num_samples", "lanczos_steps")
        check_positive(self, max_iterations=self.max_iterations, **{name: getattr(self, name) for name in names})
        if self.precision not in ("float32", "float64"):
            raise InputError(
                f"{type(self).__name__}: precision must be 'float32' or 'float64', not {self.precision!r}."
            )

    @property
    def fast_dtype(self) -> torch.dtype:
        return torch.float32 if self.precision == "float32" else torch.float64

    def for_fitting(self) -> Self:
        return replace(self, rtol=max(self.rtol, self.fit_rtol))

    def for_search(self, num_free: int, least_gain: float, strictness: float) -> Self:
        probes = max(FEWEST_PROBES, math.ceil(PROBES_PER_PARAMETER * num_free / least_gain))
        return replace(self, num_probes=min(self.num_probes, probes), rtol=strictness * self.rtol)

    def for_gain(self, gain: float) -> Self:
        # A gradient from solves with relative error rtol costs about GRADIENT_NATS rtol^2 nats at the optimum.
        wanted = math.sqrt(SHARE_OF_GAIN * gain / GRADIENT_NATS)
        return replace(self, rtol=min(max(self.rtol, wanted), LOOSEST_RTOL))


class MixedPrecisionSystem(System):
    """A, solved for by equations in mixed precision that know a bound of their error.

    method: whose tolerances hold
    """

    method: EstimatedMethod

    @abstractmethod
    def equations(self, rhs: Tensor) -> MixedPrecisionEquations:
        """Those of A X = B for B (n, c)."""

    @property
    @abstractmethod
    def spread(self) -> float:
        """The size of a posterior deviation of f over the observed cells, about."""

    def solve_once(self, rhs: Tensor, purpose: Purpose, start: Tensor | None, goal: float) -> LatentSolution:
        accuracy = {
            Purpose.LIKELIHOOD: self.method.rtol,
            Purpose.CURVATURE: CURVATURE_RTOL,
            Purpose.MEAN: self.method.rtol,
            Purpose.SAMPLES: self.method.sample_rtol,
        }
        # Samples must be accurate beside posterior deviations in every cell: to learn that afterwards, and to solve for
        # what is left, takes more iterations than to go on.
        samples = None
        if purpose is Purpose.SAMPLES and start is not None:
            samples = sample_accuracy(self, rhs, start)
        return self.solve_to(rhs, accuracy[purpose], goal, start, samples)

    def solve_to(
        self,
        rhs: Tensor,
        rtol: float,
        goal: float = math.inf,
        start: Tensor | None = None,
        samples: SampleAccuracy | None = None,
    ) -> LatentSolution:
        """A^-1 B for B (n, c) to a relative error |e|_A <= rtol |x|_A; the solution's `residuals` are its bounds.

        goal: the relative residual |b - A x| / |b| that is also required, with A as in this system
        start: initial guess of the latent function that B observes, at every cell, (c, N)
        samples: what samples require as well
        """
        equations = self.equations(rhs)
        inner = None if samples is None else replace(samples, allowed=INNER_SHARE * samples.allowed)
        solved = equations.solve(rtol, INNER_SHARE * goal, start, self.method.max_iterations, inner)
        unknowns, errors, iterations, products, reason = solved
        values, latent = equations.answer(unknowns)
        quadratic, error = equations.quadratic, equations.quadratic_error
        return LatentSolution(values, errors, iterations, products, reason, rtol, latent, quadratic, error)

    def residual_goal(self, rhs: Tensor, purpose: Purpose) -> float:
        if purpose is Purpose.MEAN:
            return self.method.residual_rtol
        # The residual is an error of the function, which must be small compared with the posterior standard deviation.
        # At an observed cell that is below the standard deviation of the noise.
        spread = min(self.spread, math.sqrt(float(self.noise.sum())))
        return min(self.method.sample_rtol, SMALL_ERROR * spread / float(column_norms(rhs).max()))

    def correction(self, residual: Tensor, goal: float) -> Solution:
        return self.solve_to(residual, 1.0, goal)

    def trusts(self, solution: Solution) -> bool:
        return bool((solution.residuals <= LOOSEST_RTOL).all())
