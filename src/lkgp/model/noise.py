"""Noise variances, at observed cells and at any coordinates. Each kind is a subclass of `Noise`."""

import math
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, final

import gpytorch
import torch
from gpytorch.constraints import GreaterThan
from gpytorch.likelihoods import GaussianLikelihood
from torch import Tensor, nn

from lkgp.data.readers import Observations
from lkgp.errors import InputError

# Lower bound of a learned noise variance, in units of the variance of the data: far below any measurement error, and
# far above the rounding error of a solve in float64.
NOISE_FLOOR = 1e-6


class Noise(gpytorch.Module):
    """The noise of independent observations.

    known: all kinds by name, as model files refer to them
    """

    known: ClassVar[dict[str, type["Noise"]]] = {}

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        Noise.known[cls.__name__] = cls

    @abstractmethod
    def measurement_variance(self, data: Observations) -> Tensor:
        """The variance of a single measurement at every observed cell, a scalar or (n,)."""

    @abstractmethod
    def at(self, coords: Sequence[Tensor]) -> Tensor:
        """The variance of a single measurement at the product of `coords`, broadcast to (n'_1, ..., n'_d)."""

    def typical(self, data: Observations) -> Tensor:
        """The mean noise variance over the observed cells, a scalar."""
        return self.measurement_variance(data).mean()

    def levels(self) -> list[nn.Parameter]:
        """Parameters that increase the noise at all cells when they grow; a search may raise them first."""
        return []

    def describe(self) -> dict[str, Any]:
        """Constructor arguments as plain data, for a model file; parameter values are stored separately."""
        raise InputError(f"the noise {type(self).__name__} cannot be saved; implement its `describe` method.")

    @final
    def diagonal(self, data: Observations) -> Tensor:
        """The diagonal of D, (n,): the known variances, or the variance of one measurement over their number."""
        if data.noise_variance is not None:
            return data.noise_variance
        return self.measurement_variance(data) / data.counts

    @final
    def least(self, data: Observations) -> Tensor:
        """The smallest entry of the diagonal of D, a scalar."""
        if data.noise_variance is not None:
            return data.noise_variance.min()
        variance = self.measurement_variance(data)
        return variance / data.counts.max() if variance.ndim == 0 else (variance / data.counts).min()

    def log_scatter(self, data: Observations) -> Tensor:
        """The log density of all measurements minus that of their means, a scalar.

        For a cell with c measurements whose sum of squared deviations from their mean is W:

        log prod_j N(y_j; f, s^2)  =  log N(mean; f, s^2 / c)  -  1/2 ((c - 1) log(2 pi s^2) + log c + W / s^2)
        """
        if data.scatter is None:
            return torch.zeros_like(data.values[0])
        variance = self.measurement_variance(data)
        more = (data.counts - 1) * torch.log(2 * math.pi * variance)
        return -0.5 * (more.sum() + data.counts.log().sum() + (data.scatter / variance).sum())


class LearnedNoise(Noise):
    """One variance for all cells, learned with the priors and constraints of a GaussianLikelihood."""

    def __init__(self, likelihood: GaussianLikelihood) -> None:
        super().__init__()
        self.likelihood = likelihood

    @property
    def variance(self) -> Tensor:
        """s^2, a scalar."""
        return self.likelihood.noise.squeeze()

    def measurement_variance(self, data: Observations) -> Tensor:
        return self.variance

    def at(self, coords: Sequence[Tensor]) -> Tensor:
        return self.variance

    def levels(self) -> list[nn.Parameter]:
        return [self.likelihood.raw_noise]


def learned_noise(start: float, floor: float = NOISE_FLOOR) -> GaussianLikelihood:
    """A learned noise variance with initial value `start`.

    Its lower bound is `floor`, or a thousandth of `start` if that is smaller.
    """
    if isinstance(start, bool) or not isinstance(start, (int, float)) or not start > 0:
        raise InputError(f"the noise variance must be a positive number, not {start!r}.")
    likelihood = GaussianLikelihood(noise_constraint=GreaterThan(min(floor, 1e-3 * start)))
    # Set in float64: GPyTorch would round the initial value to float32.
    likelihood.double()
    likelihood.noise = torch.tensor(float(start), dtype=torch.float64)
    return likelihood


def as_noise(noise: "float | GaussianLikelihood | Noise") -> Noise:
    """Turn an initial variance or a likelihood into a `LearnedNoise`; return a `Noise` unchanged."""
    if isinstance(noise, Noise):
        return noise
    return LearnedNoise(noise if isinstance(noise, GaussianLikelihood) else learned_noise(noise))
