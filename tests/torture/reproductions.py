"""Fixed cases that once were wrong without a word. Each returns what is wrong with it, in words, if anything."""

import math
import warnings

import numpy as np
import torch
from gpytorch.kernels import MaternKernel, PeriodicKernel, RBFKernel, ScaleKernel
from tests.torture.checks import Comparison, check_covariance, check_moments, started, std_finding
from tests.torture.dense import DenseModel
from tests.torture.problems import Problem
from tests.torture.tolerances import chi_square_limits

from lkgp import LKGP, Direct, Spectral
from lkgp.sklearn import LKGPTableRegressor


def case(coords, Y, *, way="automatic", solver="auto", kernels=None, noise=0.05, noise_variance=None, fit=False):
    """A problem in plain units, predicted a little off the grid."""
    coords = [np.asarray(x, dtype=float).reshape(len(x), -1) for x in coords]
    return Problem(
        seed=0,
        way=way,
        solver=solver,
        dtype=torch.float64,
        coords=coords,
        kernels=kernels,
        Y=Y,
        noise=noise,
        noise_variance=noise_variance,
        mean=None,
        new=[x[::4] + 0.02 for x in coords],
        standardize=True,
        fit=fit,
        words="",
    )


def wrong(findings):
    return [
        f"{f.quantity} {f.detail}: {f.error:.2g}, {f.excess:.2g} times the tolerance" for f in findings if f.excess > 1
    ]


def smooth_field():
    """Twelve by fifteen values of a smooth function without noise, with a few gaps."""
    x, t = np.linspace(0, 1, 12), np.linspace(0, 1, 15)
    Y = np.sin(3 * x)[:, None] * np.cos(2 * t)
    Y[np.random.default_rng(0).random(Y.shape) < 0.1] = np.nan
    return x, t, Y


def smooth_noise_free_covariance():
    """The joint covariance of all cells, a little off the grid, with default settings."""
    x, t, Y = smooth_field()
    gp = LKGP().fit([x, t], Y)
    given = case([x, t], Y, fit=True)
    twin = Comparison(given, gp)
    covariance = gp.covariance([x + 0.02, t + 0.01])
    place = twin.dense.at(twin.scaled([x[:, None] + 0.02, t[:, None] + 0.01]))
    negative = int((np.diag(covariance) <= 0).sum())
    found = np.sqrt(np.maximum(np.diag(covariance), 0))
    return ([f"{negative} variances are not positive"] if negative else []) + wrong(
        [std_finding(twin, place, found, "rows", "of a covariance"), *check_covariance(twin)]
    )


def smooth_noise_free_table():
    """The same data as a table: standard deviations by the regressor for tables are those of the oracle."""
    x, t, Y = smooth_field()
    rows, columns = np.nonzero(~np.isnan(Y))
    X = np.stack([x[rows], t[columns]], axis=1)
    model = LKGPTableRegressor(column=1).fit(X, Y[rows, columns])
    at = np.stack([x[rows] + 0.02, t[columns]], axis=1)
    mean, std = model.predict(at, return_std=True)
    gp = next(value for value in vars(model).values() if isinstance(value, LKGP))
    grid = [c.numpy() for c in gp.grid_.coords]
    on_grid = gp.grid_.scatter(gp.observations_.values[:, None], fill=math.nan)[:, 0].reshape(gp.grid_.shape).numpy()
    twin = Comparison(case(grid, on_grid, fit=True), gp)
    faults = []
    for i in range(0, len(at), 7):
        place = twin.dense.at(twin.scaled([at[i : i + 1, :1], at[i : i + 1, 1:]]))
        faults += wrong([std_finding(twin, place, std[i : i + 1], "rows", f"of row {i}")])
    return faults + ([] if np.isfinite(mean).all() else ["a mean is not finite"])


