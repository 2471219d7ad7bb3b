"""Which coordinates of a field are latitude, longitude, x, y, height and time, by CF attributes or by their names."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import cf_xarray  # noqa: F401  (registers the accessor `.cf`)

import xarray as xr


@dataclass(frozen=True)
class CFCoordinates:
    """The names of a field's coordinates by their CF role; None where the field has no such coordinate."""

    latitude: str | None
    longitude: str | None
    height: str | None
    time: str | None
    x: str | None = None
    y: str | None = None

    @classmethod
    def of(cls, field: xr.DataArray) -> "CFCoordinates":
        guessed: Any = field.cf.guess_coord_axis().cf
        axes, coordinates = guessed.axes, guessed.coordinates  # which are found anew each time

        def first(names: Sequence[Any]) -> str | None:
            return next((str(name) for name in names if name in field.coords and field.coords[name].ndim), None)

        # A forecast has several times. Time is the one that is a dimension; dates come before plain numbers.
        times = [name for name in axes.get("T", []) + coordinates.get("time", []) if name in field.dims]
        times = [str(dim) for dim in field.dims if dim in field.coords and is_date(field.coords[dim])] + times
        lat, lon = (first(coordinates.get(name, [])) for name in ("latitude", "longitude"))

        def along(axis: str) -> str | None:
            names = axes.get(axis, [])
            return first([name for name in names if name not in (lat, lon, *times) and is_number(field.coords[name])])

        return cls(lat, lon, first(coordinates.get("vertical", [])), first(times), along("X"), along("Y"))

    def with_time(self, dim: str) -> "CFCoordinates":
        """The same with another time dimension."""
        return replace(self, time=dim)


def is_date(coord: xr.DataArray) -> bool:
    """Whether a coordinate holds dates: datetime64 of any resolution, or cftime objects."""
    if coord.dtype.kind == "M":
        return True
    return coord.dtype == object and coord.size > 0 and hasattr(coord.values.flat[0], "calendar")


def is_number(coord: xr.DataArray) -> bool:
    """Whether a coordinate holds numbers; durations count as numbers."""
    return coord.dtype.kind in "fium"
