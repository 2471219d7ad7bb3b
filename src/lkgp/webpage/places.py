"""Where the places of a field are drawn on the map, and what they are called."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

import xarray as xr
from lkgp.xarray.cf_coordinates import CFCoordinates
from lkgp.xarray.coordinate_scaling import flatten_coords
from lkgp.xarray.factors import Factor
from lkgp.xarray.geography import unwrap_longitude
from lkgp.xarray.layout import Layout
from lkgp.xarray.preview import format_label

# Stations are drawn as dots in the middle of cells of which this many span the extent of all stations; half a cell is
# the margin around them.
CELLS_ACROSS_STATIONS = 12
# The kinds of factors with one dimension that can be an axis of a map.
AXES = ("number", "longitude")
# The kinds of factors over places.
ON_MAP = ("sphere", "map", "plane")


@dataclass(frozen=True, eq=False)
class PlaceMap:
    """The places on the map.

    drawn: positions of the drawn places among those of the field, (n,); places with NaN coordinates are not drawn
    x, y: where they are drawn, each (n,)
    labels: what they are called; None on a grid, where the page makes the labels from the coordinates
    cell_size: width and height of a place in the units of x and y
    axes: what is written at the axes of x and y; None if they have no meaning
    dots: whether places are drawn as dots instead of cells
    grid: of places that are the product of two axes, the names and the values of x and y, and whether y varies slowest
        among the places; None for other places
    same_scale: whether x and y have the same units, so that they are drawn to the same scale
    """

    drawn: np.ndarray
    x: np.ndarray
    y: np.ndarray
    labels: list[str] | None
    cell_size: tuple[float, float] = (1.0, 1.0)
    axes: tuple[str, str] | None = None
    dots: bool = False
    grid: dict[str, Any] | None = None
    same_scale: bool = False

    @property
    def places(self) -> list[dict[str, Any]]:
        """For each drawn place its "x", "y" and "label"."""
        labels = self.labels or [""] * len(self.x)
        return [{"x": float(a), "y": float(b), "label": c} for a, b, c in zip(self.x, self.y, labels, strict=True)]


def choose_map_factor(layout: Layout) -> tuple[Factor | None, list[str]]:
    """What is drawn as a map, None if there is only time; and the dimensions of which one slice is shown.

    Two factors that are the two axes of a map are drawn together, as one factor would be that has both dimensions.
    """
    candidates = [factor for factor in layout.factors if layout.time not in factor.dims]
    chosen = max(candidates, key=lambda factor: (factor.kind in ON_MAP, len(factor.dims)), default=None)
    if chosen is not None and len(chosen.dims) == 1 and chosen.kind in AXES:
        chosen = join_axes(layout.field, [factor for factor in candidates if factor.kind in AXES]) or chosen
    if chosen is not None and chosen.kind in ("map", "plane"):
        first, second = chosen.coords[:2]
        if is_x(layout.field, first) and not is_x(layout.field, second):
            chosen = replace(chosen, coords=(second, first))
    on_map = chosen.dims if chosen is not None else ()
    return chosen, [dim for factor in candidates for dim in factor.dims if dim not in on_map]


def join_axes(field: xr.DataArray, factors: list[Factor]) -> Factor | None:
    """Latitude and longitude as one factor, or else the last two dimensions with numbers; None if there are not two."""
    dims = [factor.dims[0] for factor in sorted(factors, key=lambda f: field.dims.index(f.dims[0]))]
    known = CFCoordinates.of(field)
    if known.latitude in dims and known.longitude in dims:
        pair = (str(known.latitude), str(known.longitude))
        return Factor(pair, "sphere", pair)
    if len(dims) < 2:
        return None
    y, x = dims[-2:]
    if is_x(field, y) and not is_x(field, x):
        y, x = x, y
    return Factor((y, x), "plane", (y, x))


def is_x(field: xr.DataArray, dim: str) -> bool:
    """Whether a dimension is a horizontal axis by its name or its CF attribute."""
    return dim.lower() == "x" or field[dim].attrs.get("axis") == "X"


def map_places(layout: Layout, factor: Factor | None) -> PlaceMap:
    """Where every place of a factor is drawn."""
    field = layout.field
    if factor is None:  # a single series is drawn as one place
        return PlaceMap(np.array([0]), np.zeros(1), np.zeros(1), [str(field.name)])
    columns = flatten_coords(factor, field.coords)
    drawn = np.flatnonzero(~np.any([pd.isna(column) for column in columns[:2]], axis=0))
    if is_grid(field, factor) and len(drawn) == len(columns[0]):
        return grid_places(field, factor, columns)
    columns = [column[drawn] for column in columns]
    labels = place_labels(layout, factor, columns, drawn)
    if factor.kind in ON_MAP and len(factor.dims) == 1:
        x, y = columns[1].astype(float), columns[0].astype(float)
        x = unwrap_longitude(x) if factor.kind == "sphere" else x
        cell_size = (station_cell(x), station_cell(y))
        return PlaceMap(drawn, x, y, labels, cell_size, axis_titles(field, factor), dots=True)
    if factor.kind in ON_MAP and len(factor.dims) == 2:  # no regular grid: drawn by rows and columns
        rows, columns_of = np.indices([field.sizes[dim] for dim in factor.dims]).reshape(2, -1)[:, drawn].astype(float)
        return PlaceMap(drawn, columns_of, -rows, labels)
    return PlaceMap(drawn, np.arange(len(drawn), dtype=float), np.zeros(len(drawn)), labels)


def is_grid(field: xr.DataArray, factor: Factor) -> bool:
    """Whether the places of a factor are the product of two axes."""
    on_map = factor.kind in ON_MAP and len(factor.dims) == 2
    return on_map and all(field[name].ndim == 1 for name in factor.coords[:2])


def grid_places(field: xr.DataArray, factor: Factor, columns: list[np.ndarray]) -> PlaceMap:
    """The places of a grid whose axes are y and x.

    columns: y and x of every place, each (n,)
    """
    y, x = columns[0].astype(float), columns[1].astype(float)
    if factor.kind == "sphere":
        x = unwrap_longitude(x)
    shape = [field.sizes[dim] for dim in factor.dims]
    # The dimension of y need not be the first.
    y_first = field[factor.coords[0]].dims[0] == factor.dims[0]
    axes = [values.reshape(shape) if y_first else values.reshape(shape).T for values in (x, y)]
    grid = {
        "names": [factor.coords[1], factor.coords[0]],
        "x": axes[0][0].tolist(),
        "y": axes[1][:, 0].tolist(),
        "yFirst": y_first,
    }
    units = [field[name].attrs.get("units", "") for name in factor.coords[:2]]
    return PlaceMap(
        np.arange(len(x)),
        x,
        y,
        None,
        (typical_step(x), typical_step(y)),
        axis_titles(field, factor),
        grid=grid,
        same_scale=factor.kind in ("map", "plane") and units[0] == units[1],
    )


def axis_titles(field: xr.DataArray, factor: Factor) -> tuple[str, str]:
    """What is written at the axes of x and y: the names of the coordinates, with their units."""
    names = (factor.coords[1], factor.coords[0])
    if factor.kind == "sphere":  # drawn in degrees, whatever the units in the file
        return f"{names[0]} [°E]", f"{names[1]} [°N]"
    units = [str(field[name].attrs.get("units", "")) for name in names]
    first, second = (f"{name} [{unit}]" if unit else name for name, unit in zip(names, units, strict=True))
    return first, second


def place_labels(layout: Layout, factor: Factor, columns: list[np.ndarray], drawn: np.ndarray) -> list[str]:
    """What each drawn place is called: its coordinates, for a station after its name.

    columns: the coordinates of the drawn places, each (n,); drawn: their positions, (n,)
    """
    labels = [
        ", ".join(f"{name} {format_label(values[i])}" for name, values in zip(factor.coords, columns, strict=True))
        for i in range(len(drawn))
    ]
    if len(factor.dims) == 1 and factor.kind == "sphere" and factor.dims[0] in layout.field.coords:
        names = layout.field[factor.dims[0]].values[drawn]
        return [f"{format_label(name)} ({label})" for name, label in zip(names, labels, strict=True)]
    return labels


def typical_step(x: np.ndarray) -> float:
    """The typical distance between neighbours along an axis."""
    unique = np.unique(x)
    return float(np.median(np.diff(unique))) if len(unique) > 1 else 1.0


def station_cell(x: np.ndarray) -> float:
    """The size of the cell around a station along an axis."""
    return max(float(np.ptp(x)), 1e-3) / CELLS_ACROSS_STATIONS