def known_noise_over_six_decades():
    """Direct inference with known noise variances over six decades."""
    faults = []
    for seed in range(8):
        rng = np.random.default_rng(seed)
        x, t = np.linspace(0, 1, 14), np.linspace(0, 1, 11)
        noise = 10 ** rng.uniform(-9.3, -3.3, (14, 11))
        Y = np.sin(3 * x)[:, None] * np.cos(2 * t) + np.sqrt(noise) * rng.normal(size=noise.shape)
        Y[rng.random(Y.shape) < 0.2] = np.nan
        kernels = [ScaleKernel(MaternKernel(nu=0.5)).double(), RBFKernel().double()]
        kernels[0].outputscale, kernels[0].base_kernel.lengthscale = (torch.tensor(v).double() for v in (60.0, 0.4))
        given = case([x, t], Y, way="direct", solver=Direct(), kernels=kernels, noise_variance=noise)
        twin = Comparison(given, started(given))
        faults += wrong([*check_moments(twin), *check_covariance(twin)])
    return faults


def block_gap_in_the_eigenbasis():
    """Standard deviations from samples on 9 x 5 x 2 cells with a block gap and a noise of 1.6e-5."""
    rng = np.random.default_rng(2)
    coords = [np.linspace(0, 1, 9), np.linspace(0, 1, 5), np.arange(2.0)]
    Y = np.sin(4 * coords[0])[:, None, None] + np.cos(3 * coords[1])[:, None] * (1 + 0.3 * coords[2])
    Y = Y + math.sqrt(1.6e-5) * rng.normal(size=Y.shape)
    Y[2:7, 1:4] = np.nan
    kernels = [ScaleKernel(MaternKernel()).double(), MaternKernel().double(), MaternKernel().double()]
    given = case(coords, Y, way="spectral", solver=Spectral(), kernels=kernels, noise=1.6e-5)
    gp = started(given)
    twin = Comparison(given, gp)
    ratio = (np.asarray(gp.predict()[1]).ravel() / twin.unit / twin.on_grid.std).astype(float)
    low, high = (math.sqrt(limit) for limit in chi_square_limits(gp.solver.num_samples))
    off = ratio[(ratio < low) | (ratio > high)]
    return [f"{len(off)} standard deviations are up to {off.max():.2g} times the true ones"] if len(off) else []


def small_field(seed):
    """A small field in the eigenbasis: two kernels of three kinds, a corner, random cells or one cell missing."""
    rng = np.random.default_rng(seed)
    shape = tuple(int(rng.integers(2, 15)) for _ in range(2))
    kinds = [str(rng.choice(["rbf", "matern", "periodic"])) for _ in shape]
    lengths = np.exp(rng.uniform(np.log(0.1), np.log(2), 2))
    scale, regular = float(np.exp(rng.uniform(np.log(0.1), np.log(10)))), rng.random() < 0.5
    coords = [(np.linspace(0, 2, n) if regular else np.sort(rng.uniform(0, 2, n)))[:, None] for n in shape]
    noise, observed = scale * 10 ** rng.uniform(-8, 2), np.ones(shape, dtype=bool)
    corner, gap = [int(rng.integers(1, n)) for n in shape], rng.choice(["corner", "random", "one"])
    if gap == "corner":
        observed[tuple(slice(start, None) for start in corner)] = False
    elif gap == "random":
        observed = rng.random(shape) < 0.7
    else:
        observed.ravel()[rng.integers(observed.size)] = False
    observed.ravel()[0] = True
    kernels = []
    for kind, length in zip(kinds, lengths, strict=True):
        kernel = {"rbf": RBFKernel, "matern": MaternKernel, "periodic": PeriodicKernel}[kind]().double()
        if kind == "periodic":
            kernel.period_length = torch.tensor(0.9).double()
        kernel.lengthscale = torch.tensor(length).double()
        kernels.append(kernel)
    kernels[0] = ScaleKernel(kernels[0]).double()
    kernels[0].outputscale = torch.tensor(scale).double()
    prior = DenseModel(kernels, coords, np.zeros(shape), np.full(shape, noise), 0.0)
    root = np.linalg.cholesky(prior.matrix.astype(float) + 1e-12 * np.eye(observed.size))
    values = root @ rng.normal(size=observed.size)
    return coords, np.where(observed, values.reshape(shape), np.nan), kernels, noise


