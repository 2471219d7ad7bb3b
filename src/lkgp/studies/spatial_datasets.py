"""The data of two competitions of spatial statistics, as .npz files in the folder that LKGP_DATA names."""

import zipfile

import numpy as np

from lkgp.errors import InputError
from lkgp.studies.datasets import local

HEATON = "https://github.com/finnlindgren/heatoncomparison (Data/AllSatelliteTemps.RData)"
KAUST = "https://github.com/TimGyger/SpaceTimeGPApprox (Data/2a)"
# The sets of the second KAUST competition that are used: they withhold whole places, single cells, and the last times.
KAUST_SETS = (1, 4, 7)


def satellite() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Land surface temperature of one day (Heaton et al., 2019), in degrees Celsius.

    Returns latitudes (300,), longitudes (500,), the training values (300, 500), NaN under clouds and where withheld,
    and the true values (300, 500), NaN where they were never seen.
    """
    lat, lon, train, truth = read("heaton_satellite.npz", ("lat", "lon", "train", "truth"), HEATON)
    check_shapes("heaton_satellite.npz", (len(lat), len(lon)), train, truth)
    return lat, lon, train, truth


def kaust(number: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """One simulated set of the second KAUST competition (2022), problem 2a.

    Returns places (1000, 2) in the unit square, times (100,), the training values (1000, 100), NaN where withheld, and
    the true values (1000, 100), NaN elsewhere.
    """
    if number not in KAUST_SETS:
        raise InputError(f"the sets of the KAUST competition are {', '.join(map(str, KAUST_SETS))}, not {number}.")
    name = f"kaust_2a_{number}.npz"
    places, times, train, truth = read(name, ("places", "times", "train", "truth"), KAUST)
    check_shapes(name, (len(places), len(times)), train, truth)
    return places, times, train, truth


def read(name: str, keys: tuple[str, ...], source: str) -> list[np.ndarray]:
    """The arrays of a file in float64."""
    path = local(name)
    if path is None:
        raise InputError(
            f"{name} is not in the folder that LKGP_DATA names. It holds the arrays {', '.join(keys)}, made from the "
            f"files at {source}."
        )
    try:
        with np.load(path) as table:
            return [np.asarray(table[key], dtype=np.float64) for key in keys]
    except (OSError, ValueError, KeyError, zipfile.BadZipFile):
        raise InputError(f"{path} is not a file with the arrays {', '.join(keys)}; make it again.") from None


def check_shapes(name: str, shape: tuple[int, int], train: np.ndarray, truth: np.ndarray) -> None:
    """Refuse values that do not fit the coordinates."""
    for found in (train, truth):
        if found.shape != shape:
            raise InputError(f"{name} has values of shape {found.shape} at coordinates of shape {shape}.")
