"""CF metadata of a filled field: attributes, encoding and history."""

import time
from typing import Any

import numpy as np

import xarray as xr
from lkgp import __version__

# The encoding that packs numbers into integers; it fits the field, not its standard error.
PACKING = ("scale_factor", "add_offset", "dtype", "_FillValue", "missing_value", "_Unsigned", "unsigned")


def error_attrs(attrs: dict[Any, Any], name: str) -> dict[str, Any]:
    """Attributes of the standard error of a field with attributes `attrs`, named and with units as CF asks."""
    found: dict[str, Any] = {"long_name": f"standard error of {attrs.get('long_name', name)}"}
    if "standard_name" in attrs:
        found["standard_name"] = f"{attrs['standard_name']} standard_error"
    return found | {key: attrs[key] for key in ("units", "grid_mapping") if key in attrs}


def flag_attrs(attrs: dict[Any, Any], name: str) -> dict[str, Any]:
    """Attributes of the flag that marks the filled cells."""
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


def resolve_keep_attrs(keep_attrs: bool | None) -> bool:
    """The caller's choice, otherwise xarray's option, whose default is to keep attributes."""
    if keep_attrs is not None:
        return keep_attrs
    option = xr.get_options()["keep_attrs"]
    return option if isinstance(option, bool) else True


def history_line(action: str) -> str:
    """One line of the CF attribute `history`."""
    return f"{time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime())} lkgp {__version__}: {action}"


def encodings_of(field: xr.DataArray, filled: xr.DataArray) -> tuple[dict[Any, Any], dict[Any, Any]]:
    """The encodings of the filled field and of its standard error.

    Packing into integers is kept if all filled values fit into it.
    """
    encoding = dict(field.encoding)
    shared = {key: value for key, value in encoding.items() if key not in PACKING}
    packed: Any = np.dtype(encoding.get("dtype", float))
    if packed.kind in "iu":
        limits = np.iinfo(packed)
        integers = (filled - encoding.get("add_offset", 0.0)) / encoding.get("scale_factor", 1.0)
        fill_value = encoding.get("_FillValue", encoding.get("missing_value"))
        collides = fill_value is not None and bool((np.rint(integers) == fill_value).any())
        if collides or not (float(integers.min()) > limits.min and float(integers.max()) < limits.max):
            encoding = shared
    return encoding, {**shared, "_FillValue": np.nan}
