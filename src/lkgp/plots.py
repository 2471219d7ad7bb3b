"""Plots of filled fields and learning curves; each function takes matplotlib axes, or makes some, and returns them."""

from collections.abc import Mapping
from typing import Any, Literal

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

import xarray as xr
from lkgp.curves.forecast import Forecast
from lkgp.errors import InputError
from lkgp.xarray.cf_coordinates import CFCoordinates
from lkgp.xarray.geography import in_degrees, in_radians, unwrap_longitude
from lkgp.xarray.validation import Validation

Position = Mapping[str, Any]


def plot_map(
    filled: xr.Dataset,
    name: str,
    at: Position | None = None,
    *,
    what: Literal["data", "filled", "std"] = "filled",
    ax: Axes | None = None,
    cmap: str | None = None,
    vmin: float | None = None,
    vmax: float | None = None,
    add_colorbar: bool = True,
) -> Axes:
    """One time of a filled field as a map.

    filled: as `lkgp.xarray.fill` returns it
    name: the name of the field
    at: the time, or other coordinates, such as {"time": "2019-03-04T12"}; the nearest one is taken
    what: "data" for the observed values, "filled" for the filled field, "std" for its standard error
    cmap, vmin, vmax, add_colorbar: as in xarray's own plots
    """
    layers = {
        "data": filled[name].where(filled[f"{name}_filled"] == 0),
        "filled": filled[name],
        "std": filled[f"{name}_std"],
    }
    if what not in layers:
        raise InputError(f"what must be one of {', '.join(layers)}, not {what!r}.")
    layer = select_nearest(layers[what], at)
    if layer.ndim != 2:
        raise InputError(
            f"a map needs two dimensions, but the selection has {dim_names(layer)}; select one value along each of the "
            "others with `at`."
        )
    coordinates = CFCoordinates.of(layer)
    lat, lon = coordinates.latitude, coordinates.longitude
    if lat in layer.dims:
        layer = layer.assign_coords({lat: in_degrees(layer[lat])})
    if lon in layer.dims:  # from west to east, wherever the numbers jump
        degrees = in_degrees(layer[lon])
        unwrapped = unwrap_longitude(degrees.values.astype(float))
        layer = layer.assign_coords({lon: (lon, unwrapped, degrees.attrs)}).sortby(lon)
    ax = ax if ax is not None else new_axes((6.4, 4.8))
    cmap = cmap if cmap is not None else ("OrRd" if what == "std" else "viridis")
    layer.plot(ax=ax, cmap=cmap, vmin=vmin, vmax=vmax, add_colorbar=add_colorbar)
    return ax


def plot_series(filled: xr.Dataset, name: str, at: Position | None = None, *, ax: Axes | None = None) -> Axes:
    """The time series at one place: observed values, the filled field, and two standard errors on either side.

    at: the place, such as {"latitude": 52.5, "longitude": 0.1}; the nearest one is taken
    """
    value, std, flag = (select_nearest(filled[key], at) for key in (name, f"{name}_std", f"{name}_filled"))
    if value.ndim != 1:
        raise InputError(
            f"a series needs one dimension, but the selection has {dim_names(value)}; choose a place with `at`."
        )
    ax = ax if ax is not None else new_axes((8.0, 3.2))
    x = value[value.dims[0]].values
    low, high = (value - 2 * std).values, (value + 2 * std).values
    ax.fill_between(x, low, high, color="tab:blue", alpha=0.25, lw=0, label="± two standard errors")
    ax.plot(x, value.values, color="tab:blue", lw=1.2, label="filled")
    ax.plot(x, value.where(flag == 0).values, "k.", ms=3, label="observed")
    units = value.attrs.get("units")
    ax.set(xlabel=str(value.dims[0]), ylabel=f"{name} [{units}]" if units else name)
    ax.legend(loc="best", fontsize="small")
    return ax


def plot_calibration(validation: Validation, *, ax: Axes | None = None) -> Axes:
    """The share of withheld values inside intervals of each probability: the diagonal if the error bars are right."""
    ax = ax if ax is not None else new_axes((4.0, 4.0))
    probability, share = np.array(validation.calibration).T
    ax.plot([0, 1], [0, 1], "k--", lw=0.8)
    ax.plot(probability, share, "o-", ms=3)
    ax.set(
        xlabel="probability of the interval",
        ylabel="share of withheld values inside",
        xlim=(0, 1),
        ylim=(0, 1),
        aspect="equal",
    )
    return ax


def plot_forecast(forecast: Forecast, *, ax: Axes | None = None) -> Axes:
    """The forecast of a training run as a fan chart: observed values, median, interval, and the value to beat."""
    ax = ax if ax is not None else new_axes((6.4, 4.0))
    epochs, values = forecast.seen
    ahead = forecast.epochs >= (epochs[-1] if len(epochs) else 0)
    ax.plot(epochs, values, ".-", color="black", label="observed")
    ax.plot(forecast.epochs[ahead], forecast.median[ahead], color="tab:blue", label="median forecast")
    for shrink, alpha in ((1.0, 0.15), (0.5, 0.25)):
        low, high = (forecast.median + shrink * (end - forecast.median) for end in (forecast.lower, forecast.upper))
        label = f"{forecast.level:.0%} interval" if shrink == 1.0 else None
        ax.fill_between(
            forecast.epochs[ahead], low[ahead], high[ahead], color="tab:blue", alpha=alpha, linewidth=0, label=label
        )
    if forecast.best is not None:
        label = f"to beat (probability {forecast.chance})"
        ax.axhline(forecast.best, color="tab:green", linestyle="--", label=label)
    ax.set(xlabel="epoch", ylabel="value", title="" if forecast.run is None else f"run {forecast.run}")
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    ax.legend()
    return ax


def select_nearest(array: xr.DataArray, at: Position | None) -> xr.DataArray:
    """The array at some coordinates, or at the nearest ones where these are numbers or dates."""
    for name, value in (at or {}).items():
        if name not in array.dims or name not in array.coords:
            raise InputError(
                f"there is no dimension {name!r} with coordinates; available dimensions: {dim_names(array)}."
            )
        x = array[name].values
        if x.dtype.kind in "OUSb":
            array = array.sel({name: value})
            continue
        distance = np.abs(x - np.asarray(value, x.dtype))
        if name == CFCoordinates.of(array).longitude:
            full_turn = 2 * np.pi if in_radians(array[name]) else 360.0
            distance = np.minimum(np.mod(x - value, full_turn), np.mod(value - x, full_turn))
        array = array.isel({name: int(np.argmin(distance))})
    return array


def dim_names(array: xr.DataArray) -> str:
    return ", ".join(map(str, array.dims)) or "none"


def new_axes(size: tuple[float, float]) -> Axes:
    return plt.subplots(figsize=size, layout="constrained")[1]
