"""How a filled field is handed back: names, attributes, encoding, history, and which cells are filled at all."""

import time
from typing import Any

import numpy as np
import pandas as pd

import xarray as xr
from lkgp import __version__
from lkgp.errors import InputError

# What packs numbers into integers; it fits the field, not its standard deviation.
PACKING = ("scale_factor", "add_offset", "dtype", "_FillValue", "missing_value", "_Unsigned", "unsigned")


def error_attrs(attrs: dict[Any, Any], name: str) -> dict[str, Any]:
    """Attributes of the standard deviation of a field with these: its units, and CF's way to name a standard error."""
    found: dict[str, Any] = {"long_name": f"standard error of {attrs.get('long_name', name)}"}
    if "standard_name" in attrs:
        found["standard_name"] = f"{attrs['standard_name']} standard_error"
    return found | {key: attrs[key] for key in ("units", "grid_mapping") if key in attrs}


def flag_attrs(attrs: dict[Any, Any], name: str) -> dict[str, Any]:
    """Attributes of the flag that tells which cells were filled."""
    found: dict[str, Any] = {
        "long_name": f"whether {attrs.get('long_name', name)} was filled",
        "flag_values": np.array([0, 1], dtype=np.int8),
        "flag_meanings": "as_given filled",
    }
    if "standard_name" in attrs:
        found["standard_name"] = f"{attrs['standard_name']} status_flag"
    if "grid_mapping" in attrs:
        found["grid_mapping"] = attrs["grid_mapping"]
    return found


def keeps_attrs(wanted: bool | None) -> bool:
    """What the caller wants, else what xarray's option says; its default is to keep."""
    if wanted is not None:
        return wanted
    option = xr.get_options()["keep_attrs"]
    return option if isinstance(option, bool) else True


def history_line(what: str) -> str:
    """A line of `history`, as CF's tools write it."""
    return f"{time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime())} lkgp {__version__}: {what}"


def encoding_of(field: xr.DataArray, filled: xr.DataArray) -> tuple[dict[Any, Any], dict[Any, Any]]:
    """The encoding for the filled field and for its standard deviation.

    Packing is kept where all filled values fit into it.
    """
    encoding = dict(field.encoding)
    shared = {key: value for key, value in encoding.items() if key not in PACKING}
    packed: Any = np.dtype(encoding.get("dtype", float))
    if packed.kind in "iu":
        limits = np.iinfo(packed)
        integers = (filled - encoding.get("add_offset", 0.0)) / encoding.get("scale_factor", 1.0)
        gap = encoding.get("_FillValue", encoding.get("missing_value"))
        taken = gap is not None and bool((np.rint(integers) == gap).any())
        if taken or not (float(integers.min()) > limits.min and float(integers.max()) < limits.max):
            encoding = shared
    return encoding, {**shared, "_FillValue": np.nan}


def gap_lengths(missing: xr.DataArray, dim: str) -> xr.DataArray:
    """How long the gap of every missing cell is along a dimension, from the last value before it to the first after it.

    Gaps at the ends count to the end. Zero where nothing is missing.
    """
    axis = missing.get_axis_num(dim)
    order = np.argsort(missing[dim].values)
    gone = np.moveaxis(missing.values, axis, -1)[..., order]
    x = missing[dim].values[order]
    places = np.broadcast_to(np.arange(len(x)), gone.shape)
    before = np.maximum.accumulate(np.where(gone, 0, places), axis=-1)
    after = np.minimum.accumulate(np.where(gone, len(x) - 1, places)[..., ::-1], axis=-1)[..., ::-1]
    lengths = np.where(gone, x[after] - x[before], x[0] - x[0])[..., np.argsort(order)]
    return missing.copy(data=np.moveaxis(np.abs(lengths), -1, axis))


def longest_gap(longest: Any, times: xr.DataArray | None) -> Any:
    """`max_gap` as a number where times are numbers, else as a Timedelta; times: None where the field has none."""
    if times is None:
        raise InputError(
            "max_gap is a length of time, and the field has no dimension of time; leave it out, or name time."
        )
    try:
        if times.dtype.kind in "fiu":
            return float(longest)
        if is_bare_number(longest):  # pandas would take it for nanoseconds
            raise ValueError
        return pd.Timedelta(longest)
    except (ValueError, TypeError):
        raise InputError(
            f"max_gap is {longest!r}; give a length of time such as '6h' or '3D', or a number where times are numbers."
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


def short_gaps(missing: xr.DataArray, dim: str | None, longest: Any) -> xr.DataArray:
    """Which missing cells are in gaps no longer than `longest` along the dimension of time."""
    limit = longest_gap(longest, missing[dim] if dim is not None else None)
    lengths = gap_lengths(missing, str(dim))
    if lengths.dtype.kind in "fiu":
        return missing & (lengths <= limit)
    if lengths.dtype.kind == "m":
        return missing & (lengths <= limit.to_timedelta64())
    return missing & xr.apply_ufunc(
        np.vectorize(lambda length: length <= limit.to_pytimedelta(), otypes=[bool]), lengths
    )
