"""Competitions of spatial statistics: a satellite's view through clouds, and simulated fields in space and time."""

from typing import Any

import numpy as np
from gpytorch.kernels import Kernel, MaternKernel, ScaleKernel

from lkgp.errors import InputError
from lkgp.studies import spatial_datasets
from lkgp.studies.comparators.fill import FILL
from lkgp.studies.comparators.gpboost import GNEITING, ROUGH, SMOOTH, SPACE_TIME
from lkgp.studies.comparators.inverse_distances import INVERSE_DISTANCES
from lkgp.studies.comparators.linear_interpolation import LINEAR
from lkgp.studies.comparators.nearest_neighbours import NEAREST
from lkgp.studies.problems import Problem
from lkgp.studies.registry import CASES, CaseFamily, Design

SATELLITE = "satellite"
KAUST = {f"kaust-{number}": number for number in spatial_datasets.KAUST_SETS}
KM_PER_DEGREE = 111.195
# Rows and columns of the small part of the data that the quick preset uses.
QUICK_SIZE = 30


def kernels(problem_dims: tuple[int, int]) -> list[Kernel]:
    """Matern-3/2 over both factors; problem_dims: the number of coordinates of each."""
    return [ScaleKernel(MaternKernel(nu=1.5, ard_num_dims=problem_dims[0])), MaternKernel(nu=1.5)]


def satellite(size: int | None = None) -> Problem:
    """Heaton et al. (2019): one map with clouds, scored where the true values are known but withheld.

    size: rows and columns of a window; by default the whole map
    """
    lat, lon, train, truth = spatial_datasets.satellite()
    withheld = np.isnan(train) & np.isfinite(truth)
    if size is not None:
        top, left = typical_window(withheld, size)
        rows, columns = slice(top, top + size), slice(left, left + size)
        lat, lon = lat[rows], lon[columns]
        train, truth, withheld = train[rows, columns], truth[rows, columns], withheld[rows, columns]

    def field() -> Any:
        import xarray  # noqa: PLC0415  (an optional package)

        coords = {
            "latitude": ("latitude", lat, {"units": "degrees_north", "standard_name": "latitude"}),
            "longitude": ("longitude", lon, {"units": "degrees_east", "standard_name": "longitude"}),
        }
        attrs = {"units": "degC", "long_name": "land surface temperature"}
        return xarray.DataArray(train, dims=("latitude", "longitude"), coords=coords, name="temperature", attrs=attrs)

    # Kilometres, so that distances along both axes can be compared.
    coords = [KM_PER_DEGREE * lat[:, None], KM_PER_DEGREE * np.cos(np.deg2rad(lat.mean())) * lon[:, None]]
    return Problem(
        "satellite",
        coords,
        # Where both are known they are the same; comparators see the training values only.
        np.where(np.isfinite(train), train, truth),
        np.isfinite(train),
        lambda: kernels((1, 1)),
        scored=withheld,
        make_field=field,
    )


def typical_window(withheld: np.ndarray, size: int) -> tuple[int, int]:
    """The first row and column of the window whose share of withheld cells is nearest to that of the whole map."""
    wanted = withheld.mean()
    shares = {
        (top, left): withheld[top : top + size, left : left + size].mean()
        for top in range(0, max(withheld.shape[0] - size, 0) + 1, max(size // 2, 1))
        for left in range(0, max(withheld.shape[1] - size, 0) + 1, max(size // 2, 1))
    }
    return min(shares, key=lambda place: abs(shares[place] - wanted))


def kaust(number: int, size: int | None = None) -> Problem:
    """The second KAUST competition (2022), problem 2a: places in the unit square over time.

    size: that many places, evenly from the list, and the last times; by default all
    """
    places, times, train, truth = spatial_datasets.kaust(number)
    if size is not None:
        kept = np.linspace(0, len(places) - 1, min(size, len(places))).round().astype(int)
        places, times = places[kept], times[-size:]
        train, truth = train[kept, -size:], truth[kept, -size:]

    def field() -> Any:
        import xarray  # noqa: PLC0415  (an optional package)

        coords = {"x": ("station", places[:, 0]), "y": ("station", places[:, 1]), "time": times}
        return xarray.DataArray(train, dims=("station", "time"), coords=coords, name="z")

    return Problem(
        f"KAUST 2a, set {number}",
        [places, times[:, None]],
        np.where(np.isfinite(train), train, truth),
        np.isfinite(train),
        lambda: kernels((2, 1)),
        time=1,
        scored=np.isnan(train) & np.isfinite(truth),
        make_field=field,
    )


def make_problem(dataset: str, missing: float, size: int | None, seed: int) -> Problem:
    """The data come with their gaps: there is only one split."""
    if dataset == SATELLITE:
        problem = satellite(size)
    elif dataset in KAUST:
        problem = kaust(KAUST[dataset], size)
    else:
        raise InputError(
            f"there is no dataset {dataset!r} in the competition; choose {', '.join((SATELLITE, *KAUST))}."
        )
    if not problem.tested.any():
        raise InputError(f"nothing is withheld in the part of {dataset} that was chosen, so that nothing is scored.")
    return problem


def comparators(dataset: str) -> tuple[str, ...]:
    """Who runs on a dataset."""
    approximate = (ROUGH, SMOOTH) if dataset == SATELLITE else (SPACE_TIME, GNEITING)
    return (FILL, *approximate, NEAREST, INVERSE_DISTANCES, LINEAR)


DATASETS = (SATELLITE, *KAUST)
CASES.register(
    CaseFamily(
        "competition",
        make_problem,
        designs={
            "full": Design(DATASETS, (0.0,), None, seeds=1),
            "quick": Design(DATASETS, (0.0,), QUICK_SIZE, seeds=1),
        },
        order=5,
        comparators=comparators,
    )
)
