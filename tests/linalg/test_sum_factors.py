"""Sums of Matern kernels and cycles over irregular times are their matrices."""

import numpy as np
import pytest
import torch
from factor_checks import check_draws, check_gradients, check_is_matrix, dense_of, kernel_of
from gpytorch.kernels import AdditiveKernel, PeriodicKernel, ScaleKernel

from lkgp.linalg.factors import structure_for
from lkgp.model import Term
from lkgp.model.kernels import KernelFunction

RANDOM = np.random.default_rng(0)
TIMES = {
    "irregular": np.sort(RANDOM.exponential(0.1, 150).cumsum()),
    "unsorted": RANDOM.uniform(0, 12, 150),
    "repeated": np.repeat(RANDOM.uniform(0, 12, 50), 3),
}
PERIOD, SHAPE, SHARE = 1.7, 1.2, 0.6


def weather_and_cycle(keeps=30.0):
    repeats = PeriodicKernel().double()
    repeats.period_length, repeats.lengthscale = torch.tensor([PERIOD, SHAPE], dtype=torch.float64)
    cycle = ScaleKernel(repeats * kernel_of("2.5", keeps)).double()
    cycle.outputscale = torch.tensor(SHARE, dtype=torch.float64)
    return AdditiveKernel(kernel_of("0.5", 0.7), cycle)


def dense_weather_and_cycle(coords):
    x = np.asarray(coords)[:, 0]
    # GPyTorch divides by the length scale itself, not by its square.
    cycle = np.exp(-2 * np.sin(np.pi * (x[:, None] - x) / PERIOD) ** 2 / SHAPE)
    return dense_of("0.5", 0.7, coords) + SHARE * cycle * dense_of("2.5", 30.0, coords)


@pytest.mark.parametrize("name", TIMES)
def test_weather_and_a_cycle(name):
    coords = torch.as_tensor(TIMES[name])[:, None]
    dense = dense_weather_and_cycle(coords)
    factor = Term([weather_and_cycle()]).factor(0, coords, "sum").detach()
    check_is_matrix(factor, dense, atol=1e-8)
    check_draws(factor, dense, atol=1e-8)


def test_gradients():
    check_gradients(weather_and_cycle, torch.as_tensor(TIMES["irregular"])[:, None], "sum")


def test_weights_of_entries():
    coords = torch.as_tensor(TIMES["unsorted"])[:, None]
    factor = Term([weather_and_cycle()]).factor(0, coords, "sum").detach()
    rows, columns = (torch.randint(150, (40,), generator=torch.Generator().manual_seed(s)) for s in (0, 1))
    shares = torch.randn(40, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    wanted = (shares.numpy() * dense_weather_and_cycle(coords)[rows, columns]).sum()
    weights = factor.gather_weights(rows, columns, shares)
    np.testing.assert_allclose(float(factor.inner(weights + weights * 2.0)), 3 * wanted, rtol=1e-8)


def test_long_irregular_times_get_it():
    function = KernelFunction(weather_and_cycle(keeps=300.0))
    irregular = torch.as_tensor(np.sort(RANDOM.uniform(0, 40, 2500)))[:, None]
    assert structure_for(function, irregular) == "sum"
    assert structure_for(function, torch.linspace(0, 40, 2500, dtype=torch.float64)[:, None]) == "dense"
    # A cycle that changes within a few periods has as many modes as there are points.
    assert structure_for(KernelFunction(weather_and_cycle(keeps=0.05)), irregular) != "sum"
