"""What is believed of learning curves before any is seen: kernels and their priors, in the units of `Frame`."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from gpytorch.kernels import AdditiveKernel, Kernel, MaternKernel, RBFKernel, ScaleKernel
from gpytorch.likelihoods import GaussianLikelihood
from gpytorch.priors import LogNormalPrior

from lkgp.curves.configurations import Configuration, Space
from lkgp.curves.values import ValueScale
from lkgp.model.model import learned_noise

# Runs with the same configuration differ: a kernel that is one for the same run and zero for any other. Runs are numbered.
SAME_RUN = 0.05
# Medians of the priors, and the spread of their logarithms: of variances, beside that of last values, and of lengths along times up to 1.
ALIKE, OWN, NOISE, EPOCHS, WANDER = (1.0, 1.0), (0.1, 1.0), (0.01, 1.5), (1.0, 0.7), (0.1, 1.0)
NOISE_FLOOR = 1e-5


@dataclass(frozen=True, eq=False)
class Frame:
    """How configurations, epochs and values become what the model sees."""

    space: Space
    scale: ValueScale
    last_epoch: int

    def points(self, configurations: list[Configuration], numbers: np.ndarray) -> np.ndarray:
        """Configurations, and the numbers of their runs (runs,), as (runs, columns + 1)."""
        return np.column_stack([self.space.encode(configurations), numbers])

    def times(self, epochs: np.ndarray) -> np.ndarray:
        """log(1 + epoch), which is one at the last, (epochs,)."""
        return np.log1p(np.asarray(epochs, dtype=float)) / math.log1p(self.last_epoch)

    def kernels(self) -> list[Kernel]:
        """(over configurations + the same run only) x (trend + wander over epochs)."""
        columns = sum(parameter.columns for parameter in self.space.parameters)
        same = RBFKernel(active_dims=(columns,))
        same.lengthscale = SAME_RUN
        same.raw_lengthscale.requires_grad_(False)
        parts = [scaled(same, *OWN)]
        if columns:
            # The more parameters, the longer: distances grow with their number (Hvarfner et al., 2024).
            alike = with_length(
                MaternKernel(nu=2.5, ard_num_dims=columns, active_dims=tuple(range(columns))), math.sqrt(columns), 1.0
            )
            parts.append(scaled(alike, *ALIKE))
        # Curves are smooth, and wander besides: what will happen is less certain the longer it takes.
        trend, wander = with_length(MaternKernel(nu=2.5), *EPOCHS), with_length(MaternKernel(nu=0.5), *EPOCHS)
        return [AdditiveKernel(*parts), AdditiveKernel(trend, scaled(wander, *WANDER))]

    def noise(self) -> GaussianLikelihood:
        likelihood = learned_noise(NOISE[0], NOISE_FLOOR)
        likelihood.noise_covar.register_prior("noise_prior", lognormal(*NOISE), noise_of, set_noise)
        return likelihood


# By name and not as lambdas, so that models can be pickled.


def noise_of(module: Any) -> Any:
    return module.noise


def set_noise(module: Any, value: Any) -> None:
    module.initialize(noise=value)


def lengthscale_of(module: Any) -> Any:
    return module.lengthscale


def set_lengthscale(module: Any, value: Any) -> None:
    module.lengthscale = value


def lognormal(median: float, spread: float) -> LogNormalPrior:
    return LogNormalPrior(math.log(median), spread)


def scaled(kernel: Kernel, median: float, spread: float) -> ScaleKernel:
    outer = ScaleKernel(kernel, outputscale_prior=lognormal(median, spread))
    outer.outputscale = median
    return outer


def with_length(kernel: Kernel, median: float, spread: float) -> Kernel:
    kernel.register_prior("lengthscale_prior", lognormal(median, spread), lengthscale_of, set_lengthscale)
    kernel.lengthscale = median
    return kernel
