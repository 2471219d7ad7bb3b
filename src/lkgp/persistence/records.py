"""Convert settings records to plain data, and back. No code is executed and no class is imported by name."""

from collections.abc import Iterable
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np

from lkgp.errors import FileError, InputError
from lkgp.settings import Settings


def find_class(classes: Iterable[type], name: Any, what: str) -> type:
    """Return the class with this name."""
    for cls in classes:
        if cls.__name__ == name:
            return cls
    raise FileError(
        f"the file uses the {what} {name!r}, which this lkgp does not know; it is damaged, or was written by another "
        "version, so load it with that version or save the model again."
    )


def describe_settings(value: Any) -> Any:
    """Describe a setting as plain data: a record by its name and fields, anything else unchanged."""
    if is_dataclass(value) and not isinstance(value, type):
        if not isinstance(value, Settings):
            raise InputError(f"a {type(value).__name__} cannot be saved; use one of lkgp's own settings.")
        described = {field.name: describe_settings(getattr(value, field.name)) for field in fields(value)}
        return {"class": type(value).__name__, **described}
    if isinstance(value, np.generic):
        return value.item()
    if not (value is None or isinstance(value, (bool, int, float, str))):
        raise InputError(f"the setting {value!r} cannot be saved; use one of lkgp's own settings.")
    return value


def build_settings(value: Any) -> Any:
    """Inverse of `describe_settings`."""
    if not isinstance(value, dict):
        return value
    arguments = {name: build_settings(field) for name, field in value.items() if name != "class"}
    return find_class(Settings.known.values(), value.get("class"), "setting")(**arguments)
