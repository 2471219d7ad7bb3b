"""A labelled field as a grid of factors, and back."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch

import xarray as xr
from lkgp.data.grid import first_repeat
from lkgp.errors import InputError
from lkgp.xarray.coordinate_scaling import CoordinateScaling, flatten_coords, spanned_sizes
from lkgp.xarray.factors import Factor

# Points that agree to this many decimals, in units of their spread, are the same place: 0 and 360 degrees east differ
# by rounding errors of about 1e-16.
SAME_PLACE_DECIMALS = 12


@dataclass(frozen=True, eq=False)
class Layout:
    """How a field lies on a grid of factors.

    field: with its labels; its values are never read and may be absent
    scalings: one per factor
    on_grid: one boolean array (n_k,) per factor, True for the points of the field that are points of the grid; places
        without any observation are not
    """

    field: xr.DataArray
    scalings: tuple[CoordinateScaling, ...]
    on_grid: tuple[np.ndarray, ...]

    @classmethod
    def of(cls, field: xr.DataArray, factors: Sequence[Factor]) -> "Layout":
        has_time = any(factor.kind == "time" and field.sizes[factor.dims[0]] > 1 for factor in factors)
        seen, on_grid, observed = field.notnull(), [], []
        for factor in factors:
            others = [dim for dim in field.dims if dim not in factor.dims]
            observed.append(seen.any(others).transpose(*factor.dims).values.ravel())
            only_observed = has_time and factor.kind in ("sphere", "map", "plane")
            on_grid.append(observed[-1] if only_observed else np.ones_like(observed[-1]))
        for factor in factors:
            index = field.indexes.get(factor.dims[0]) if factor.kind == "time" else None
            if index is not None and not index.is_unique:
                first = index[index.duplicated()][0]
                raise InputError(
                    f"{factor.name} contains {first} more than once; drop or average the duplicates, for example with "
                    f"groupby('{factor.name}').mean()."
                )
        scalings = tuple(
            CoordinateScaling.of(factor, field.coords, selected, seen)
            for factor, selected, seen in zip(factors, on_grid, observed, strict=True)
        )
        layout = cls(field, scalings, tuple(on_grid))
        layout.check_distinct_places()
        return layout

    def check_distinct_places(self) -> None:
        """Refuse two points of a factor at the same place, which the model could not tell apart.

        Times have been checked by their labels.
        """
        for factor, points, on_grid in zip(self.factors, self.points(), self.on_grid, strict=True):
            pair = first_repeat(torch.from_numpy(points.round(SAME_PLACE_DECIMALS)))
            if pair is not None and factor.kind != "time":
                first, second = (self.point_name(factor, int(np.flatnonzero(on_grid)[i])) for i in pair)
                raise InputError(f"{first} and {second} are at the same place; merge them, or move or drop one.")

    def point_name(self, factor: Factor, position: int) -> str:
        """The label of a point of a factor, or its coordinates if it has no label."""
        if len(factor.dims) == 1 and factor.dims[0] in self.field.coords:
            return f"{factor.name} {self.field[factor.name].values[position]}"
        columns = zip(factor.coords, flatten_coords(factor, self.field.coords), strict=True)
        return ", ".join(f"{name} {column[position]}" for name, column in columns)

    @property
    def factors(self) -> list[Factor]:
        return [scaling.factor for scaling in self.scalings]

    @property
    def time(self) -> str | None:
        """The time dimension."""
        return next((factor.dims[0] for factor in self.factors if factor.kind == "time"), None)

    def points(self) -> list[np.ndarray]:
        """The points of the grid: one array (n_k, d_k) per factor."""
        return [
            scaling.to_points(self.field.coords, selected)
            for scaling, selected in zip(self.scalings, self.on_grid, strict=True)
        ]

    def to_grid(self, field: xr.DataArray) -> np.ndarray:
        """The values of a field with these dimensions, (n_1, ..., n_d)."""
        dims = [dim for factor in self.factors for dim in factor.dims]
        values = field.transpose(*dims).values.reshape([len(selected) for selected in self.on_grid])
        # three times as fast as by index, where nothing is left out
        return values.copy() if all(selected.all() for selected in self.on_grid) else values[np.ix_(*self.on_grid)]

    def label(self, values: np.ndarray, new: Mapping[str, xr.DataArray] | None = None) -> xr.DataArray:
        """Values over the grid, or over other points, with all labels; NaN at points of the field off the grid.

        values: (..., n_1, ..., n_d); axes before those of the factors belong to a dimension `sample`
        new: coordinates of the factors whose points are not the field's own
        """
        new = new or {}
        sizes: dict[str, int] = {}
        extra = values.ndim - len(self.scalings)
        changed: set[str] = set()
        for axis, (factor, on_grid) in enumerate(zip(self.factors, self.on_grid, strict=True), start=extra):
            if factor.coords[0] in new:
                sizes |= spanned_sizes(factor, new)
                changed |= {*factor.dims, *factor.coords}
                continue
            sizes |= {dim: self.field.sizes[dim] for dim in factor.dims}
            if not on_grid.all():
                shape = [*values.shape[:axis], len(on_grid), *values.shape[axis + 1 :]]
                padded = np.full(shape, np.nan, dtype=values.dtype)
                np.moveaxis(padded, axis, 0)[on_grid] = np.moveaxis(values, axis, 0)
                values = padded
        own = {name: coord for name, coord in self.field.coords.items() if not changed & {name, *coord.dims}}
        array = xr.DataArray(
            values.reshape([*values.shape[:extra], *sizes.values()]), dims=[*["sample"] * extra, *sizes]
        )
        order = [dim for dim in self.field.dims if dim in sizes]
        return array.transpose(*["sample"] * extra, *order, ...).assign_coords({**own, **new})
