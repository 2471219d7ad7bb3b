"""The data of the studies as published: read from the folder that LKGP_DATA names, else downloaded and checked.

Everything is returned as it is in the files; units and scales are left alone.
"""

import json
import os
import zipfile
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

from lkgp.errors import InputError

# The seven numbers of a configuration, in the order of the columns of X.
CONFIGURATION = ("batch_size", "learning_rate", "momentum", "weight_decay", "num_layers", "max_units", "max_dropout")
LOSS = "Train/val_cross_entropy"
# The commit that holds the learning curves, one file per set.
CURVES = (
    "https://raw.githubusercontent.com/jandylin/Latent-Kronecker-GPs/"
    "a9640af5e14610c9308508487b7270905967c0bb/data/LCBench/"
)
ROBOT = "http://www.gaussianprocess.org/gpml/data/"
WEATHER = ("https://github.com/pydata/xarray-data/raw/master/era5-2mt-2019-03-uk.grib", "era5-2mt-2019-03-uk.grib")
NORDIC_PAGE = "https://cds.climate.copernicus.eu/datasets/insitu-gridded-observations-nordic"

LCBENCH_SETS = (
    "APSFailure",
    "Amazon_employee_access",
    "Australian",
    "Fashion-MNIST",
    "KDDCup09_appetency",
    "MiniBooNE",
    "adult",
    "airlines",
    "albert",
    "bank-marketing",
    "blood-transfusion-service-center",
    "car",
    "christine",
    "cnae-9",
    "connect-4",
    "covertype",
    "credit-g",
    "dionis",
    "fabert",
    "helena",
    "higgs",
    "jannis",
    "jasmine",
    "jungle_chess_2pcs_raw_endgame_complete",
    "kc1",
    "kr-vs-kp",
    "mfeat-factors",
    "nomao",
    "numerai28.6",
    "phoneme",
    "segment",
    "shuttle",
    "sylvine",
    "vehicle",
    "volkert",
)


def data_folder() -> Path | None:
    """The folder that LKGP_DATA names, if it is set."""
    name = os.environ.get("LKGP_DATA")
    if not name:
        return None
    if not Path(name).is_dir():
        raise InputError(
            f"LKGP_DATA is set to {name}, which is not a folder; set it to the folder with the data, or unset it."
        )
    return Path(name)


def local(*parts: str) -> Path | None:
    """The path of a file in that folder, if it is there."""
    folder = data_folder()
    path = folder.joinpath(*parts) if folder is not None else None
    return path if path is not None and path.is_file() else None


def fetch(url: str, known_hash: str | None, name: str) -> Path:
    """Download a file, unless it is in the cache already. Returns its path."""
    try:
        import pooch  # noqa: PLC0415  (an optional package)
    except ModuleNotFoundError:
        raise InputError(
            f"{name} is not in the folder that LKGP_DATA names, and downloading it needs the package pooch; "
            "install it with: pip install 'lkgp[experiments]'."
        ) from None
    try:
        return Path(pooch.retrieve(url, known_hash, fname=name, path=pooch.os_cache("lkgp")))
    except ValueError as error:
        raise InputError(
            f"the file at {url} is not the one that was expected ({error}); download {name} by hand."
        ) from None
    except Exception as error:  # whatever the network library raises
        raise InputError(
            f"{name} could not be downloaded from {url} ({type(error).__name__}); "
            "put it into a folder, set LKGP_DATA to that folder, and try again."
        ) from None


def checksums() -> dict[str, str]:
    """The SHA-256 of published files, by name."""
    found: dict[str, str] = json.loads((files("lkgp.studies") / "checksums.json").read_text())
    return found


def lcbench(name: str) -> tuple[np.ndarray, np.ndarray]:
    """One set of LCBench: configurations (2000, 7), in the order of `CONFIGURATION`, and validation losses (2000, 52).

    Read from lcbench/NAME.npz, data_2k_lw.json or data_2k_lw.zip, whichever there is; else NAME.npz is downloaded.
    """
    if name not in LCBENCH_SETS:
        raise InputError(f"LCBench has no set {name!r}; choose from {', '.join(LCBENCH_SETS)}.")
    if (path := local("lcbench", f"{name}.npz") or local(f"{name}.npz")) is not None:
        return read_curves(path)
    for archive in ("data_2k_lw.json", "data_2k_lw.zip"):
        for parts in ((archive,), ("lcbench", archive)):
            if (path := local(*parts)) is not None:
                return read_lcbench(path, name)
    return read_curves(fetch(f"{CURVES}{name}.npz", checksums().get(f"{name}.npz"), f"{name}.npz"))


