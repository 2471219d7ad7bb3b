"""A labelled field as a grid of factors, and back."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import pandas as pd
import torch

import xarray as xr
from lkgp.data.grid import first_repeat
from lkgp.errors import InputError
from lkgp.gp import LKGP
from lkgp.xarray.factors import Factor
from lkgp.xarray.points import NUMBERS, STANDARD, Ruler, flat, sizes_of

# What a fill value that nobody decoded looks like: it repeats, and lies so many times as far out as the rest of the data spread.
FAR_OUT = 2.0
# Points that agree to so many decimals, in units of their spread, are one: 0 and 360 degrees east are.
SAME_DECIMALS = 12


@dataclass(frozen=True, eq=False)
class Layout:
    """How a field lies on a grid of factors.

    field: with its labels; its values are not looked at, and may be gone
    rulers: one a factor
    kept: which points of each factor are points of the grid, (n_k,); places where nothing was ever observed are not
    """

    field: xr.DataArray
    rulers: tuple[Ruler, ...]
    kept: tuple[np.ndarray, ...]

    @classmethod
    def of(cls, field: xr.DataArray, factors: Sequence[Factor]) -> "Layout":
        has_time = any(factor.kind == "time" and field.sizes[factor.dims[0]] > 1 for factor in factors)
        kept = []
        for factor in factors:
            others = [dim for dim in field.dims if dim not in factor.dims]
            if has_time and factor.kind in ("sphere", "plane"):
                kept.append(field.notnull().any(others).transpose(*factor.dims).values.ravel())
            else:
                kept.append(np.ones(int(np.prod([field.sizes[dim] for dim in factor.dims])), dtype=bool))
        for factor in factors:
            index = field.indexes.get(factor.dims[0]) if factor.kind == "time" else None
            if index is not None and not index.is_unique:
                first = index[index.duplicated()][0]
                raise InputError(
                    f"{factor.name} has {first} more than once; drop or average the repeats, as with groupby('{factor.name}').mean()."
                )
        rulers = tuple(Ruler.of(factor, field.coords, keep) for factor, keep in zip(factors, kept, strict=True))
        layout = cls(field, rulers, tuple(kept))
        layout.check_apart()
        return layout

    def check_apart(self) -> None:
        """Refuse two points of a factor at the same place, which the model could not tell apart; times are checked by their labels."""
        for factor, points, kept in zip(self.factors, self.points(), self.kept, strict=True):
            pair = first_repeat(torch.from_numpy(points.round(SAME_DECIMALS)))
            if pair is not None and factor.kind != "time":
                first, second = (self.called(factor, int(np.flatnonzero(kept)[i])) for i in pair)
                raise InputError(f"{first} and {second} are at the same place; merge them, or move or drop one.")

    def called(self, factor: Factor, position: int) -> str:
        """What a point of a factor is called: its label, or where it is."""
        if len(factor.dims) == 1 and factor.dims[0] in self.field.coords:
            return f"{factor.name} {self.field[factor.name].values[position]}"
        columns = zip(factor.coords, flat(factor, self.field.coords), strict=True)
        return ", ".join(f"{name} {column[position]}" for name, column in columns)

    @property
    def factors(self) -> list[Factor]:
        return [ruler.factor for ruler in self.rulers]

    @property
    def time(self) -> str | None:
        """The dimension of time."""
        return next((factor.dims[0] for factor in self.factors if factor.kind == "time"), None)

    def points(self) -> list[np.ndarray]:
        """Of the grid, one array (n_k, d_k) a factor."""
        return [ruler.measure(self.field.coords, kept) for ruler, kept in zip(self.rulers, self.kept, strict=True)]

    def to_grid(self, field: xr.DataArray) -> np.ndarray:
        """The values of a field with these dimensions, (n_1, ..., n_d)."""
        dims = [dim for factor in self.factors for dim in factor.dims]
        values = field.transpose(*dims).values.reshape([len(kept) for kept in self.kept])
        return values[np.ix_(*self.kept)]

    def label(self, values: np.ndarray, new: Mapping[str, xr.DataArray] | None = None) -> xr.DataArray:
        """Values over the grid, or over other points, with all labels; NaN at the field's points that are not on the grid.

        values: (..., n_1, ..., n_d); axes before those of the factors belong to a dimension `sample`
        new: coordinates of the factors whose points are not the field's own
        """
        new = new or {}
        sizes: dict[str, int] = {}
        extra = values.ndim - len(self.rulers)
        changed: set[str] = set()
        for axis, (factor, kept) in enumerate(zip(self.factors, self.kept, strict=True), start=extra):
            if factor.coords[0] in new:
                sizes |= sizes_of(factor, new)
                changed |= {*factor.dims, *factor.coords}
                continue
            sizes |= {dim: self.field.sizes[dim] for dim in factor.dims}
            if not kept.all():
                whole = np.full(
                    [*values.shape[:axis], len(kept), *values.shape[axis + 1 :]], np.nan, dtype=values.dtype
                )
                np.moveaxis(whole, axis, 0)[kept] = np.moveaxis(values, axis, 0)
                values = whole
        own = {name: coord for name, coord in self.field.coords.items() if not changed & {name, *coord.dims}}
        array = xr.DataArray(
            values.reshape([*values.shape[:extra], *sizes.values()]), dims=[*["sample"] * extra, *sizes]
        )
        order = [dim for dim in self.field.dims if dim in sizes]
        return array.transpose(*["sample"] * extra, *order, ...).assign_coords({**own, **new})

    def asked(self, coords: Any) -> tuple[list[np.ndarray | None], dict[str, xr.DataArray]]:
        """The points of other coordinates, None for a factor's own; and the coordinates themselves, own ones included.

        coords: as in `FieldModel.predict`
        """
        given = as_coords(coords) if coords is not None else {}
        known = {name for factor in self.factors for name in (*factor.dims, *factor.coords)}
        unknown = [name for name in given if name not in known]
        if isinstance(coords, (xr.Dataset, xr.DataArray)):
            given = {name: given[name] for name in given if name in known}
            if not given:
                raise InputError(
                    f"the object has none of the coordinates {', '.join(sorted(known))}; name them as the field does."
                )
        elif unknown:
            raise InputError(f"there is no coordinate {unknown[0]!r}; there are {', '.join(sorted(known))}.")
        points: list[np.ndarray | None] = []
        found: dict[str, xr.DataArray] = {}
        for ruler in self.rulers:
            factor = ruler.factor
            if not any(name in given for name in (*factor.dims, *factor.coords)):
                points.append(None)
                continue
            chosen = self.chosen(factor, given)
            here = {
                name: self.read(given[name], ruler, name) if name in given else chosen[name] for name in factor.coords
            }
            sizes = [array.sizes for array in here.values()]
            if any(a[dim] != b[dim] for a in sizes for b in sizes for dim in set(a) & set(b)):
                raise InputError(
                    f"the coordinates {', '.join(factor.coords)} have different lengths; give all of them for the same points."
                )
            if {dim for a in sizes for dim in a} & {dim for array in found.values() for dim in array.dims}:
                raise InputError(
                    "two factors share a dimension; ask for all places at all times, and choose among the answers."
                )
            points.append(ruler.measure(here))
            found |= {name: array.reset_coords(drop=True) for name, array in here.items()}
        return points, found

    def chosen(self, factor: Factor, given: Mapping[str, Any]) -> xr.DataArray:
        """The field at the points of a factor that are chosen by their labels, such as names of stations; all of them if none are."""
        labels = {dim: np.atleast_1d(given[dim]) for dim in factor.dims if dim in given and dim not in factor.coords}
        try:
            return self.field.sel(labels)
        except KeyError as error:
            raise InputError(
                f"{', '.join(labels)} has no {error}; name points of the field, or give {', '.join(factor.coords)}."
            ) from None

    def read(self, values: Any, ruler: Ruler, name: str) -> xr.DataArray:
        """A coordinate that was asked for; text becomes dates where dates are needed, and a single value a list of one."""
        array = values if isinstance(values, xr.DataArray) else xr.DataArray(values)
        if array.ndim > 1 and not isinstance(values, xr.DataArray):
            raise InputError(
                f"the coordinate {name} has {array.ndim} dimensions; give a list, or a DataArray that names them."
            )
        if array.ndim == 0 or not isinstance(values, xr.DataArray):
            array = xr.DataArray(np.atleast_1d(array.values), dims=self.field[name].dims[:1], attrs=array.attrs)
        if ruler.calendar not in ("", NUMBERS) and array.size and isinstance(array.values.flat[0], str):
            array = array.copy(data=as_dates(array.values.ravel(), ruler.calendar, name).reshape(array.shape))
        # Numbers without a unit are in that of the field.
        return array.assign_attrs({**self.field[name].attrs, **array.attrs})


class FittedField(Protocol):
    """A field and the model that was fitted to it: what filling and validating need to know."""

    gp: LKGP
    layout: Layout

    @property
    def name(self) -> str: ...

    @property
    def observed(self) -> xr.DataArray: ...

    def predict(self, coords: Any = None, *, observation_noise: bool = True) -> xr.Dataset: ...


def as_coords(coords: Any) -> dict[str, Any]:
    if isinstance(coords, (xr.Dataset, xr.DataArray)):
        return {str(name): array for name, array in coords.coords.items()}
    if not isinstance(coords, Mapping):
        raise InputError(
            "give the coordinates as a dictionary such as {'time': [...]}, or as an xarray object that has them."
        )
    return {str(name): values for name, values in coords.items()}


def as_dates(texts: np.ndarray, calendar: str, name: str) -> np.ndarray:
    """Dates of a calendar from text such as 2019-03-01T06."""
    try:
        if calendar == STANDARD:
            return pd.to_datetime(list(texts)).to_numpy()
        return np.array([xr.date_range(text, periods=1, calendar=calendar, use_cftime=True)[0] for text in texts])
    except ValueError as error:
        raise InputError(f"{name}: {error}; give dates such as 2019-03-01 or 2019-03-01T06.") from None


def in_memory(field: xr.DataArray) -> xr.DataArray:
    """A field with its values in memory; that of the caller stays as it is, on disk or in chunks."""
    if not isinstance(field, xr.DataArray):
        raise InputError(
            f"this takes a DataArray, not {type(field).__name__}; choose a variable of a Dataset by its name."
        )
    return field.compute()


def read_values(field: xr.DataArray) -> xr.DataArray:
    """A field in memory with its values as floating point numbers, checked."""
    name = field.name if field.name is not None else "the field"
    if field.dtype.kind not in "fiub":
        raise InputError(f"{name} holds {field.dtype}, not numbers; choose another variable.")
    numbers = field if field.dtype.kind == "f" else field.astype(float)
    values = numbers.values
    if np.isinf(values).any():
        where = np.argwhere(np.isinf(values))[0]
        place = ", ".join(
            f"{dim}={field[dim].values[i] if dim in field.coords else i}"
            for dim, i in zip(field.dims, where, strict=True)
        )
        raise InputError(f"{name} is infinite at {place}; make it NaN if it is missing, or mend it.")
    if np.isnan(values).all():
        raise InputError(f"nothing is observed: {name} is NaN everywhere.")
    return numbers


def fill_value_in(values: np.ndarray) -> float | None:
    """A number that looks like a fill value that was not decoded, if there is one."""
    seen = values[np.isfinite(values)]
    for extreme in (seen.min(), seen.max()):
        rest = seen[seen != extreme]
        repeats = len(seen) - len(rest) > 1
        if repeats and len(rest) > 1 and abs(extreme - np.median(rest)) > FAR_OUT * np.ptp(rest) > 0:
            return float(extreme)
    return None
