"""The values of a field: read into memory and checked."""

import numpy as np

import xarray as xr
from lkgp.errors import InputError

# A value is taken for an undecoded fill value if it repeats and lies this many times the range of the other values away
# from their median. Valid data can reach far out too, but rarely at one and the same value.
FILL_VALUE_DISTANCE = 2.0


def load_field(field: xr.DataArray) -> xr.DataArray:
    """The field with its values in memory; the caller's object stays on disk or in chunks."""
    if not isinstance(field, xr.DataArray):
        raise InputError(
            f"expected a DataArray but got {type(field).__name__}; select one variable of a Dataset by its name."
        )
    return field.compute()


def as_float_field(field: xr.DataArray) -> xr.DataArray:
    """A field in memory with its values as floating-point numbers, checked."""
    name = field.name if field.name is not None else "the field"
    if field.dtype.kind not in "fiub":
        raise InputError(f"{name} holds {field.dtype} values, not numbers; choose another variable.")
    numbers = field if field.dtype.kind == "f" else field.astype(float)
    values = numbers.values
    if np.isinf(values).any():
        where = np.argwhere(np.isinf(values))[0]
        place = ", ".join(
            f"{dim}={field[dim].values[i] if dim in field.coords else i}"
            for dim, i in zip(field.dims, where, strict=True)
        )
        raise InputError(f"{name} is infinite at {place}; set it to NaN if it is missing, or correct it.")
    if np.isnan(values).all():
        raise InputError(f"nothing is observed: {name} is NaN everywhere.")
    return numbers


def undecoded_fill_value(values: np.ndarray) -> float | None:
    """A number that looks like a fill value that was not decoded, if there is one.

    values: finite, or NaN where missing, with at least one number
    """
    for extreme in (np.nanmin(values), np.nanmax(values)):
        if np.count_nonzero(values == extreme) == 1:
            continue
        rest = values[np.isfinite(values) & (values != extreme)]
        if len(rest) > 1 and abs(extreme - np.median(rest)) > FILL_VALUE_DISTANCE * np.ptp(rest) > 0:
            return float(extreme)
    return None
