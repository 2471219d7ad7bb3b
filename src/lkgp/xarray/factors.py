"""Which dimensions of a field form which factor of the grid, and what kind of points each factor has.

A factor is one dimension, or the product of several: latitude and longitude together form one factor over places.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import xarray as xr
from lkgp.errors import InputError
from lkgp.xarray.cf_coordinates import CFCoordinates, is_date, is_number

Kind = Literal["sphere", "map", "plane", "longitude", "time", "number", "category"]
Dims = str | Sequence[str]

# Two columns without the names of map coordinates share a length scale only if their extents differ by less than this
# factor: a section of the sea may have metres along both axes, but is a thousand times as long as deep.
MOST_UNEQUAL = 10.0

KIND_NAMES: dict[Kind, str] = {
    "sphere": "places on the sphere",
    "map": "places on a map, with the same scale in all directions",
    "plane": "places in a plane, with a scale for each direction",
    "longitude": "a circle of longitude",
    "time": "time",
    "number": "numbers",
    "category": "categories",
}


@dataclass(frozen=True)
class Factor:
    """One factor of the grid.

    dims: the dimensions of the field whose product it is
    kind: what its points are: places on the "sphere", on a "map" with the same scale in all directions, or in a "plane"
        with a scale for each; "longitude" on a circle, "time", "number" or "category"
    coords: the names of the coordinates that locate its points; for a sphere latitude, longitude and possibly height
    """

    dims: tuple[str, ...]
    kind: Kind
    coords: tuple[str, ...]

    @property
    def name(self) -> str:
        return " x ".join(self.dims)

    def __str__(self) -> str:
        height = f" with {self.coords[2]}" if self.kind == "sphere" and len(self.coords) == 3 else ""
        return f"{self.name} ({KIND_NAMES[self.kind]}{height})"


def choose_factors(
    field: xr.DataArray, *, space: Dims | None = None, time: str | None = None, factors: Sequence[Dims] | None = None
) -> tuple[list[Factor], list[str]]:
    """The factors of a field, and notes about the choices made automatically.

    space: the dimensions of one factor over places; by default found from CF attributes and names
    time: the dimension of time; by default found likewise
    factors: the dimensions of every factor, instead of `space` and `time`
    """
    if not field.dims:
        raise InputError("the field has no dimensions; it needs at least one.")
    coordinates = CFCoordinates.of(field)
    if factors is not None:
        if space is not None or time is not None:
            raise InputError("give either `factors` or `space` and `time`, not both.")
        groups = [as_dims(field, dims, "factors") for dims in factors]
        check_partition(field, groups)
        return [make_factor(field, dims, coordinates) for dims in groups], []
    notes: list[str] = []
    if time is not None:
        time_dims = as_dims(field, time, "time")
        if len(time_dims) != 1:
            raise InputError(f"time must be a single dimension, not {', '.join(time_dims)}.")
        coordinates = coordinates.with_time(time_dims[0])
    groups = [as_dims(field, space, "space")] if space is not None else guess_space(field, coordinates, notes)
    taken = {dim for dims in groups for dim in dims}
    if coordinates.time in taken:
        raise InputError(f"{coordinates.time!r} is the time dimension, so it cannot be part of space.")
    rest = [(str(dim),) for dim in field.dims if dim not in taken and dim != coordinates.time]
    last = [(coordinates.time,)] if coordinates.time is not None else []
    return [make_factor(field, dims, coordinates) for dims in (*groups, *rest, *last)], notes


def as_dims(field: xr.DataArray, dims: Dims, argument: str) -> tuple[str, ...]:
    """Dimensions as a tuple of names, all of them dimensions of the field; argument: where they were given."""
    names = (dims,) if isinstance(dims, str) else tuple(dims)
    for name in names:
        if name not in field.dims:
            have = ", ".join(map(str, field.dims))
            raise InputError(f"`{argument}` names the dimension {name!r}, but the field has {have}.")
    return names


def check_partition(field: xr.DataArray, groups: list[tuple[str, ...]]) -> None:
    """Refuse factors that leave out a dimension or name it twice."""
    named = [dim for dims in groups for dim in dims]
    for dim in field.dims:
        if named.count(str(dim)) != 1:
            problem = "appears more than once" if str(dim) in named else "is missing"
            raise InputError(f"`factors` must name every dimension exactly once; {dim!r} {problem}.")


def guess_space(field: xr.DataArray, coordinates: CFCoordinates, notes: list[str]) -> list[tuple[str, ...]]:
    """The dimensions of latitude and longitude, or of x and y, as one factor; or both dimensions of a plain map."""
    lat, lon, x, y = coordinates.latitude, coordinates.longitude, coordinates.x, coordinates.y
    for first, second in ((lat, lon), (x, y)):
        if first is None or second is None:
            continue
        spanned = {*field[first].dims, *field[second].dims}
        dims = tuple(str(dim) for dim in field.dims if dim in spanned)
        if dims and coordinates.time not in dims:
            if (first, second) == (x, y):
                notes.append(f"{x} and {y} form one factor over places; give `factors` to separate them")
            return [dims]
    dims = tuple(str(dim) for dim in field.dims)
    plain = len(dims) == 2 and all(dim in field.coords and is_number(field[dim]) for dim in dims)
    named = {lat, lon, coordinates.time, coordinates.height} & set(dims)
    if plain and not named and len({units_of(field, dim) for dim in dims}) == 1:
        notes.append(f"{' and '.join(dims)} form one factor over places; give `factors` to separate them")
        return [dims]
    return []


def units_of(field: xr.DataArray, name: str) -> str:
    """The units of a coordinate, empty if it has none."""
    return str(field[name].attrs.get("units", "")).strip()


def is_map(field: xr.DataArray, names: Sequence[str], coordinates: CFCoordinates) -> bool:
    """Whether a distance means the same in the directions of all these coordinates of numbers.

    The coordinates of a map do if their units agree; others only if they have units and similar extents.
    """
    units = {units_of(field, name) for name in names}
    if len(units) > 1 or coordinates.height in names:
        return False
    if set(names) == {coordinates.x, coordinates.y}:
        return True
    extents = [float(field[name].max() - field[name].min()) for name in names if field[name].dtype.kind in "fiu"]
    comparable = len(extents) == len(names) and max(extents) < MOST_UNEQUAL * min(extents)
    return units != {""} and comparable


def make_factor(field: xr.DataArray, dims: tuple[str, ...], coordinates: CFCoordinates) -> Factor:
    """The factor over some dimensions, with the kind of its points."""

    def inside(name: str | None) -> bool:
        return name is not None and set(field[name].dims) <= set(dims)

    lat, lon, height = coordinates.latitude, coordinates.longitude, coordinates.height
    if lat is not None and lon is not None and inside(lat) and inside(lon):
        unrelated = [dim for dim in dims if dim not in {*field[lat].dims, *field[lon].dims}]
        if unrelated:
            raise InputError(
                f"{unrelated[0]!r} must be a factor of its own because {lat} and {lon} do not vary along it."
            )
        # The height of stations belongs to their places; levels are a dimension and so a factor of their own.
        extra = (height,) if height is not None and inside(height) and height not in field.dims else ()
        return Factor(dims, "sphere", (lat, lon, *extra))
    x, y = coordinates.x, coordinates.y
    if x is not None and y is not None and inside(x) and inside(y) and not {x, y} <= set(dims):
        # Stations, or a curved grid: x and y are coordinates along other dimensions.
        return Factor(dims, "map" if is_map(field, (y, x), coordinates) else "plane", (y, x))
    for dim in dims:
        if dim not in field.coords:
            raise InputError(
                f"the dimension {dim!r} has no coordinates, so lkgp cannot compute distances along it; assign some, "
                f"for example field.assign_coords({dim}=np.arange({field.sizes[dim]}))."
            )
    if len(dims) > 1:
        for dim in dims:
            if not is_number(field[dim]):
                others = ", ".join(other for other in dims if other != dim)
                raise InputError(
                    f"the coordinates of {dim!r} are not numbers, so {dim!r} cannot form one factor with {others}."
                )
        return Factor(dims, "map" if is_map(field, dims, coordinates) else "plane", dims)
    (dim,) = dims
    if is_date(field[dim]) or (dim == coordinates.time and is_number(field[dim])):
        return Factor(dims, "time", dims)
    if not is_number(field[dim]):
        return Factor(dims, "category", dims)
    return Factor(dims, "longitude" if dim == lon else "number", dims)
