"""Pictures of filled fields and of learning curves. Each function takes matplotlib's axes, or makes them, and returns them."""

from collections.abc import Mapping
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

import xarray as xr
from lkgp.curves.forecast import Forecast
from lkgp.errors import InputError
from lkgp.xarray.factors import Meanings
from lkgp.xarray.points import in_degrees, in_radians, unwrapped
from lkgp.xarray.validation import Validation

Where = Mapping[str, Any]


def plot_map(
    filled: xr.Dataset,
    name: str,
    at: Where | None = None,
    *,
    what: str = "filled",
    ax: Axes | None = None,
    **words: Any,
) -> Axes:
    """One time of a filled field as a map.

    filled: as `lkgp.xarray.fill` returns it; name: of the field; at: which time, or other coordinates, such as {"time": "2019-03-04T12"}
    what: "data" as they were observed, the "filled" field, or its standard error, "std"; words: for xarray's own plot
    """
    layers = {
        "data": filled[name].where(filled[f"{name}_filled"] == 0),
        "filled": filled[name],
        "std": filled[f"{name}_std"],
    }
    if what not in layers:
        raise InputError(f"what must be one of {', '.join(layers)}, not {what!r}.")
    picture = chosen(layers[what], at)
    if picture.ndim != 2:
        raise InputError(
            f"a map has two dimensions, but {', '.join(map(str, picture.dims))} are left; choose one of each of the others."
        )
    meanings = Meanings.of(picture)
    north, east = meanings.latitude, meanings.longitude
    if north in picture.dims:
        picture = picture.assign_coords({north: in_degrees(picture[north])})
    if east in picture.dims:  # from west to east, wherever the numbers jump
        degrees = in_degrees(picture[east])
        picture = picture.assign_coords({east: (east, unwrapped(degrees.values.astype(float)), degrees.attrs)}).sortby(
            east
        )
    ax = ax if ax is not None else new_axes((6.4, 4.8))
    picture.plot(ax=ax, **{"cmap": "OrRd" if what == "std" else "viridis", **words})
    return ax


def plot_series(filled: xr.Dataset, name: str, at: Where | None = None, *, ax: Axes | None = None) -> Axes:
    """The series of one place: what was observed, the filled field, and two standard errors on either side.

    at: the place, such as {"latitude": 52.5, "longitude": 0.1}; the nearest one is taken
    """
    value, std, flag = (chosen(filled[key], at) for key in (name, f"{name}_std", f"{name}_filled"))
    if value.ndim != 1:
        raise InputError(
            f"a series has one dimension, but {', '.join(map(str, value.dims))} are left; choose a place with `at`."
        )
    ax = ax if ax is not None else new_axes((8.0, 3.2))
    x = value[value.dims[0]].values
    ax.fill_between(
        x,
        (value - 2 * std).values,
        (value + 2 * std).values,
        color="tab:blue",
        alpha=0.25,
        lw=0,
        label="two standard errors",
    )
    ax.plot(x, value.values, color="tab:blue", lw=1.2, label="filled")
    ax.plot(x, value.where(flag == 0).values, "k.", ms=3, label="observed")
    units = value.attrs.get("units")
    ax.set(xlabel=str(value.dims[0]), ylabel=f"{name} [{units}]" if units else name)
    ax.legend(loc="best", fontsize="small")
    return ax


def plot_calibration(validation: Validation, *, ax: Axes | None = None) -> Axes:
    """The share of withheld values inside intervals of each probability; on the diagonal if the error bars are right."""
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


def chosen(array: xr.DataArray, at: Where | None) -> xr.DataArray:
    """The array at some coordinates, the nearest ones where they are numbers or dates."""
    for name, value in (at or {}).items():
        if name not in array.dims or name not in array.coords:
            raise InputError(
                f"there is no dimension {name!r} with coordinates; there are {', '.join(map(str, array.dims))}."
            )
        x = array[name].values
        if x.dtype.kind in "OUSb":
            array = array.sel({name: value})
            continue
        away = np.abs(x - np.asarray(value, x.dtype))
        if name == Meanings.of(array).longitude:
            turn = 2 * np.pi if in_radians(array[name]) else 360.0
            away = np.minimum(np.mod(x - value, turn), np.mod(value - x, turn))
        array = array.isel({name: int(np.argmin(away))})
    return array


def new_axes(size: tuple[float, float]) -> Axes:
    return plt.subplots(figsize=size, layout="constrained")[1]


def plot_forecast(forecast: Forecast, *, ax: Axes | None = None) -> Axes:
    """How a training run will go on: what was seen, the median to come, and its interval as a fan; what it is compared with as a line."""
    ax = ax if ax is not None else new_axes((6.4, 4.0))
    epochs, values = forecast.seen
    ahead = forecast.epochs >= (epochs[-1] if len(epochs) else 0)
    ax.plot(epochs, values, ".-", color="black", label="seen")
    ax.plot(forecast.epochs[ahead], forecast.median[ahead], color="tab:blue", label="expected")
    for shrink, alpha in ((1.0, 0.15), (0.5, 0.25)):
        low, high = (forecast.median + shrink * (end - forecast.median) for end in (forecast.lower, forecast.upper))
        label = f"{forecast.level:.0%}" if shrink == 1.0 else None
        ax.fill_between(
            forecast.epochs[ahead], low[ahead], high[ahead], color="tab:blue", alpha=alpha, linewidth=0, label=label
        )
    if forecast.best is not None:
        ax.axhline(forecast.best, color="tab:green", linestyle="--", label=f"to beat (probability {forecast.chance})")
    ax.set(xlabel="epoch", ylabel="value", title="" if forecast.run is None else f"run {forecast.run}")
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    ax.legend()
    return ax
