"""Model files of every kind that lkgp writes, with all entries that a file can have."""

from pathlib import Path

import numpy as np
import torch
from curves_data import curves
from fields import small_field
from gpytorch.constraints import Interval
from gpytorch.kernels import IndexKernel, LinearKernel, MaternKernel, PeriodicKernel, RBFKernel, RQKernel, ScaleKernel
from gpytorch.likelihoods import GaussianLikelihood
from gpytorch.priors import GammaPrior, LogNormalPrior

import lkgp.xarray
from lkgp import LKGP, Iterative, ObservationSpace, Spectral
from lkgp.model import ConstantMean


def learned_and_drawn(path: Path) -> None:
    """Estimated error bars, and draws at points of the grid and elsewhere."""
    X, T, Y, _ = curves()
    gp = LKGP(solver=Spectral(num_samples=4)).fit([X, T], Y, optimize=False)
    gp.predict()
    gp.sample(3, [X[:4] + 0.05, T], seed=9)
    gp.save(path)


def known_noise(path: Path) -> None:
    """Single precision, torch, and noise that is known everywhere."""
    X, T, Y, _ = curves()
    values = torch.tensor(Y, dtype=torch.float32)
    noise = torch.linspace(0.01, 0.1, values.numel()).reshape(values.shape)
    LKGP(dtype=torch.float32).fit([X, T], values, noise_variance=noise, optimize=False).save(path)


def repeated_measurements(path: Path) -> None:
    """A table with several rows for a cell, a noise and a mean of the caller's own, and an iterative solver."""
    X, T, Y, _ = curves()
    rows, columns = np.nonzero(~np.isnan(Y))
    rows, columns = np.concatenate([rows, rows[:20]]), np.concatenate([columns, columns[:20]])
    values = Y[rows, columns] + 0.01 * np.arange(len(rows)) / len(rows)
    likelihood = GaussianLikelihood(noise_prior=GammaPrior(2.0, 20.0))
    gp = LKGP(noise=likelihood, mean=ConstantMean(0.1), solver=Iterative(num_samples=4))
    gp.fit_table([X[rows], T[columns]], values, duplicates="mean", optimize=False)
    gp.predict()
    gp.save(path)


def composed_kernels(path: Path) -> None:
    """Sums and products of kernels, with priors, constraints and categories, over three factors."""
    rng = np.random.default_rng(3)
    codes, times, places = np.arange(3.0), np.linspace(0, 2, 8), rng.normal(size=(5, 2))
    values = rng.normal(size=(3, 8, 5))
    values[rng.random(values.shape) < 0.3] = np.nan
    smooth = RBFKernel(ard_num_dims=2, lengthscale_prior=LogNormalPrior(0.0, 1.0))
    periodic = PeriodicKernel(lengthscale_constraint=Interval(0.1, 5.0)) * MaternKernel(nu=1.5)
    kernels = [
        IndexKernel(num_tasks=3, rank=2),
        ScaleKernel(periodic + RQKernel()),
        smooth + LinearKernel(active_dims=(0,)),
    ]
    solver = ObservationSpace(num_samples=4)
    gp = LKGP(kernels, solver=solver).fit([codes, times, places], values, optimize=False)
    gp.predict()
    gp.save(path)


def labelled_field(path: Path) -> None:
    """A field over places and times."""
    lkgp.xarray.fit(small_field(places=(2, 3), times=16).rename("t2m")).save(path)


WRITERS = (learned_and_drawn, known_noise, repeated_measurements, composed_kernels, labelled_field)
KINDS = {write.__name__: write for write in WRITERS}
