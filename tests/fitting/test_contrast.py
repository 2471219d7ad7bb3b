"""The prior on the ratio of signal to noise, against its definition over all observations and points."""

import math

import numpy as np
import pytest
import torch
from gpytorch.kernels import LinearKernel, MaternKernel, RQKernel, ScaleKernel

from lkgp import from_array
from lkgp.data.readers import Observations
from lkgp.fitting.contrast import ALWAYS_ALLOWED, SMALLEST_SHARE, WIDTH, Contrast
from lkgp.inference.predictions import ROUNDING_ERROR, variance_floor
from lkgp.model import LatentKroneckerGP, Noise


class NoisePerTime(Noise):
    """A variance of its own at every time."""

    def __init__(self, count):
        super().__init__()
        self.raw = torch.nn.Parameter(torch.linspace(-9.0, 3.0, count, dtype=torch.float64))

    def measurement_variance(self, data):
        return self.raw.exp()[data.grid.axis_index[1]]

    def at(self, coords):
        return self.raw.exp()


def field(counts=None, known=None):
    """12 observations of 4 x 4 cells, with numbers of measurements or known noise variances."""
    rng = np.random.default_rng(0)
    y = rng.normal(size=(4, 4))
    y[rng.permutation(16)[:4] // 4, rng.permutation(4)] = np.nan
    data = from_array([rng.normal(size=(4, 2)), np.arange(4.0)[:, None]], y)
    n = data.grid.num_observed
    some = torch.as_tensor(rng.integers(1, 9, n)).double() if counts else data.counts
    return Observations(data.grid, data.values, some, torch.as_tensor(rng.gamma(1.0, size=n)) if known else None)


@torch.no_grad()
def density(model, data):
    """The log density by its definition, with NumPy: every variance of every cell, and the median of all noises."""
    variance = [
        kernel(x).to_dense().diagonal().max() for kernel, x in zip(model.kernels, data.grid.coords, strict=True)
    ]
    noise = np.sort(model.noise_diagonal(data).expand(len(data.values)).detach().numpy())[(len(data.values) - 1) // 2]
    by_noise = ROUNDING_ERROR * SMALLEST_SHARE * noise / float(variance_floor(torch.ones(1, dtype=torch.float64)))
    limit = max(by_noise, ALWAYS_ALLOWED * np.var(data.values.numpy()))
    return -0.5 * (max(math.log(float(variance[0] * variance[1]) / limit), 0.0) / WIDTH) ** 2


@pytest.mark.parametrize("changing", [False, True], ids=["stationary", "not stationary"])
@pytest.mark.parametrize("noise", ["one", "counts", "known", "per time"])
@pytest.mark.parametrize("scale", [1.0, 1e12])
def test_the_prior_is_its_definition(changing, noise, scale):
    data = field(counts=noise == "counts", known=noise == "known")
    first = LinearKernel() if changing else MaternKernel() + ScaleKernel(RQKernel(ard_num_dims=2))
    kernels = [ScaleKernel(first), MaternKernel()]
    model = LatentKroneckerGP(kernels, noise=NoisePerTime(4) if noise == "per time" else 0.7).double()
    kernels[0].outputscale = scale
    contrast, before = Contrast(data), []
    for factor in (1.0, 7.0):  # what is kept between evaluations must not depend on the hyperparameters
        kernels[0].outputscale = scale * factor
        for level in model.noise.parameters():
            level.data.add_(factor)
        found = contrast.log_prior(model)
        assert float(found.detach()) == pytest.approx(density(model, data), rel=1e-9, abs=1e-12)
        before.append(float(found.detach()))
    assert (before[0] == 0.0) == (scale == 1.0)


def test_the_prior_has_the_derivative_by_the_noise():
    # Noise so large that it sets the limit, with several measurements per cell.
    data = field(counts=True)
    model = LatentKroneckerGP([ScaleKernel(MaternKernel()), MaternKernel()], noise=1e7).double()
    model.kernels[0].outputscale = 1e30
    contrast, raw = Contrast(data), model.noise.levels()[0]
    (slope,) = torch.autograd.grad(contrast.log_prior(model), [raw])
    values = []
    for step in (-1.0, 1.0):
        raw.data.add_(step)
        values.append(density(model, data))
        raw.data.sub_(step)
    assert abs(slope.item()) > 0
    assert float(slope) == pytest.approx((values[1] - values[0]) / 2, rel=1e-5)
