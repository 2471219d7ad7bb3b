"""A simulated climate of the size of the paper's Nordic data, whose hyperparameters are known."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from gpytorch.kernels import Kernel

from lkgp.studies.cases.climate import weather_kernels
from lkgp.studies.problems import Problem, standardised
from lkgp.studies.registry import CASES, BenchmarkCase, CaseFamily
from lkgp.studies.splits import FIRST_SEED, split_generator, uniform_gaps

# In units of the standardised coordinates: weather of a few days, in a yearly cycle that changes over the years. A
# thousand days have a standard deviation of STD_OF_DAYS = 1000 / sqrt(12), so that the period is 365 days.
TRUTH = {
    "noise": 0.05,
    "scale": 1.0,
    "length of space": 0.3,
    "length of time": 1.7,
    "period": 1.264,
    "length in the period": 0.05,
}
STD_OF_DAYS = 288.7
# Eigenvalues below this share of the largest one are rounding errors.
SMALLEST_EIGENVALUE = 1e-12


def simulated_climate(missing: float = 0.3, places: int = 5000, days: int = 1000, split: int = 0) -> Problem:
    """A draw from the prior at random places of a square and on consecutive days, with noise."""
    generator = np.random.default_rng(FIRST_SEED + split)
    coords = [
        standardised(generator.uniform(size=(places, 2))),
        (np.arange(days)[:, None] - (days - 1) / 2) / STD_OF_DAYS,
    ]
    # Each kernel matrix is R R^T, and a draw is R_1 normals R_2^T.
    roots = []
    for kernel, x in zip(true_kernels(), coords, strict=True):
        with torch.no_grad():
            values, vectors = torch.linalg.eigh(kernel.double()(torch.as_tensor(x)).to_dense())
        keep = values > SMALLEST_EIGENVALUE * values[-1]
        roots.append((vectors[:, keep] * values[keep].sqrt()).numpy())
    latent = roots[0] @ generator.standard_normal((roots[0].shape[1], roots[1].shape[1])) @ roots[1].T
    noisy = latent + np.sqrt(TRUTH["noise"]) * generator.standard_normal(latent.shape)
    observed = uniform_gaps((places, days), missing, split_generator(split))
    name = f"simulated climate, {missing:.0%} missing"
    return Problem(name, coords, noisy, observed, weather_kernels, truth=dict(TRUTH), fitted_truth=fitted_truth, time=1)


def true_kernels() -> list[Kernel]:
    """The kernels that the data are drawn with."""
    space, time = weather_kernels()
    space.base_kernel.lengthscale = TRUTH["length of space"]
    space.outputscale = TRUTH["scale"]
    time.kernels[0].lengthscale = TRUTH["length of time"]
    time.kernels[1].period_length, time.kernels[1].lengthscale = TRUTH["period"], TRUTH["length in the period"]
    return [space, time]


def fitted_truth(kernels: Sequence[Any], noise: float) -> dict[str, float]:
    """The hyperparameters of fitted `weather_kernels` and a noise variance, named as in `TRUTH`."""
    space, time = kernels
    found = {
        "scale": space.outputscale,
        "length of space": space.base_kernel.lengthscale,
        "length of time": time.kernels[0].lengthscale,
        "period": time.kernels[1].period_length,
        "length in the period": time.kernels[1].lengthscale,
    }
    return {"noise": noise, **{name: float(value.detach().mean()) for name, value in found.items()}}


def make_problem(dataset: str, missing: float, size: int | None, seed: int) -> Problem:
    """dataset: there is only one; size: places"""
    return simulated_climate(missing, size or 5000, split=seed)


def benchmark(percent: int) -> BenchmarkCase:
    title = f"simulated climate, 5000 places x 1000 days, {percent} % missing"
    return BenchmarkCase(f"climate-{percent}", "climate", title, ("lkgp",), "simulated", percent / 100)


CASES.register(
    CaseFamily(
        "simulated climate", make_problem, benchmarks=tuple(benchmark(percent) for percent in (10, 30, 50)), order=4
    )
)
