"""From the coordinates of a factor to the numbers that its kernel sees, and the units of those numbers.

Places on the sphere become points in space, so that neither the poles nor the date line is an edge; longitudes alone
become points on a circle; dates become days; categories become points that are all equally far apart.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import cftime
import numpy as np

import xarray as xr
from lkgp.errors import InputError
from lkgp.xarray.cf_coordinates import is_date
from lkgp.xarray.factors import Factor
from lkgp.xarray.geography import in_degrees, on_circle, on_sphere

# The CF name of the calendar of datetime64, and the name used here for times that are plain numbers. Both are stored in
# model files.
STANDARD_CALENDAR, PLAIN_NUMBERS = "proleptic_gregorian", "numbers"
MICROSECONDS_PER_DAY = 86_400e6


@dataclass(frozen=True)
class CoordinateScaling:
    """How the coordinates of one factor become points; the same for the fitted points and for new ones.

    factor: the factor
    shift, scale: of each column, (d,); a column is (number - shift) / scale
    origin, calendar: of the days, for time
    categories: the known ones in order, for a category
    """

    factor: Factor
    shift: tuple[float, ...]
    scale: tuple[float, ...]
    origin: str = ""
    calendar: str = ""
    categories: tuple[str, ...] = ()

    @classmethod
    def of(
        cls,
        factor: Factor,
        coords: Mapping[Any, xr.DataArray],
        selected: np.ndarray | None = None,
        observed: np.ndarray | None = None,
    ) -> "CoordinateScaling":
        """To mean zero and unit spread over the points with observations.

        selected: the points of the grid, boolean (n,); all by default
        observed: the points with observations, boolean (n,); all by default. If they have no spread, that of all points
            of the grid is the scale.
        """
        origin = calendar = ""
        categories: tuple[str, ...] = ()
        if factor.kind == "time":
            times = coords[factor.coords[0]]
            first = times.values.flat[0]
            calendar = getattr(first, "calendar", STANDARD_CALENDAR) if is_date(times) else PLAIN_NUMBERS
            origin = first.isoformat() if hasattr(first, "calendar") else str(first)
        if factor.kind == "category":
            names = flatten_coords(factor, coords)[0].astype(str)
            categories = tuple(dict.fromkeys(names.tolist()))
        unscaled = cls(factor, (0.0,), (1.0,), origin, calendar, categories)
        columns = unscaled.to_points(coords, selected)
        if factor.kind == "category":
            return unscaled
        seen = columns
        if observed is not None and observed.any():
            seen = columns[observed if selected is None else observed[selected]]
        shift, spread = seen.mean(axis=0), spread_of(factor, seen)
        spread = np.where(spread == 0, spread_of(factor, columns), spread)
        spread[spread == 0] = 1.0
        return cls(factor, tuple(shift.tolist()), tuple(spread.tolist()), origin, calendar, categories)

    @property
    def units(self) -> tuple[str, ...]:
        """The unit of each column before scaling, (d,)."""
        if self.factor.kind == "sphere":
            return ("km", "km", "km", "m")[: len(self.scale)]
        times = self.factor.coords if self.calendar == PLAIN_NUMBERS else ("days",)
        together = (" and ".join(self.factor.coords),) * len(self.scale)
        known = {"time": times, "map": together, "longitude": ("degrees",) * 2, "category": ("",) * len(self.scale)}
        return known.get(self.factor.kind, self.factor.coords)

    def to_points(self, coords: Mapping[Any, xr.DataArray], selected: np.ndarray | None = None) -> np.ndarray:
        """The points at these coordinates, or the selected ones of them, (n, d)."""
        factor = self.factor
        arrays = [array if selected is None else array[selected] for array in flatten_coords(factor, coords)]
        if factor.kind == "time":
            columns = [self.days(arrays[0])]
        elif factor.kind == "category":
            return self.one_hot(arrays[0])
        else:
            numbers = [finite_numbers(array, name) for array, name in zip(arrays, factor.coords, strict=True)]
            if factor.kind == "sphere":
                columns = [*on_sphere(*numbers[:2]), *numbers[2:]]
            elif factor.kind == "longitude":
                columns = on_circle(numbers[0])
            else:
                columns = numbers
        return (np.stack(columns, axis=1) - np.array(self.shift)) / np.array(self.scale)

    def days(self, dates: np.ndarray) -> np.ndarray:
        """Days since the origin, or the times themselves if they are plain numbers, (n,)."""
        (name,) = self.factor.coords
        if self.calendar == PLAIN_NUMBERS:
            return finite_numbers(dates, name)
        if not is_date(xr.DataArray(dates)):
            raise InputError(f"{name} holds {dates.dtype} values where dates are needed; give dates, or decode them.")
        if dates.dtype.kind == "M":
            if np.isnat(dates).any():
                position = int(np.flatnonzero(np.isnat(dates))[0])
                raise InputError(f"{name} is NaT at position {position}; drop that point or give it a date.")
            if self.calendar != STANDARD_CALENDAR:
                raise InputError(
                    f"{name} holds datetime64 dates, but the model was fitted to dates in the calendar "
                    f"{self.calendar!r}; give cftime dates in that calendar."
                )
            return (dates - np.datetime64(self.origin).astype(dates.dtype)) / np.timedelta64(1, "D")
        calendars = {date.calendar for date in dates}
        if calendars != {self.calendar}:
            found = " and ".join(sorted(calendars))
            raise InputError(
                f"{name} holds dates in the calendar {found}, but the model was fitted to dates in the calendar "
                f"{self.calendar!r}; convert them first."
            )
        since = cftime.date2num(dates, f"microseconds since {self.origin.replace('T', ' ')}", calendar=self.calendar)
        return np.asarray(since, dtype=float) / MICROSECONDS_PER_DAY

    def one_hot(self, names: np.ndarray) -> np.ndarray:
        """One column per category, (n, c), with entries sqrt(1/2), so that any two categories are at distance one."""
        known = {name: i for i, name in enumerate(self.categories)}
        new = [str(name) for name in names if str(name) not in known]
        if new:
            raise InputError(
                f"{self.factor.coords[0]} has the category {new[0]!r}, which was not in the fitted data; the known "
                f"categories are {', '.join(self.categories)}."
            )
        columns = np.zeros((len(names), len(known)))
        columns[np.arange(len(names)), [known[str(name)] for name in names]] = np.sqrt(0.5)
        return columns


def spread_of(factor: Factor, columns: np.ndarray) -> np.ndarray:
    """The standard deviation of every column of the points of a factor (n, d), (d,)."""
    spread = columns.std(axis=0)
    if factor.kind in ("sphere", "map", "longitude"):
        # One scale for all columns of a place, so that a kilometre is equally long in every direction.
        together = slice(0, {"sphere": 3, "longitude": 2}.get(factor.kind))
        spread[together] = np.sqrt(np.square(spread[together]).mean())
    return spread


def spanned_sizes(factor: Factor, coords: Mapping[Any, xr.DataArray]) -> dict[str, int]:
    """The sizes of the dimensions that a factor's coordinates span.

    These are the factor's own dimensions in their order, or others where places are given as a list.
    """
    found = {str(dim): size for name in factor.coords for dim, size in coords[name].sizes.items()}
    own = [dim for dim in factor.dims if dim in found]
    return {dim: found[dim] for dim in [*own, *(dim for dim in found if dim not in own)]}


def flatten_coords(factor: Factor, coords: Mapping[Any, xr.DataArray]) -> list[np.ndarray]:
    """The coordinates of a factor over the product of the dimensions they span, in C order, each (n,).

    Latitudes and longitudes are in degrees.
    """
    sizes = spanned_sizes(factor, coords)
    on_earth = factor.kind in ("sphere", "longitude")
    own = [in_degrees(coords[name]) if on_earth else coords[name] for name in factor.coords]
    return [coord.variable.set_dims(sizes).transpose(*sizes).values.ravel() for coord in own]


def finite_numbers(array: np.ndarray, name: str) -> np.ndarray:
    """The values of the coordinate `name` as floating-point numbers, (n,); durations in days."""
    if array.dtype.kind == "m":
        array = array / np.timedelta64(1, "D")
    if array.dtype.kind not in "fiub":
        raise InputError(f"the coordinate {name} holds {array.dtype} values where numbers are needed.")
    numbers = array.astype(float)
    bad = np.flatnonzero(~np.isfinite(numbers))
    if len(bad):
        raise InputError(
            f"the coordinate {name} is {numbers[bad[0]]} at position {bad[0]}; correct it or drop that point."
        )
    return numbers
