"""Which dimensions of a field form which factor of the grid, and what their coordinates mean.

A factor is one dimension, or several whose product is taken as one: latitude and longitude are one factor over places.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import cf_xarray  # noqa: F401  (registers the accessor `.cf`)
import numpy as np

import xarray as xr
from lkgp.errors import InputError

Kind = Literal["sphere", "plane", "longitude", "time", "number", "category"]

# Places with data, at the most, for a factor over both latitude and longitude; with more, each is a factor of its own.
MOST_PLACES = 6000


@dataclass(frozen=True)
class Factor:
    """One factor.

    dims: of the field, whose product it is
    kind: what its points are: places on the "sphere" or in a "plane", a circle of "longitude", "time", a "number" or a "category"
    coords: the names of the coordinates that tell where its points are; of a sphere latitude, longitude, and perhaps height
    """

    dims: tuple[str, ...]
    kind: Kind
    coords: tuple[str, ...]

    @property
    def name(self) -> str:
        return " x ".join(self.dims)

    def __str__(self) -> str:
        meaning = {
            "sphere": "places on the sphere",
            "plane": "places in a plane",
            "longitude": "a circle of longitude",
            "time": "time",
            "number": "numbers",
            "category": "categories",
        }[self.kind]
        height = f" with {self.coords[2]}" if self.kind == "sphere" and len(self.coords) == 3 else ""
        return f"{self.name} ({meaning}{height})"


Dims = str | Sequence[str]


def choose_factors(
    field: xr.DataArray, *, space: Dims | None = None, time: str | None = None, factors: Sequence[Dims] | None = None
) -> tuple[list[Factor], list[str]]:
    """The factors of a field, as given or guessed, and notes about what was guessed.

    space: dimensions of one factor over places; time: the dimension of time; what is not given is found from CF attributes and names
    factors: instead of both, the dimensions of every factor
    """
    if not field.dims:
        raise InputError("the field has no dimensions; give a field over at least one.")
    meanings = Meanings.of(field)
    if factors is not None:
        if space is not None or time is not None:
            raise InputError("give either `factors`, or `space` and `time`, not both.")
        groups = [as_dims(field, dims, "factors") for dims in factors]
        check_partition(field, groups)
        return [describe(field, dims, meanings) for dims in groups], []
    notes: list[str] = []
    groups = [as_dims(field, space, "space")] if space is not None else guess_space(field, meanings, notes)
    if time is not None:
        meanings = meanings.with_time(as_dims(field, time, "time"))
    taken = {dim for dims in groups for dim in dims}
    if meanings.time in taken:
        raise InputError(f"{meanings.time!r} is time, and cannot be a part of space, too.")
    rest = [(str(dim),) for dim in field.dims if dim not in taken and dim != meanings.time]
    last = [(meanings.time,)] if meanings.time is not None else []
    return [describe(field, dims, meanings) for dims in (*groups, *rest, *last)], notes


@dataclass(frozen=True)
class Meanings:
    """What CF conventions, or names, say of the coordinates of a field: their names, None where there is no such coordinate."""

    latitude: str | None
    longitude: str | None
    height: str | None
    time: str | None

    @classmethod
    def of(cls, field: xr.DataArray) -> "Meanings":
        guessed: Any = field.cf.guess_coord_axis().cf

        def first(names: Sequence[Any]) -> str | None:
            return next((str(name) for name in names if name in field.coords and field.coords[name].ndim), None)

        # Time is a dimension, whatever a file calls it, of dates or of numbers: a forecast has several times.
        times = [name for name in guessed.axes.get("T", []) + guessed.coordinates.get("time", []) if name in field.dims]
        times = [str(dim) for dim in field.dims if dim in field.coords and is_time(field.coords[dim])] + times
        return cls(
            first(guessed.coordinates.get("latitude", [])),
            first(guessed.coordinates.get("longitude", [])),
            first(guessed.coordinates.get("vertical", [])),
            first(times),
        )

    def with_time(self, dims: tuple[str, ...]) -> "Meanings":
        if len(dims) != 1:
            raise InputError(f"time must be one dimension, not {', '.join(dims)}.")
        return Meanings(self.latitude, self.longitude, self.height, dims[0])


def is_time(coord: xr.DataArray) -> bool:
    """Whether a coordinate holds dates: datetime64 of any resolution, or those of cftime."""
    if coord.dtype.kind == "M":
        return True
    return coord.dtype == object and coord.size > 0 and hasattr(coord.values.flat[0], "calendar")


def as_dims(field: xr.DataArray, dims: Dims, word: str) -> tuple[str, ...]:
    names = (dims,) if isinstance(dims, str) else tuple(dims)
    for name in names:
        if name not in field.dims:
            raise InputError(f"{word} names the dimension {name!r}; the field has {', '.join(map(str, field.dims))}.")
    return names


def check_partition(field: xr.DataArray, groups: list[tuple[str, ...]]) -> None:
    named = [dim for dims in groups for dim in dims]
    for dim in field.dims:
        if named.count(str(dim)) != 1:
            times = "more than once" if str(dim) in named else "nowhere"
            raise InputError(f"`factors` must name every dimension once; {dim!r} is there {times}.")


def guess_space(field: xr.DataArray, meanings: Meanings, notes: list[str]) -> list[tuple[str, ...]]:
    """The dimensions of latitude and longitude as one factor, or as two where there are too many places."""
    if meanings.latitude is None or meanings.longitude is None:
        return []
    dims = tuple(
        str(dim) for dim in field.dims if dim in {*field[meanings.latitude].dims, *field[meanings.longitude].dims}
    )
    if not dims or meanings.time in dims:
        return []
    places = int(np.prod([field.sizes[dim] for dim in dims]))
    if len(dims) > 1 and places > MOST_PLACES:
        seen = int(field.notnull().any([dim for dim in field.dims if dim not in dims]).sum())
        if seen > MOST_PLACES:
            if field[meanings.latitude].ndim > 1:
                raise InputError(
                    f"there are {seen} places on a grid that is not one of latitude and longitude; lkgp takes {MOST_PLACES} at the most, "
                    "so thin them out, or fill one region at a time."
                )
            notes.append(f"{' and '.join(dims)} are two factors, because {seen} places are too many for one")
            return [(dim,) for dim in dims]
    return [dims]


def describe(field: xr.DataArray, dims: tuple[str, ...], meanings: Meanings) -> Factor:
    """What the points along some dimensions are."""

    def inside(name: str | None) -> bool:
        return name is not None and set(field[name].dims) <= set(dims)

    lat, lon, height = meanings.latitude, meanings.longitude, meanings.height
    if lat is not None and lon is not None and inside(lat) and inside(lon):
        alone = [dim for dim in dims if dim not in {*field[lat].dims, *field[lon].dims}]
        if alone:
            raise InputError(f"{alone[0]!r} must be a factor of its own; {lat} and {lon} do not vary along it.")
        # The height of stations; levels are a dimension of their own.
        extra = (height,) if height is not None and inside(height) and height not in field.dims else ()
        return Factor(dims, "sphere", (lat, lon, *extra))
    for dim in dims:
        if dim not in field.coords:
            raise InputError(
                f"the dimension {dim!r} has no coordinates, so lkgp cannot know what is near what; assign them, for example "
                f"field.assign_coords({dim}=np.arange({field.sizes[dim]}))."
            )
    if len(dims) > 1:
        texts = [dim for dim in dims if not is_number(field[dim])]
        if texts:
            raise InputError(
                f"the coordinates of {texts[0]!r} are not numbers, so they cannot form one factor with {', '.join(dims)}."
            )
        return Factor(dims, "plane", dims)
    (dim,) = dims
    if is_time(field[dim]) or (dim == meanings.time and is_number(field[dim])):
        return Factor(dims, "time", dims)
    if not is_number(field[dim]):
        return Factor(dims, "category", dims)
    return Factor(dims, "longitude" if dim == lon else "number", dims)


def is_number(coord: xr.DataArray) -> bool:
    """Whether a coordinate is a quantity; lengths of time are, too."""
    return coord.dtype.kind in "fium"