def stated_errors_in_the_eigenbasis():
    """None of the log likelihoods that once were three to eight stated standard errors off is off by five."""
    beyond = []
    for seed in (12, 16, 25, 54, 94, 113, 120, 134):
        coords, Y, kernels, noise = small_field(seed)
        gp = LKGP(kernels, mean=0.0, noise=noise, standardize=False, solver=Spectral(), seed=seed)
        value, stated = gp.fit(coords, Y, optimize=False).posterior_.log_likelihood()
        true = DenseModel(gp.model_.kernels, coords, Y, np.full(Y.shape, noise), 0.0).log_likelihood()
        error = abs(value - true)
        if error > 5 * stated + 1e-6 * abs(true):
            beyond.append(f"seed {seed}: {error:.2g} nats at a stated {stated:.1g}")
    return beyond


def empty_rows():
    """Rows without data do not change a fit, nor what is predicted."""
    rng = np.random.default_rng(3)
    X, t = rng.uniform(0, 1, (15, 2)), np.arange(10.0)
    Y = np.sin(4 * X[:, :1]) + np.cos(t / 3) + 0.05 * rng.normal(size=(15, 10))
    Y[rng.random(Y.shape) < 0.2] = np.nan
    far = np.concatenate([X, rng.uniform(0, 3, (10, 2))])
    more = np.concatenate([Y, np.full((10, 10), np.nan)])
    (mean, std), (mean_more, std_more) = (LKGP().fit([x, t], y).predict([X, t]) for x, y in ((X, Y), (far, more)))
    off = float(np.abs((mean_more - mean) / std).max())
    wider = float(np.abs(std_more / std - 1).max())
    found = [f"the mean moves by {off:.2g} standard deviations"] if off > 0.01 else []
    return found + ([f"a standard deviation changes by {wider:.2%}"] if wider > 0.01 else [])


def sum_of_coordinates(noise, seed):
    """A sum of coordinates, with little or no noise: at observed cells no error bar exceeds the noise."""
    rng = np.random.default_rng(seed)
    X, T = rng.uniform(size=(12, 2)), np.arange(1.0, 6.0)
    Y = X.sum(axis=1)[:, None] + T + noise * rng.normal(size=(12, 5))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        gp = LKGP().fit([X, T], Y)
        mean, std = gp.predict()
        covariance = gp.covariance()
    # Var f <= s^2 where y = f + e was observed
    learned = gp.noise_variance_
    found = []
    for name, variance in (("predict", std**2), ("covariance", np.diag(covariance).reshape(Y.shape))):
        if not (variance <= 1.01 * learned).all():
            found.append(f"a variance by {name} is {variance.max():.2g} with a noise of {learned:.2g}")
        if not (variance > 0).all():
            found.append(f"a variance by {name} is not positive")
    off = float(np.abs(mean - Y).max())
    if off > 0.01 + 6 * max(noise, math.sqrt(learned)):
        found.append(f"the mean is off by {off:.2g}")
    return found


REPRODUCTIONS = {
    "covariance of smooth noise-free data": smooth_noise_free_covariance,
    "table of smooth noise-free data": smooth_noise_free_table,
    "known noise over six decades": known_noise_over_six_decades,
    "block gap in the eigenbasis": block_gap_in_the_eigenbasis,
    "stated errors in the eigenbasis": stated_errors_in_the_eigenbasis,
    "empty rows": empty_rows,
    **{
        f"sum of coordinates, noise {noise:g}, seed {seed}": (lambda n=noise, s=seed: sum_of_coordinates(n, s))
        for noise, seed in [(0.0, 0), *((1e-3, seed) for seed in range(4))]
    },
}
