"""What filling changes in a file of gridded fields; everything that is not named here stays as it is stored."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from xarray.conventions import decode_cf_variable, encode_cf_variable

import xarray as xr

# The part of an encoding that says which stored number stands for a value.
PACKING = ("scale_factor", "add_offset", "dtype", "_FillValue", "missing_value", "_Unsigned")


@dataclass(frozen=True, eq=False)
class Change:
    """A variable before and after some of its cells were filled.

    before, after: with their attributes and encodings, as xarray decodes them
    """

    before: xr.Variable
    after: xr.Variable

    @property
    def cells(self) -> np.ndarray:
        """Which cells have a new value, boolean, of the shape of the variable."""
        return np.asarray(self.after.notnull()) & (self.after.values != self.before.values)

    @property
    def new_attrs(self) -> dict[Any, Any]:
        """The attributes that are new or have another value."""
        old = self.before.attrs
        return {key: value for key, value in self.after.attrs.items() if key not in old or old[key] is not value}

    def stored(self, raw: np.ndarray) -> np.ndarray | None:
        """The numbers to store: those of the file, and in changed cells new ones.

        raw: the numbers in the file, of the shape of the variable

        Returns None if the new values do not fit into the data type and packing of the file.
        """
        if raw.shape != self.after.shape:
            raise ValueError("the file was changed while its gaps were being filled")
        cells, packing = self.cells, {key: self.before.encoding[key] for key in PACKING if key in self.before.encoding}
        missing = [packing[key] for key in ("_FillValue", "missing_value") if key in packing]
        packing.pop("missing_value", None)  # xarray knows only one of the two, and nothing is missing here
        packing["_FillValue"] = packing.get("_FillValue")
        values = self.after.values[cells]
        with np.errstate(invalid="ignore", over="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore", xr.SerializationWarning)  # of integers that have no fill value
            new = encode_cf_variable(xr.Variable("cell", values, encoding=packing))
            if new.dtype.newbyteorder("=") != raw.dtype.newbyteorder("="):
                return None
            again = decode_cf_variable("cell", new).values.astype(float)
        # Packed values are rounded to the nearest step; whatever is further away, or missing, did not fit.
        step = abs(float(packing.get("scale_factor", 1.0))) if raw.dtype.kind in "iu" else np.inf
        fits = np.abs(again - values) <= 0.5 * step + 8 * np.finfo(np.float32).eps * np.abs(values)
        if not fits.all() or not np.isfinite(again).all() or np.isin(new.values, np.array(missing).ravel()).any():
            return None
        result = raw.copy()
        result[cells] = new.values
        return result

    def unpacked(self, name: str) -> xr.Variable:
        """The new values with the data type that they have in memory; says so, because the file had another one."""
        result = self.after.copy(deep=False)
        result.encoding = {key: value for key, value in result.encoding.items() if key not in PACKING}
        old = self.before.encoding.get("dtype", self.before.dtype)
        warnings.warn(
            f"filled values of {name} do not fit into the numbers of the file ({old}), so that it is written as "
            f"{result.dtype}.",
            stacklevel=2,
        )
        return result


@dataclass(frozen=True, eq=False)
class FieldEdit:
    """The variables that are filled, those that are new, and what is said about it in the history of the file.

    changed: by name; added: without coordinates, which are in the file already
    """

    changed: dict[str, Change]
    added: xr.Dataset
    history: str

    @classmethod
    def of(cls, before: xr.Dataset, after: xr.Dataset, names: Sequence[str]) -> "FieldEdit":
        """The difference of two datasets, of which the second has some variables filled; names: of these."""
        changed = {name: Change(before[name].variable, after[name].variable) for name in names}
        added = {}
        for name in after.data_vars:
            if name in before.variables:
                continue
            variable = after[name].variable.copy()
            filled = next(old for old in names if name in (f"{old}_std", f"{old}_filled"))
            coordinates = before[filled].encoding.get("coordinates")
            if coordinates is not None and "coordinates" not in variable.attrs:
                variable.encoding["coordinates"] = coordinates
            added[name] = variable
        return cls(changed, xr.Dataset(added), str(after.attrs["history"]))

    def applied(self, raw: xr.Dataset) -> xr.Dataset:
        """A dataset as it is stored, with all changes; raw: the same before them."""
        result = raw.assign_attrs(history=self.history)
        for name, change in self.changed.items():
            old = raw[name].variable
            new = change.stored(old.values)
            if new is None:
                result[name] = change.unpacked(name)
            else:
                result[name] = xr.Variable(old.dims, new, {**old.attrs, **change.new_attrs}, old.encoding)
        result = result.assign(self.added.variables)
        result.encoding = raw.encoding
        return result
