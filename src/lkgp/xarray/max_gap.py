"""The lengths of gaps in time, and the limit `max_gap` on those that are filled."""

from datetime import timedelta
from typing import Any

import numpy as np
import pandas as pd

import xarray as xr
from lkgp.errors import InputError

# A length of time such as "6h", or a number where the times are plain numbers.
MaxGap = str | float | timedelta | np.timedelta64


def gap_lengths(missing: xr.DataArray, dim: str) -> xr.DataArray:
    """How long the gap of every missing cell is along a dimension: from the value before it to the value after it.

    A gap at an end counts up to that end. Zero where nothing is missing.
    """
    axis = missing.get_axis_num(dim)
    order = np.argsort(missing[dim].values)
    gone = np.moveaxis(missing.values, axis, -1)[..., order]
    x = missing[dim].values[order]
    positions = np.broadcast_to(np.arange(len(x)), gone.shape)
    before = np.maximum.accumulate(np.where(gone, 0, positions), axis=-1)
    after = np.minimum.accumulate(np.where(gone, len(x) - 1, positions)[..., ::-1], axis=-1)[..., ::-1]
    lengths = np.where(gone, x[after] - x[before], x[0] - x[0])[..., np.argsort(order)]
    return missing.copy(data=np.moveaxis(np.abs(lengths), -1, axis))


def parse_max_gap(max_gap: MaxGap, times: xr.DataArray | None) -> Any:
    """The limit as a number if times are plain numbers, otherwise as a Timedelta; times: None if the field has none."""
    if times is None:
        raise InputError(
            "max_gap is a length of time, but the field has no time dimension; omit max_gap, or name the dimension of "
            "time."
        )
    try:
        if times.dtype.kind in "fiu":
            return float(max_gap)  # type: ignore[arg-type]
        if is_bare_number(max_gap):  # pandas would take it for nanoseconds
            raise ValueError
        return pd.Timedelta(max_gap)
    except (ValueError, TypeError):
        raise InputError(
            f"max_gap is {max_gap!r}; give a length of time such as '6h' or '3D', or a number if times are plain "
            "numbers."
        ) from None


def is_bare_number(value: Any) -> bool:
    """Whether a value is a number, or text that is one, without any unit."""
    if isinstance(value, np.timedelta64):
        return False
    try:
        float(value)
    except (ValueError, TypeError):
        return False
    return True


def in_short_gaps(missing: xr.DataArray, dim: str | None, max_gap: MaxGap) -> xr.DataArray:
    """Which missing cells are in gaps no longer than `max_gap` along the time dimension."""
    limit = parse_max_gap(max_gap, missing[dim] if dim is not None else None)
    lengths = gap_lengths(missing, str(dim))
    if lengths.dtype.kind in "fiu":
        return missing & (lengths <= limit)
    if lengths.dtype.kind == "m":
        return missing & (lengths <= limit.to_timedelta64())
    return missing & xr.apply_ufunc(
        np.vectorize(lambda length: length <= limit.to_pytimedelta(), otypes=[bool]), lengths
    )
