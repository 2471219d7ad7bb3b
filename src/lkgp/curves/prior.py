"""The prior over learning curves: kernels, noise and their hyperpriors, in the units of `CurveEncoding`.

    cov(run a at t, run b at s)
        =  (own 1[a = b] + alike Matern52(x_a, x_b)) (Matern52(t, s) + wander exp(-|t - s| / l))

x: encoded configurations; t, s: encoded times from 0 to 1; last values have variance one.
"""

import math
from typing import Any, NamedTuple

from gpytorch.kernels import AdditiveKernel, Kernel, MaternKernel, RBFKernel, ScaleKernel
from gpytorch.likelihoods import GaussianLikelihood
from gpytorch.priors import LogNormalPrior

from lkgp.model import learned_noise


class LogNormal(NamedTuple):
    """A log-normal hyperprior: its median and the standard deviation of the logarithm."""

    median: float
    spread: float


# Runs with the same configuration differ: a squared exponential over the numbers of runs that is 1 for the same run and
# exp(-0.5 / 0.05^2) = exp(-200), that is 0, for any two others, since numbers differ by at least 1.
SAME_RUN_LENGTH = 0.05
# Hyperpriors. Last values have variance 1 by construction, so that is the median of the part that configurations
# explain. The other medians say that a tenth of the variance belongs to the run itself, a tenth of a curve's variance
# is wandering around a smooth trend, and the noise is a hundredth; lengths along epochs are about the length of the
# whole training. The spreads are wide, a factor of 2 to 4.5 either way within one standard deviation, so that they
# matter only while there are few data. They were not tuned one by one; the replays of `lkgp bench pruning` measure them
# together.
ALIKE_VARIANCE = LogNormal(1.0, 1.0)
OWN_VARIANCE = LogNormal(0.1, 1.0)
WANDER_VARIANCE = LogNormal(0.1, 1.0)
NOISE_VARIANCE = LogNormal(0.01, 1.5)
EPOCH_LENGTH = LogNormal(1.0, 0.7)
CONFIGURATION_LENGTH_SPREAD = 1.0
# Keeps the covariance of noise-free curves well conditioned: a standard deviation of 0.3 % of that between last values.
NOISE_FLOOR = 1e-5


def curve_kernels(columns: int) -> list[Kernel]:
    """(over configurations + same run) and (trend + wander over epochs).

    columns: of encoded configurations; the column after them holds the number of the run
    """
    same = RBFKernel(active_dims=(columns,))
    same.lengthscale = SAME_RUN_LENGTH
    same.raw_lengthscale.requires_grad_(False)
    parts = [with_variance(same, OWN_VARIANCE)]
    if columns:
        # Distances grow with the square root of the number of parameters, and so should lengths (Hvarfner
        # et al., 2024).
        length = LogNormal(math.sqrt(columns), CONFIGURATION_LENGTH_SPREAD)
        alike = MaternKernel(nu=2.5, ard_num_dims=columns, active_dims=tuple(range(columns)))
        parts.append(with_variance(with_length(alike, length), ALIKE_VARIANCE))
    # Curves are smooth but also wander, so that the forecast is less certain the further ahead it looks.
    trend = with_length(MaternKernel(nu=2.5), EPOCH_LENGTH)
    wander = with_length(MaternKernel(nu=0.5), EPOCH_LENGTH)
    return [AdditiveKernel(*parts), AdditiveKernel(trend, with_variance(wander, WANDER_VARIANCE))]


def curve_noise() -> GaussianLikelihood:
    """Learned noise with its hyperprior."""
    likelihood = learned_noise(NOISE_VARIANCE.median, NOISE_FLOOR)
    likelihood.noise_covar.register_prior("noise_prior", as_prior(NOISE_VARIANCE), noise_of, set_noise)
    return likelihood


def as_prior(prior: LogNormal) -> LogNormalPrior:
    return LogNormalPrior(math.log(prior.median), prior.spread)


def with_variance(kernel: Kernel, prior: LogNormal) -> ScaleKernel:
    """The kernel times a variance that starts at the median of its prior."""
    outer = ScaleKernel(kernel, outputscale_prior=as_prior(prior))
    outer.outputscale = prior.median
    return outer


def with_length(kernel: Kernel, prior: LogNormal) -> Kernel:
    """The kernel with lengths that start at the median of their prior."""
    kernel.register_prior("lengthscale_prior", as_prior(prior), lengthscale_of, set_lengthscale)
    kernel.lengthscale = prior.median
    return kernel


# Named functions instead of lambdas, so that models can be pickled.


def noise_of(module: Any) -> Any:
    return module.noise


def set_noise(module: Any, value: Any) -> None:
    module.initialize(noise=value)


def lengthscale_of(module: Any) -> Any:
    return module.lengthscale


def set_lengthscale(module: Any, value: Any) -> None:
    module.lengthscale = value
