"""From the coordinates of a factor to numbers that a kernel understands, and the units in which its lengths are told.

Places on the sphere become points in space, so that neither the poles nor the dateline is an edge; longitudes alone become points of a
circle; dates become days; categories become points that are all equally far apart.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import cftime
import numpy as np

import xarray as xr
from lkgp.errors import InputError
from lkgp.xarray.factors import Factor, is_time

EARTH_KM = 6371.0
# What CF calls radians, and how far, in degrees, places at a pole are moved from it: about 10 cm, so that they stay places of their own.
RADIANS = ("rad", "radian", "radians")
OFF_THE_POLE = 1e-6
# The calendar of datetime64, as CF calls it, and that of times which are plain numbers.
STANDARD, NUMBERS = "proleptic_gregorian", "numbers"
MICROSECONDS_A_DAY = 86_400e6


@dataclass(frozen=True)
class Ruler:
    """How the points of a factor are measured; the same for the points that were fitted and for all others.

    shift, scale: of each column, (d,): columns are (number - shift) / scale
    origin, calendar: of days, for time
    categories: in their order
    """

    factor: Factor
    shift: tuple[float, ...]
    scale: tuple[float, ...]
    origin: str = ""
    calendar: str = ""
    categories: tuple[str, ...] = ()

    @classmethod
    def of(cls, factor: Factor, coords: Mapping[Any, xr.DataArray], kept: np.ndarray | None = None) -> "Ruler":
        """A ruler for these points, or those that are kept: it begins in their middle, and its unit is how far they spread."""
        origin = calendar = ""
        categories: tuple[str, ...] = ()
        if factor.kind == "time":
            times = coords[factor.coords[0]]
            first = times.values.flat[0]
            calendar = getattr(first, "calendar", STANDARD) if is_time(times) else NUMBERS
            origin = first.isoformat() if hasattr(first, "calendar") else str(first)
        if factor.kind == "category":
            names = flat(factor, coords)[0].astype(str)
            categories = tuple(dict.fromkeys(names.tolist()))
        unscaled = cls(factor, (0.0,), (1.0,), origin, calendar, categories)
        columns = unscaled.measure(coords, kept)
        if factor.kind == "category":
            return unscaled
        shift, spread = columns.mean(axis=0), columns.std(axis=0)
        if factor.kind in ("sphere", "longitude"):
            # The columns of a place have one unit: a kilometre is as long in every direction.
            together = slice(0, 3 if factor.kind == "sphere" else 2)
            spread[together] = np.sqrt(np.square(spread[together]).mean())
        spread[spread == 0] = 1.0
        return cls(factor, tuple(shift.tolist()), tuple(spread.tolist()), origin, calendar, categories)

    @property
    def units(self) -> tuple[str, ...]:
        """Of each column."""
        if self.factor.kind == "sphere":
            return ("km", "km", "km", "m")[: len(self.scale)]
        times = self.factor.coords if self.calendar == NUMBERS else ("days",)
        return {"time": times, "longitude": ("degrees",) * 2, "category": ("",) * len(self.scale)}.get(
            self.factor.kind, self.factor.coords
        )

    def measure(self, coords: Mapping[Any, xr.DataArray], kept: np.ndarray | None = None) -> np.ndarray:
        """The points at these coordinates, or those of them that are kept, (n, d)."""
        factor = self.factor
        arrays = [array if kept is None else array[kept] for array in flat(factor, coords)]
        if factor.kind == "time":
            columns = [self.days(arrays[0])]
        elif factor.kind == "category":
            return self.one_hot(arrays[0])
        else:
            numbers = [finite(array, name) for array, name in zip(arrays, factor.coords, strict=True)]
            if factor.kind == "sphere":
                columns = [*on_sphere(*numbers[:2]), *numbers[2:]]
            elif factor.kind == "longitude":
                angle = np.deg2rad(numbers[0])
                columns = [np.rad2deg(np.cos(angle)), np.rad2deg(np.sin(angle))]
            else:
                columns = numbers
        return (np.stack(columns, axis=1) - np.array(self.shift)) / np.array(self.scale)

    def days(self, dates: np.ndarray) -> np.ndarray:
        """Days since the origin, or the times themselves where they are numbers, (n,)."""
        (name,) = self.factor.coords
        if self.calendar == NUMBERS:
            return finite(dates, name)
        if not is_time(xr.DataArray(dates)):
            raise InputError(f"{name} holds {dates.dtype} where dates are needed; decode them, or give dates.")
        if dates.dtype.kind == "M":
            if np.isnat(dates).any():
                raise InputError(
                    f"{name} is not a date (NaT) at position {int(np.flatnonzero(np.isnat(dates))[0])}; drop it or mend it."
                )
            if self.calendar != STANDARD:
                raise InputError(
                    f"{name} has dates of datetime64, but the model was fitted to dates of the calendar {self.calendar!r}."
                )
            return (dates - np.datetime64(self.origin).astype(dates.dtype)) / np.timedelta64(1, "D")
        calendars = {date.calendar for date in dates}
        if calendars != {self.calendar}:
            raise InputError(
                f"{name} has dates of the calendars {', '.join(sorted(calendars))}; the model needs {self.calendar!r}."
            )
        since = cftime.date2num(dates, f"microseconds since {self.origin.replace('T', ' ')}", calendar=self.calendar)
        return np.asarray(since, dtype=float) / MICROSECONDS_A_DAY

    def one_hot(self, names: np.ndarray) -> np.ndarray:
        """A column a category, (n, c); any two different ones are one apart. One that is new is as far from all others."""
        known = {name: i for i, name in enumerate(self.categories)}
        new = [str(name) for name in names if str(name) not in known]
        if new:
            raise InputError(f"{self.factor.coords[0]} has {new[0]!r}, which was not there when the model was fitted.")
        columns = np.zeros((len(names), len(known)))
        columns[np.arange(len(names)), [known[str(name)] for name in names]] = np.sqrt(0.5)
        return columns


def sizes_of(factor: Factor, coords: Mapping[Any, xr.DataArray]) -> dict[str, int]:
    """The dimensions that the coordinates of a factor span: its own, in its order, or others where places are listed."""
    found = {str(dim): size for name in factor.coords for dim, size in coords[name].sizes.items()}
    own = [dim for dim in factor.dims if dim in found]
    return {dim: found[dim] for dim in [*own, *(dim for dim in found if dim not in own)]}


def flat(factor: Factor, coords: Mapping[Any, xr.DataArray]) -> list[np.ndarray]:
    """The coordinates of a factor over the product of the dimensions they span, in C order, each (n,); those on the earth in degrees."""
    sizes = sizes_of(factor, coords)
    on_earth = factor.kind in ("sphere", "longitude")
    own = [in_degrees(coords[name]) if on_earth else coords[name] for name in factor.coords]
    return [coord.variable.set_dims(sizes).transpose(*sizes).values.ravel() for coord in own]


def in_radians(coord: xr.DataArray) -> bool:
    """Whether the units of a coordinate are radians, as those of ICON are."""
    return str(coord.attrs.get("units", "")).strip().lower() in RADIANS


def in_degrees(coord: xr.DataArray) -> xr.DataArray:
    """A coordinate as it is, or in degrees where it is in radians."""
    if not in_radians(coord):
        return coord
    return xr.DataArray(np.rad2deg(coord.values), dims=coord.dims, attrs={**coord.attrs, "units": "degrees"})


def finite(array: np.ndarray, name: str) -> np.ndarray:
    if array.dtype.kind == "m":  # lengths of time, in days
        array = array / np.timedelta64(1, "D")
    if array.dtype.kind not in "fiub":
        raise InputError(f"the coordinate {name} holds {array.dtype} where numbers are needed.")
    numbers = array.astype(float)
    bad = np.flatnonzero(~np.isfinite(numbers))
    if len(bad):
        raise InputError(
            f"the coordinate {name} is {numbers[bad[0]]} at position {bad[0]}; mend it, or drop that point."
        )
    return numbers


def on_sphere(latitude: np.ndarray, longitude: np.ndarray) -> list[np.ndarray]:
    """Points in space, in kilometres from the centre of the earth, three columns (n,)."""
    if (np.abs(latitude) > 90.0 + 1e-5).any():
        raise InputError(
            f"a latitude of {latitude[np.abs(latitude) > 90.0][0]:g} degrees is not on the earth; give degrees from -90 to 90."
        )
    lat, lon = np.deg2rad(np.clip(latitude, OFF_THE_POLE - 90.0, 90.0 - OFF_THE_POLE)), np.deg2rad(longitude)
    return [EARTH_KM * np.cos(lat) * np.cos(lon), EARTH_KM * np.cos(lat) * np.sin(lon), EARTH_KM * np.sin(lat)]


def unwrapped(longitude: np.ndarray) -> np.ndarray:
    """Longitudes without a jump: the widest stretch without any place is put at the edges of the map."""
    circle = np.sort(np.unique(np.mod(longitude, 360.0)))
    gaps = np.diff(circle, append=circle[0] + 360.0)
    widest = np.flatnonzero(gaps > gaps.max() - 1e-9)[-1]
    start = circle[(widest + 1) % len(circle)]
    turned = start + np.mod(np.mod(longitude, 360.0) - start, 360.0)
    return turned - 360.0 if turned.mean() > 180.0 else turned
