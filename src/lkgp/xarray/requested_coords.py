"""The coordinates at which a prediction is requested: dictionaries, labels, text, and xarray objects."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

import xarray as xr
from lkgp.errors import InputError
from lkgp.xarray.coordinate_scaling import PLAIN_NUMBERS, STANDARD_CALENDAR, CoordinateScaling
from lkgp.xarray.factors import Factor
from lkgp.xarray.layout import Layout


def resolve_coords(layout: Layout, coords: Any) -> tuple[list[np.ndarray | None], dict[str, xr.DataArray]]:
    """The points at the requested coordinates, and the coordinates themselves.

    coords: as in `FieldModel.predict`

    Returns one array (n'_k, d_k) per factor, None for a factor whose own points are kept; and the new coordinates by
    name, including those that a factor keeps.
    """
    given = known_coords(layout, coords) if coords is not None else {}
    points: list[np.ndarray | None] = []
    found: dict[str, xr.DataArray] = {}
    for scaling in layout.scalings:
        factor = scaling.factor
        if not any(name in given for name in (*factor.dims, *factor.coords)):
            points.append(None)
            continue
        selected = select_labels(layout.field, factor, given)
        here = {
            name: read_coord(layout.field, given[name], scaling, name) if name in given else selected[name]
            for name in factor.coords
        }
        sizes = [array.sizes for array in here.values()]
        if any(a[dim] != b[dim] for a in sizes for b in sizes for dim in set(a) & set(b)):
            raise InputError(
                f"the coordinates {', '.join(factor.coords)} have different lengths; give all of them for the same "
                "points."
            )
        if {dim for a in sizes for dim in a} & {dim for array in found.values() for dim in array.dims}:
            raise InputError(
                "two factors share a dimension; request all places at all times, and select from the result."
            )
        points.append(scaling.to_points(here))
        found |= {name: array.reset_coords(drop=True) for name, array in here.items()}
    return points, found


def known_coords(layout: Layout, coords: Any) -> dict[str, Any]:
    """The requested coordinates that locate points of the field, by name."""
    known = {name for factor in layout.factors for name in (*factor.dims, *factor.coords)}
    names = ", ".join(sorted(known))
    if isinstance(coords, (xr.Dataset, xr.DataArray)):
        given = {str(name): array for name, array in coords.coords.items() if name in known}
        if not given:
            raise InputError(
                f"the xarray object has none of the field's coordinates ({names}); rename its own to match."
            )
        return given
    if not isinstance(coords, Mapping):
        raise InputError("give the coordinates as a dictionary such as {'time': [...]}, or as an xarray object.")
    for name in coords:
        if str(name) not in known:
            raise InputError(f"the field has no coordinate {str(name)!r}; it has {names}.")
    return {str(name): values for name, values in coords.items()}


def select_labels(field: xr.DataArray, factor: Factor, given: Mapping[str, Any]) -> xr.DataArray:
    """The field at the points of a factor with the requested labels, such as station names; all points by default."""
    labels = {dim: np.atleast_1d(given[dim]) for dim in factor.dims if dim in given and dim not in factor.coords}
    try:
        return field.sel(labels)
    except KeyError as error:
        raise InputError(
            f"{', '.join(labels)} has no label {error}; name points of the field, or give {', '.join(factor.coords)}."
        ) from None


def read_coord(field: xr.DataArray, values: Any, scaling: CoordinateScaling, name: str) -> xr.DataArray:
    """A requested coordinate: text becomes dates where dates are needed, and a single value a list of one."""
    array = values if isinstance(values, xr.DataArray) else xr.DataArray(values)
    if array.ndim > 1 and not isinstance(values, xr.DataArray):
        raise InputError(
            f"the coordinate {name} has {array.ndim} dimensions; give a list, or a DataArray with named dimensions."
        )
    if array.ndim == 0 or not isinstance(values, xr.DataArray):
        array = xr.DataArray(np.atleast_1d(array.values), dims=field[name].dims[:1], attrs=array.attrs)
    if scaling.calendar not in ("", PLAIN_NUMBERS) and array.size and isinstance(array.values.flat[0], str):
        array = array.copy(data=parse_dates(array.values.ravel(), scaling.calendar, name).reshape(array.shape))
    # Numbers without units are in those of the field.
    return array.assign_attrs({**field[name].attrs, **array.attrs})


def parse_dates(texts: np.ndarray, calendar: str, name: str) -> np.ndarray:
    """Dates in a calendar from text such as 2019-03-01T06, (n,)."""
    try:
        if calendar == STANDARD_CALENDAR:
            return pd.to_datetime(list(texts)).to_numpy()
        return np.array([xr.date_range(text, periods=1, calendar=calendar, use_cftime=True)[0] for text in texts])
    except ValueError as error:
        raise InputError(f"{name}: {error}; give dates such as 2019-03-01 or 2019-03-01T06.") from None
