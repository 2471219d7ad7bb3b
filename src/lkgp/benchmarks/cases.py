"""The data of the benchmarks: real grids with holes from a folder, and one that is drawn from the prior.

Splits are those of the paper (Lin et al., 2025), so that scores compare with its tables.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from gpytorch.kernels import IndexKernel, Kernel, PeriodicKernel, RBFKernel, ScaleKernel

from lkgp.errors import InputError
from lkgp.scaling import Scaling

# Where every contestant starts: GPyTorch's default noise variance.
FIRST_NOISE = 0.693


@dataclass(frozen=True, eq=False)
class Case:
    """Standardised data with withheld cells.

    coords: one array a factor, (n_k, d_k); values: (n_1, n_2), all of them; observed: (n_1, n_2)
    make_kernels: new kernels with GPyTorch's default hyperparameters, one a factor
    truth: the hyperparameters that the data were drawn with, where they were
    """

    name: str
    coords: list[np.ndarray]
    values: np.ndarray
    observed: np.ndarray
    make_kernels: Callable[[], list[Kernel]]
    truth: dict[str, float] = field(default_factory=dict)

    @property
    def seen(self) -> np.ndarray:
        """The values with NaN where they are withheld, (n_1, n_2)."""
        return np.where(self.observed, self.values, np.nan)


def data_file(*parts: str) -> Path:
    """A file in the folder that LKGP_DATA names."""
    if "LKGP_DATA" not in os.environ:
        raise InputError(f"this case reads {'/'.join(parts)} from the folder that the variable LKGP_DATA names; set it.")
    path = Path(os.environ["LKGP_DATA"]).joinpath(*parts)
    if not path.is_file():
        raise InputError(f"{path} is not there; LKGP_DATA must name the folder that holds it.")
    return path


def uniform_gaps(shape: tuple[int, int], missing: float, split: int) -> np.ndarray:
    """Which cells are observed when a share of all of them is withheld at random, (n_1, n_2)."""
    generator = np.random.RandomState(2025 + split)  # the published splits come from NumPy's old generator
    size = shape[0] * shape[1]
    observed = np.ones(size, dtype=bool)
    observed[generator.choice(size, int(missing * size), replace=False)] = False
    return observed.reshape(shape)


def standardised(values: np.ndarray, over: np.ndarray | None = None) -> np.ndarray:
    """Columns of mean zero and deviation one, as measured `over` some of the values."""
    scaling = Scaling.standard(torch.as_tensor(values if over is None else over, dtype=torch.float64))
    return scaling.apply(torch.as_tensor(values, dtype=torch.float64)).numpy()


def learning_curves(curves: int = 2000, split: int = 0) -> Case:
    """LCBench Fashion-MNIST: validation losses of `curves` training runs over 52 epochs; nine in ten runs are cut somewhere."""
    with np.load(data_file("lcbench", "Fashion-MNIST.npz")) as table:
        X, Y = table["X"], table["Y"]
    generator = np.random.RandomState(2025 + split)
    observed = np.ones(Y.shape, dtype=bool)
    for i in generator.choice(len(Y), int(0.9 * len(Y)), replace=False):
        observed[i, generator.randint(Y.shape[1]) :] = False
    Y = standardised(Y, Y[observed[:, -1], -1])
    epochs = np.log(np.arange(1, Y.shape[1] + 1)) / np.log(Y.shape[1] + 1)
    X = standardised(X)
    coords = [X[:curves], epochs[:, None]]
    return Case(
        f"learning curves, {curves}",
        coords,
        Y[:curves],
        observed[:curves],
        lambda: [ScaleKernel(RBFKernel(ard_num_dims=7)), RBFKernel()],
    )


def weather_kernels() -> list[Kernel]:
    """Squared exponential over places; squared exponential times periodic over time."""
    return [ScaleKernel(RBFKernel(ard_num_dims=2)), RBFKernel() * PeriodicKernel()]


def era5(missing: float = 0.3, split: int = 0) -> Case:
    """ERA5: hourly temperature at 2 m over the British Isles, March 2019, 1617 places x 744 hours."""
    import xarray  # noqa: PLC0415  (an optional package)

    with xarray.open_dataset(data_file("era5_t2m_uk_2019-03.nc")) as dataset:
        array = dataset["t2m"].transpose("latitude", "longitude", "time").astype(float).load()
    lat, lon = np.meshgrid(array["latitude"], array["longitude"], indexing="ij")
    values = array.values.reshape(lat.size, -1)
    observed = uniform_gaps(values.shape, missing, split)
    coords = [standardised(np.stack([lat.ravel(), lon.ravel()], axis=1).astype(float)), standardised(np.arange(values.shape[1])[:, None])]
    return Case(f"ERA5, {missing:.0%} missing", coords, standardised(values, values[observed]), observed, weather_kernels)


def sarcos(missing: float = 0.3, split: int = 0) -> Case:
    """SARCOS: the torques of 7 joints of a robot arm in 4449 states."""
    from scipy.io import loadmat  # noqa: PLC0415  (slow to import)

    table = loadmat(data_file("sarcos_inv_test.mat"))["sarcos_inv_test"]
    observed = uniform_gaps((len(table), 7), missing, split)
    torques = np.where(observed, table[:, 21:], np.nan)
    values = (table[:, 21:] - np.nanmean(torques, axis=0)) / np.nanstd(torques, axis=0)
    coords = [standardised(table[:, :21]), np.arange(7.0)[:, None]]
    return Case(
        f"SARCOS, {missing:.0%} missing",
        coords,
        values,
        observed,
        robot_kernels,
    )


def robot_kernels() -> list[Kernel]:
    """Squared exponential over the states, and tasks of full rank, whose scale is the scale of all; the same for everyone."""
    with torch.random.fork_rng():
        torch.manual_seed(0)  # of the first values of `IndexKernel`
        return [RBFKernel(ard_num_dims=21), IndexKernel(num_tasks=7, rank=7)]


# In the units of the standardised coordinates: weather of a few days, in a yearly cycle that changes over the years.
SIMULATED = {"noise": 0.05, "scale": 1.0, "length of space": 0.3, "length of time": 1.7, "period": 1.264, "length in the period": 0.05}


def simulated_climate(missing: float = 0.3, places: int = 5000, days: int = 1000, split: int = 0) -> Case:
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
    observed = uniform_gaps((places, days), missing, split)
    return Case(f"simulated climate, {missing:.0%} missing", coords, values, observed, weather_kernels, dict(SIMULATED))
