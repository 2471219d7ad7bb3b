"""Make the data and the pictures of docs/filling-gaps.md: a sea surface with clouds over it.

python scripts/tutorial.py sea.nc              # the data
python scripts/tutorial.py sea.nc docs/tutorial  # and, from them, the pictures
"""

import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from scipy.ndimage import gaussian_filter

import lkgp.xarray  # noqa: F401  (adds .lkgp)
import xarray as xr
from lkgp import plots


def sea(seed: int = 0) -> tuple[xr.DataArray, xr.DataArray]:
    """Daily sea surface temperature of a spring, as a satellite would see it between clouds, and without the clouds."""
    rng = np.random.default_rng(seed)
    days, lat, lon = pd.date_range("2022-03-01", periods=90), np.arange(60.0, 54.0, -0.5), np.arange(-4.0, 4.0, 0.5)
    shape = (90, len(lat), len(lon))
    eddies = gaussian_filter(rng.standard_normal(shape), (6.0, 1.5, 1.5), mode="nearest")
    spring = 5 + 4 * (np.arange(90) / 90)[:, None, None] ** 1.5
    truth = spring - 0.5 * (lat - 57)[:, None] + 0.8 * eddies / eddies.std()
    clouds = gaussian_filter(rng.standard_normal(shape), (0.7, 1.2, 1.2))
    land = (lat[:, None] - 57.5) ** 2 + 2 * (lon + 4) ** 2 < 3
    measured = truth + 0.1 * rng.standard_normal(shape)
    field = xr.DataArray(
        np.where(land, np.nan, measured).astype(np.float32),
        dims=("time", "latitude", "longitude"),
        coords={
            "time": days,
            "latitude": ("latitude", lat, {"units": "degrees_north", "standard_name": "latitude"}),
            "longitude": ("longitude", lon, {"units": "degrees_east", "standard_name": "longitude"}),
        },
        name="sst",
        attrs={"units": "degC", "standard_name": "sea_surface_temperature", "long_name": "sea surface temperature"},
    )
    cloudy = xr.DataArray(clouds > np.quantile(clouds, 0.6), dims=field.dims)
    return field.where(~cloudy), field


def draw(source: Path, folder: Path) -> None:
    """Fill the file, and draw one day before and after, one place, and the calibration."""
    field = xr.load_dataset(source).sst
    filled, model = field.lkgp.fill(return_model=True)
    figure, axes = plt.subplots(1, 3, figsize=(13, 3.6), layout="constrained")
    limits = {
        "vmin": float(filled.sst.sel(time="2022-04-10").min()),
        "vmax": float(filled.sst.sel(time="2022-04-10").max()),
    }
    for ax, what in zip(axes, ("data", "filled", "std"), strict=True):
        plots.plot_map(filled, "sst", {"time": "2022-04-10"}, what=what, ax=ax, **({} if what == "std" else limits))
        ax.set_title({"data": "as it was seen", "filled": "filled", "std": "standard error"}[what])
    figure.savefig(folder / "map.png", dpi=90)
    figure, ax = plt.subplots(figsize=(9, 3), layout="constrained")
    plots.plot_series(filled, "sst", {"latitude": 56.0, "longitude": 1.0}, ax=ax)
    figure.savefig(folder / "series.png", dpi=90)
    found = model.validate()
    figure, ax = plt.subplots(figsize=(3.6, 3.6), layout="constrained")
    plots.plot_calibration(found, ax=ax)
    figure.savefig(folder / "calibration.png", dpi=90)
    print(model.gp.report_)
    print(found)


def main() -> None:
    source = Path(sys.argv[1])
    if not source.exists():
        sea()[0].to_netcdf(source)
    if len(sys.argv) > 2:
        draw(source, Path(sys.argv[2]))


if __name__ == "__main__":
    main()
