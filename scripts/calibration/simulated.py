"""Simulated problems, and what the library's own systems take on them: iterations and memory."""

import math
import multiprocessing
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import numpy as np
import psutil
import torch
from gpytorch.kernels import RBFKernel, ScaleKernel
from torch import Tensor

from lkgp.data.readers import Observations, from_array
from lkgp.inference import Method, Probes, Purpose, System, log_likelihood
from lkgp.linalg.eigenbasis import FactorBasis
from lkgp.machine import peak_memory
from lkgp.model import LatentKroneckerGP
from lkgp.studies.splits import cut_curves, split_generator, uniform_gaps

# About what a fit to LCBench's Fashion-MNIST finds, for seven hyperparameters of the networks and for the epochs.
CURVE_LENGTHS, CURVE_SCALE = ([0.8, 0.3, 3.0, 6.0, 1.3, 10.0, 12.0], [0.17]), 5.0
EPOCHS = 52
# Smooth over places and times, beside their number: far fewer modes than observations.
FIELD_LENGTHS, FIELD_SCALE = ([0.2, 0.2], [0.02]), 1.0
MISSING = 0.3
# Right-hand sides whose iterations are counted: those of all columns are about the same.
COLUMNS = 8

Problem = tuple[LatentKroneckerGP, Observations]


def curves(rows: int, noise: float) -> Problem:
    """Learning curves, of which nine in ten are cut somewhere."""
    inputs = np.random.default_rng(0).normal(size=(rows, len(CURVE_LENGTHS[0])))
    epochs = np.log(np.arange(1, EPOCHS + 1))[:, None] / np.log(EPOCHS + 1)
    observed = cut_curves((rows, EPOCHS), split_generator(0))
    return drawn([inputs, epochs], CURVE_LENGTHS, CURVE_SCALE, noise, observed)


def field(places: int, steps: int, noise: float) -> Problem:
    """Places x times, with cells missing at random."""
    where = np.random.default_rng(0).uniform(size=(places, 2))
    observed = uniform_gaps((places, steps), MISSING, split_generator(0))
    return drawn([where, np.linspace(0, 1, steps)[:, None]], FIELD_LENGTHS, FIELD_SCALE, noise, observed)


def drawn(
    coords: list[np.ndarray], lengths: tuple[list[float], ...], scale: float, noise: float, observed: np.ndarray
) -> Problem:
    """A model with squared exponentials, and data that are drawn from it."""
    kernels = [RBFKernel(ard_num_dims=len(length)).double() for length in lengths]
    for kernel, length in zip(kernels, lengths, strict=True):
        kernel.lengthscale = torch.tensor(length, dtype=torch.float64)
    scaled = ScaleKernel(kernels[0]).double()
    scaled.outputscale = scale
    model = LatentKroneckerGP([scaled, *kernels[1:]], mean=0.0, noise=noise).double()
    with torch.no_grad():
        factors = model.terms[0].factors([torch.as_tensor(x) for x in coords])
        left, right = (FactorBasis.of(factor.dense()).root.numpy() for factor in factors)
    generator = np.random.default_rng(1)
    values = left @ generator.normal(size=(left.shape[1], right.shape[1])) @ right.T
    values += math.sqrt(noise) * generator.normal(size=values.shape)
    return model, from_array(coords, np.where(observed, values, np.nan))


def prior_data(system: System) -> tuple[Tensor, Tensor]:
    """Data that come from the prior, (n, c), and their functions at every cell, (c, N)."""
    grid, generator = system.data.grid, torch.Generator().manual_seed(0)
    sizes = (grid.num_cells, grid.num_observed)
    normals = [torch.randn(n, COLUMNS, generator=generator, dtype=torch.float64) for n in sizes]
    with torch.no_grad():
        return system.prior_data(*normals)


def iterations(problem: Problem, method: Method) -> list[tuple[Any, int]]:
    """The systems of a fit and of posterior samples, and the iterations that their solves take."""
    found = []
    for setting, purpose, columns in (
        (method.for_fitting(), Purpose.LIKELIHOOD, 2 * method.num_probes),
        (method, Purpose.SAMPLES, method.num_samples),
    ):
        system = setting.system(*problem, columns=columns)
        rhs, functions = prior_data(system)
        with torch.no_grad():
            found.append((system, system.solve(rhs, purpose, functions).iterations))
    return found


def bytes_of_likelihood(problem: Problem, method: Method) -> float:
    """Bytes that one likelihood with its gradient takes at its peak."""
    model, data = problem
    probes = None if method.exact else Probes.draw(data, method.num_probes, 0)
    before = psutil.Process().memory_info().rss
    log_likelihood(model, data, method.for_fitting(), probes, value=method.exact).objective.backward()
    return peak_memory() - before


def bytes_of_curves(rows: int, noise: float, method: Method) -> float:
    return bytes_of_likelihood(curves(rows, noise), method)


def bytes_of_field(places: int, steps: int, noise: float, method: Method) -> float:
    return bytes_of_likelihood(field(places, steps, noise), method)


def in_own_process(function: Callable[..., float], *arguments: Any) -> float:
    """Call a function of a module in a new process, whose peak memory is its own."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(function, *arguments).result()
