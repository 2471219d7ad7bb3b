"""Climate with values missing at random: ERA5, and the Nordic data of the paper's table 2."""

import numpy as np
from gpytorch.kernels import Kernel, MaternKernel, PeriodicKernel, RBFKernel, ScaleKernel

from lkgp.errors import InputError
from lkgp.studies import datasets
from lkgp.studies.problems import Problem, standardised
from lkgp.studies.registry import CASES, BenchmarkCase, CaseFamily, Design
from lkgp.studies.splits import split_generator, uniform_gaps

MISSING = tuple(i / 10 for i in range(1, 6))


def weather_kernels() -> list[Kernel]:
    """Squared exponential over places; squared exponential times periodic over time."""
    return [ScaleKernel(RBFKernel(ard_num_dims=2)), RBFKernel() * PeriodicKernel()]


def era5(missing: float = 0.3, split: int = 0, every: int = 1) -> Problem:
    """Hourly temperature at 2 m over the British Isles in March 2019, 1617 places x 744 hours.

    every: stride over latitudes, longitudes and hours
    """
    array = datasets.era5().transpose("latitude", "longitude", "time")[::every, ::every, ::every].astype(float).load()
    lat, lon = np.meshgrid(array["latitude"], array["longitude"], indexing="ij")
    places = np.stack([lat.ravel(), lon.ravel()], axis=1).astype(float)
    return spatiotemporal(f"ERA5, {missing:.0%} missing", places, array.values.reshape(lat.size, -1), missing, split)


def nordic(variable: str = "TG", missing: float = 0.3, split: int = 0, places: int = 5000, days: int = 1000) -> Problem:
    """Daily temperature (TG) or precipitation (RR) of the Nordic Gridded Climate Dataset at random places."""
    where, values = datasets.nordic(variable, days)
    chosen = np.random.RandomState(0).permutation(len(where))[:places]
    return spatiotemporal(f"Nordic {variable}, {missing:.0%} missing", where[chosen], values[chosen], missing, split)


def spatiotemporal(name: str, places: np.ndarray, values: np.ndarray, missing: float, split: int) -> Problem:
    """Values (p, q) at places (p, 2) and q equidistant times, with a share of them withheld at random."""
    observed = uniform_gaps(values.shape, missing, split_generator(split))
    times = np.arange(values.shape[1], dtype=float)[:, None]
    return Problem(
        name,
        [standardised(places), standardised(times)],
        standardised(values, values[observed]),
        observed,
        weather_kernels,
        lambda: [ScaleKernel(MaternKernel(nu=2.5, ard_num_dims=2)), MaternKernel(nu=2.5)],
        time=1,
    )


def make_problem(dataset: str, missing: float, size: int | None, seed: int) -> Problem:
    """dataset: ERA5, TG or RR; ERA5/3 takes only every third latitude, longitude and hour"""
    name, _, every = dataset.partition("/")
    if name == "ERA5" and (not every or every.isdigit()):
        return era5(missing, seed, int(every or 1))
    if dataset in ("TG", "RR"):
        return nordic(dataset, missing, seed)
    raise InputError(f"there is no climate dataset {dataset!r}; choose ERA5, ERA5/NUMBER, TG or RR.")


def benchmark(percent: int) -> BenchmarkCase:
    title = f"ERA5 temperature, 1617 places x 744 hours, {percent} % missing"
    comparators = ("lkgp", "the paper's settings, by its iterations")
    return BenchmarkCase(f"era5-{percent}", "weather", title, comparators, "ERA5", percent / 100)


CASES.register(
    CaseFamily(
        "climate",
        make_problem,
        designs={
            "small": Design(("ERA5/3",), MISSING, None, seeds=1),
            "paper": Design(("TG", "RR"), MISSING, None, seeds=5),
        },
        benchmarks=tuple(benchmark(percent) for percent in (10, 30, 50)),
        order=2,
    )
)
