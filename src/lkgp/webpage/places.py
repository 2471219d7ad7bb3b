"""Where the places of a field are drawn on the map, and what they are called."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from lkgp.xarray.coordinate_scaling import flatten_coords
from lkgp.xarray.factors import Factor
from lkgp.xarray.geography import unwrap_longitude
from lkgp.xarray.layout import Layout
from lkgp.xarray.preview import format_label

# Stations are drawn as dots in the middle of cells of which this many span the extent of all stations; half a cell is
# the margin around them.
CELLS_ACROSS_STATIONS = 12


@dataclass(frozen=True, eq=False)
class PlaceMap:
    """The places on the map.

    drawn: positions of the drawn places among those of the field, (n,); places with NaN coordinates are not drawn
    places: for each drawn place its "x", "y" and "label"
    cell_size: width and height of a place in the units of x and y
    axes: the names of x and y; None if they have no meaning
    dots: whether places are drawn as dots instead of cells
    """

    drawn: np.ndarray
    places: list[dict[str, Any]]
    cell_size: tuple[float, float] = (1.0, 1.0)
    axes: tuple[str, str] | None = None
    dots: bool = False


def choose_map_factor(layout: Layout) -> tuple[Factor | None, list[str]]:
    """The factor that is drawn as a map, None if there is only time; and the dimensions of which one slice is shown."""
    candidates = [factor for factor in layout.factors if layout.time not in factor.dims]
    chosen = max(
        candidates, key=lambda factor: (factor.kind in ("sphere", "map", "plane"), len(factor.dims)), default=None
    )
    return chosen, [dim for factor in candidates if factor is not chosen for dim in factor.dims]


def map_places(layout: Layout, factor: Factor | None) -> PlaceMap:
    """Where every place of a factor is drawn."""
    field = layout.field
    if factor is None:  # a single series is drawn as one place
        return PlaceMap(np.array([0]), [{"x": 0.0, "y": 0.0, "label": str(field.name)}])
    columns = flatten_coords(factor, field.coords)
    drawn = np.flatnonzero(~np.any([pd.isna(column) for column in columns[:2]], axis=0))
    columns = [column[drawn] for column in columns]
    index = np.indices([field.sizes[dim] for dim in factor.dims]).reshape(len(factor.dims), -1)[:, drawn]
    labels = place_labels(layout, factor, columns, drawn)
    cell_size, axes, dots = (1.0, 1.0), None, False
    if factor.kind == "sphere":
        x, y = unwrap_longitude(columns[1].astype(float)), columns[0].astype(float)
        axes = (factor.coords[1], factor.coords[0])
        if len(factor.dims) == 1:
            dots = True
            cell_size = (station_cell(x), station_cell(y))
        elif all(field[name].ndim == 1 for name in factor.coords[:2]):
            cell_size = (typical_step(x), typical_step(y))
        else:  # a curvilinear grid is drawn by its rows and columns
            x, y, axes = index[1].astype(float), -index[0].astype(float), None
    elif factor.kind in ("map", "plane") and len(factor.dims) == 2 and factor.coords == factor.dims:
        y, x = columns[0].astype(float), columns[1].astype(float)
        cell_size, axes = (typical_step(x), typical_step(y)), (factor.coords[1], factor.coords[0])
    elif factor.kind in ("map", "plane") and len(factor.dims) == 1:
        y, x = columns[0].astype(float), columns[1].astype(float)
        cell_size, axes, dots = (station_cell(x), station_cell(y)), (factor.coords[1], factor.coords[0]), True
    else:
        x, y = np.arange(index.shape[1], dtype=float), np.zeros(index.shape[1])
    places = [{"x": float(a), "y": float(b), "label": label} for a, b, label in zip(x, y, labels, strict=True)]
    return PlaceMap(drawn, places, cell_size, axes, dots)


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