def read_curves(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """X and Y of one .npz file."""
    try:
        with np.load(path) as table:
            return table["X"], table["Y"]
    except (OSError, ValueError, KeyError, zipfile.BadZipFile):
        raise InputError(
            f"{path} is not a file of learning curves with the arrays X and Y; download it again."
        ) from None


def read_lcbench(path: Path, name: str) -> tuple[np.ndarray, np.ndarray]:
    """The same from the file of all sets, data_2k_lw.json, or from the archive in which it is published."""
    try:
        if path.suffix == ".zip":
            with zipfile.ZipFile(path) as archive:
                member = next(member for member in archive.namelist() if member.endswith(".json"))
                everything = json.loads(archive.read(member))
        else:
            everything = json.loads(path.read_text())
        runs = [run for _, run in sorted(everything[name].items(), key=lambda item: int(item[0]))]
        X = np.array([[run["config"][key] for key in CONFIGURATION] for run in runs], dtype=float)
        Y = np.array([run["log"][LOSS] for run in runs], dtype=float)
    except (OSError, ValueError, KeyError, StopIteration, zipfile.BadZipFile) as error:
        raise InputError(
            f"{path} is not the published file of LCBench, or {name} is not in it ({type(error).__name__}: {error})."
        ) from None
    return X, Y


def sarcos(part: str = "training") -> tuple[np.ndarray, np.ndarray]:
    """The robot arm: positions, velocities and accelerations (n, 21), and torques (n, 7).

    part: training, with 44484 states, or test, with 4449
    """
    from scipy.io import loadmat  # noqa: PLC0415  (slow to import)

    stems = {"training": "sarcos_inv", "test": "sarcos_inv_test"}
    if part not in stems:
        raise InputError(f"SARCOS has the parts training and test, not {part!r}.")
    name = f"{stems[part]}.mat"
    path = local(name) or fetch(ROBOT + name, checksums().get(name), name)
    try:
        table = np.asarray(loadmat(path)[stems[part]], dtype=float)
    except (KeyError, ValueError, OSError):
        raise InputError(f"{path} is not a MATLAB file with the variable {stems[part]}; download it again.") from None
    if table.ndim != 2 or table.shape[1] != 28:
        raise InputError(f"{path} has a table of shape {table.shape}; SARCOS has 28 columns.")
    return table[:, :21], table[:, 21:]


def era5() -> Any:
    """Hourly temperature at 2 m, 50-58 N, 10 W-2 E, March 2019: an xarray.DataArray (time, latitude, longitude)."""
    if (path := local("era5_t2m_uk_2019-03.nc")) is not None:
        return netcdf(path, "t2m")
    url, name = WEATHER
    path = local(name) or fetch(url, None, name)
    try:
        import xarray  # noqa: PLC0415

        return xarray.open_dataset(path, engine="cfgrib")["t2m"]
    except (ModuleNotFoundError, ValueError):
        raise InputError(
            f"{path} is a GRIB file; reading it needs xarray and cfgrib, installed with: pip install xarray cfgrib."
        ) from None


def netcdf(path: str | Path, variable: str | None = None) -> Any:
    """A variable of a netCDF file as an xarray.DataArray; by default the only one with at least three dimensions."""
    try:
        import xarray  # noqa: PLC0415
    except ModuleNotFoundError:
        raise InputError(
            "reading netCDF files needs xarray and netcdf4; install them with: pip install 'lkgp[experiments]'."
        ) from None
    if not Path(path).is_file():
        raise InputError(f"there is no file {path}.")
    try:
        dataset = xarray.open_dataset(path)
    except (ValueError, OSError):
        raise InputError(f"{path} cannot be read as a netCDF file.") from None
    large = [str(name) for name, array in dataset.data_vars.items() if array.ndim >= 3]
    if variable is None and len(large) != 1:
        raise InputError(
            f"{path} does not have exactly one variable with at least three dimensions; "
            f"name one of {', '.join(map(str, dataset.data_vars))}."
        )
    name = variable or large[0]
    if name not in dataset.data_vars:
        raise InputError(f"{path} has no variable {name!r}; it has {', '.join(map(str, dataset.data_vars))}.")
    return dataset[name]


def nordic(variable: str, days: int = 1000, first_day: str = "2020-01-01") -> tuple[np.ndarray, np.ndarray]:
    """The Nordic Gridded Climate Dataset: latitude and longitude of land cells (cells, 2), and values (cells, days).

    variable: "TG", mean temperature, or "RR", precipitation
    Read from files as the Climate Data Store provides them, one per day: NGCD_TG_*_20200101.nc, in the folder that
    LKGP_DATA names or its subfolder nordic. Nothing is downloaded, because that needs an account.
    """
    import xarray  # noqa: PLC0415

    folder = data_folder()
    days_of: dict[str, Path] = {}
    for place in [] if folder is None else [folder, folder / "nordic"]:
        for path in sorted(place.glob(f"NGCD_{variable}_*.nc")):
            days_of[path.stem[-8:]] = path
    wanted = [str(day).replace("-", "") for day in np.datetime64(first_day) + np.arange(days)]
    absent = [day for day in wanted if day not in days_of]
    if absent:
        raise InputError(
            f"{len(absent)} of {days} days of {variable}, the first of them {absent[0]}, are missing in the folder "
            f"that LKGP_DATA names; get the files NGCD_{variable}_*_YYYYMMDD.nc from {NORDIC_PAGE}."
        )
    fields, places = [], None
    for day in wanted:
        with xarray.open_dataset(days_of[day]) as dataset:
            field = dataset[variable].squeeze()
            if places is None:
                lat, lon = (coordinate(dataset, name) for name in ("latitude", "longitude"))
                if lat.ndim == 1:
                    lat, lon = np.meshgrid(lat, lon, indexing="ij")
                places = np.stack([lat.ravel(), lon.ravel()], axis=1)
            fields.append(field.values.ravel())
    values = np.stack(fields, axis=1)
    land = np.isfinite(values).all(axis=1)
    assert places is not None
    return places[land], values[land]


def coordinate(dataset: Any, standard_name: str) -> np.ndarray:
    """The coordinate with a CF standard name."""
    for array in dataset.variables.values():
        if array.attrs.get("standard_name") == standard_name:
            return np.asarray(array.values, dtype=float)
    for name in (standard_name, standard_name[:3]):
        if name in dataset.variables:
            return np.asarray(dataset[name].values, dtype=float)
    raise InputError(f"the file has no coordinate with the standard name {standard_name}.")
