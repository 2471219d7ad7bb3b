"""Convert settings records to plain data, and back. No code is executed and no class is imported by name."""

import types
from collections.abc import Iterable
from dataclasses import fields, is_dataclass
from typing import Any, Union, get_args, get_origin, get_type_hints

import numpy as np

from lkgp.errors import FileError, InputError
from lkgp.persistence.damage import DamageError
from lkgp.persistence.plain_types import has_type, shortened
from lkgp.settings import Settings

# Types of settings that are not records.
PLAIN = (types.NoneType, bool, int, float, str, Any)


def find_class(classes: Iterable[type], name: Any, what: str) -> type:
    """Return the class with this name."""
    for cls in classes:
        if cls.__name__ == name:
            return cls
    raise FileError(
        f"the file uses the {what} {str(name)[:40]!r}, which this lkgp does not know; it is damaged, or was written by "
        "another version, so load it with that version or save the model again."
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
    cls = find_class(Settings.known.values(), value.get("class"), "setting")
    kinds = field_types(cls)
    arguments = {}
    for name, described in value.items():
        if name != "class" and name not in kinds:
            raise DamageError(f"the setting {cls.__name__} has an unknown entry {name!r}")
        if name != "class":
            arguments[name] = _build_field(described, kinds[name], f"the entry {name!r} of {cls.__name__}")
    return cls(**arguments)


def field_types(cls: type) -> dict[str, tuple[Any, ...]]:
    """The types that each field of a record may have; any type if an annotation cannot be resolved."""
    try:
        hints = get_type_hints(cls)
    except NameError:  # a class that was defined inside a function, with annotations as text
        hints = {}
    kinds = {field.name: hints.get(field.name, Any) for field in fields(cls)}
    return {
        name: get_args(kind) if get_origin(kind) in (Union, types.UnionType) else (kind,)
        for name, kind in kinds.items()
    }


def _build_field(described: Any, kinds: tuple[Any, ...], place: str) -> Any:
    """A field of a record: another record, of one of these classes, or a plain value of one of these types."""
    if isinstance(described, dict):
        built = build_settings(described)
        if Any not in kinds and not any(isinstance(built, kind) for kind in kinds if isinstance(kind, type)):
            raise DamageError(f"{place} is a {type(built).__name__}, which does not belong there")
        return built
    plain = [kind for kind in kinds if kind in PLAIN or get_origin(kind) is not None]
    if int in plain and float not in plain and isinstance(described, float) and described.is_integer():
        described = int(described)  # a whole number such as 1e4
    if not any(has_type(described, kind, place) for kind in plain):
        raise DamageError(f"{place} is {shortened(described)}, which does not belong there")
    return described
