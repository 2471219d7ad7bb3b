"""Grids with withheld cells: the data of the experiments and benchmarks, standardised and split as in the paper (Lin et al., 2025)."""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import torch
from gpytorch.kernels import IndexKernel, Kernel, MaternKernel, PeriodicKernel, RBFKernel, ScaleKernel

from lkgp.curves.values import ValueScale
from lkgp.data.scaling import Scaling
from lkgp.studies import datasets
from lkgp.studies.splits import cut_curves, split_generator, uniform_gaps
from lkgp.studies.units import CurveUnits, Plain, Units

# Where every method starts: GPyTorch's default noise variance.
FIRST_NOISE = 0.693


@dataclass(frozen=True, eq=False)
class Problem:
    """Standardised data with withheld cells.

    coords: one array a factor, (n_k, d_k); values: (n_1, n_2), all of them; observed: (n_1, n_2)
    make_kernels: new kernels as in the paper, one a factor, with GPyTorch's default hyperparameters
    make_own_kernels: new kernels as we would choose them
    own_coords: the coordinates as we would choose them
    own_units: the units as we would choose them, from the observed values
    truth: the hyperparameters that the data were drawn with, where they were
    """

    name: str
    coords: list[np.ndarray]
    values: np.ndarray
    observed: np.ndarray
    make_kernels: Callable[[], list[Kernel]]
    make_own_kernels: Callable[[], list[Kernel] | None] = lambda: None
    own_coords: list[np.ndarray] | None = None
    own_units: Units = field(default_factory=Plain)
    truth: dict[str, float] = field(default_factory=dict)

    @property
    def seen(self) -> np.ndarray:
        """The values with NaN where they are withheld, (n_1, n_2)."""
        return np.where(self.observed, self.values, np.nan)


def standardised(values: np.ndarray, over: np.ndarray | None = None) -> np.ndarray:
    """Columns of mean zero and deviation one, as measured `over` some of the values."""
    scaling = Scaling.standard(torch.as_tensor(values if over is None else over, dtype=torch.float64))
    return scaling.apply(torch.as_tensor(values, dtype=torch.float64)).numpy()


# Configurations are drawn uniformly in the logarithms of these: batch size, learning rate and number of units.
LOGARITHMIC = [0, 1, 5]


def learning_curves(name: str = "Fashion-MNIST", curves: int = 2000, split: int = 0) -> Problem:
    """LCBench: validation losses of training runs over 52 epochs; nine in ten runs are cut somewhere.

    curves: the first so many of 2000, cut and scaled as in the whole
    """
    X, Y = datasets.lcbench(name)
    observed = cut_curves(Y.shape, split_generator(split))
    whole = Scaling.standard(torch.as_tensor(Y[observed[:, -1], -1], dtype=torch.float64))
    scale = curve_scale(Y[:curves], observed[:curves])
    Y = whole.apply(torch.as_tensor(Y, dtype=torch.float64)).numpy()
    epochs = (np.log(np.arange(1, Y.shape[1] + 1)) / np.log(Y.shape[1] + 1))[:, None]
    logs = X.copy()
    logs[:, LOGARITHMIC] = np.log(X[:, LOGARITHMIC])
    return Problem(
        f"{name}, {curves} curves",
        [standardised(X)[:curves], epochs],
        Y[:curves],
        observed[:curves],
        lambda: [ScaleKernel(RBFKernel(ard_num_dims=7)), RBFKernel()],
        own_coords=[standardised(logs)[:curves], epochs],
        own_units=CurveUnits(scale, float(whole.shift), float(whole.scale)),
    )


def curve_scale(Y: np.ndarray, observed: np.ndarray) -> ValueScale:
    """The scale that `lkgp.curves` finds from what was seen of curves (runs, epochs)."""
    lengths = observed.sum(axis=1)
    begun = np.flatnonzero(lengths)
    last, every = Y[begun, lengths[begun] - 1], Y[observed]
    scale = ValueScale.of(last, every=every)
    # Losses are no shares, even where none above one was seen.
    return scale if scale.transform != "logit" else ValueScale.of(last, transform="log", every=every)


def weather_kernels() -> list[Kernel]:
    """Squared exponential over places; squared exponential times periodic over time."""
    return [ScaleKernel(RBFKernel(ard_num_dims=2)), RBFKernel() * PeriodicKernel()]


def era5(missing: float = 0.3, split: int = 0, every: int = 1) -> Problem:
    """ERA5: hourly temperature at 2 m over the British Isles, March 2019, 1617 places x 744 hours.

    every: take only every so many rows and columns of places, and of the hours
    """
    array = datasets.era5().transpose("latitude", "longitude", "time")[::every, ::every, ::every].astype(float).load()
    lat, lon = np.meshgrid(array["latitude"], array["longitude"], indexing="ij")
    places = np.stack([lat.ravel(), lon.ravel()], axis=1).astype(float)
    return spatiotemporal(f"ERA5, {missing:.0%} missing", places, array.values.reshape(lat.size, -1), missing, split)


def nordic(variable: str = "TG", missing: float = 0.3, split: int = 0, places: int = 5000, days: int = 1000) -> Problem:
    """Nordic Gridded Climate Dataset: daily temperature (TG) or precipitation (RR) at random places, from 2020 on."""
    where, values = datasets.nordic(variable, days)
    chosen = np.random.RandomState(0).permutation(len(where))[:places]
    return spatiotemporal(f"Nordic {variable}, {missing:.0%} missing", where[chosen], values[chosen], missing, split)


def spatiotemporal(name: str, places: np.ndarray, values: np.ndarray, missing: float, split: int) -> Problem:
    """Values (p, q) at places (p, 2) and q equal steps of time, a share of them withheld at random."""
    observed = uniform_gaps(values.shape, missing, split_generator(split))
    times = np.arange(values.shape[1], dtype=float)[:, None]
    return Problem(
        name,
        [standardised(places), standardised(times)],
        standardised(values, values[observed]),
        observed,
        weather_kernels,
        lambda: [ScaleKernel(MaternKernel(nu=2.5, ard_num_dims=2)), MaternKernel(nu=2.5)],
    )


def sarcos(missing: float = 0.3, split: int = 0, part: str = "test", states: int | None = None) -> Problem:
    """SARCOS: the torques of 7 joints of a robot arm in 4449 states, or in 5000 of the training states as in the paper.

    Each torque is standardised on its own.
    """
    X, Y = datasets.sarcos(part)
    generator = split_generator(split)
    if part == "training":  # the paper's subset
        chosen = generator.permutation(len(X))[:5000]
        X, Y = X[chosen], Y[chosen]
    X, Y = X[:states], Y[:states]
    observed = uniform_gaps(Y.shape, missing, generator)
    torques = np.where(observed, Y, np.nan)
    values = (Y - np.nanmean(torques, axis=0)) / np.nanstd(torques, axis=0)
    return Problem(
        f"SARCOS, {missing:.0%} missing",
        [standardised(X), np.arange(7.0)[:, None]],
        values,
        observed,
        robot_kernels,
        lambda: [MaternKernel(nu=2.5, ard_num_dims=21), robot_kernels()[1]],
    )


def robot_kernels() -> list[Kernel]:
    """Squared exponential over the states, and tasks of full rank, whose scale is the scale of all; the same for everyone."""
    with torch.random.fork_rng():
        torch.manual_seed(0)  # of the first values of `IndexKernel`
        return [RBFKernel(ard_num_dims=21), IndexKernel(num_tasks=7, rank=7)]


# In the units of the standardised coordinates: weather of a few days, in a yearly cycle that changes over the years.
SIMULATED = {
    "noise": 0.05,
    "scale": 1.0,
    "length of space": 0.3,
    "length of time": 1.7,
    "period": 1.264,
    "length in the period": 0.05,
}


def simulated_climate(missing: float = 0.3, places: int = 5000, days: int = 1000, split: int = 0) -> Problem:
    """A draw from the prior at random places of a square and consecutive days, with noise."""
    generator = np.random.default_rng(2025 + split)
    coords = [standardised(generator.uniform(size=(places, 2))), (np.arange(days)[:, None] - (days - 1) / 2) / 288.7]
    space, time = weather_kernels()
    space.base_kernel.lengthscale = SIMULATED["length of space"]
    space.outputscale = SIMULATED["scale"]
    time.kernels[0].lengthscale = SIMULATED["length of time"]
    time.kernels[1].period_length, time.kernels[1].lengthscale = SIMULATED["period"], SIMULATED["length in the period"]
    roots = []
    for kernel, x in zip((space, time), coords, strict=True):
        with torch.no_grad():
            values, vectors = torch.linalg.eigh(kernel.double()(torch.as_tensor(x)).to_dense())
        keep = values > 1e-12 * values[-1]
        roots.append((vectors[:, keep] * values[keep].sqrt()).numpy())
    latent = roots[0] @ generator.standard_normal((roots[0].shape[1], roots[1].shape[1])) @ roots[1].T
    values = latent + np.sqrt(SIMULATED["noise"]) * generator.standard_normal(latent.shape)
    observed = uniform_gaps((places, days), missing, split_generator(split))
    name = f"simulated climate, {missing:.0%} missing"
    return Problem(name, coords, values, observed, weather_kernels, truth=dict(SIMULATED))
