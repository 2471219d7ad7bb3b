"""Check plain data, as JSON holds it, against annotated types: before a value of a file is used, it has its type."""

import types
from collections.abc import Mapping
from typing import Any, Literal, NotRequired, Union, get_args, get_origin, get_type_hints, is_typeddict

from lkgp.persistence.damage import DamageError

# Whole numbers beyond 64 bits count nothing that exists, and most libraries cannot hold them. Seeds may be unsigned.
LARGEST_INTEGER, SMALLEST_INTEGER = 2**64 - 1, -(2**63)


def check_type(value: Any, kind: Any, place: str) -> None:
    """Refuse a value that is not of the annotated type.

    kind: None, bool, int, float, str, Any, a Literal, a TypedDict, or a union, list, tuple or dict of those
    place: where the value stands, for the message, such as settings.seed
    """
    if not has_type(value, kind, place):
        raise DamageError(f"{place} is {shortened(value)}, which is not {type_name(kind)}")


def has_type(value: Any, kind: Any, place: str) -> bool:
    """Whether a value is of the annotated type; a wrong value inside a list or dictionary is refused by its place."""
    origin, arguments = get_origin(kind), get_args(kind)
    if kind is Any:
        return True
    if origin in (Union, types.UnionType):
        return any(has_type(value, one, place) for one in arguments)
    if origin is Literal:
        return any(type(value) is type(one) and value == one for one in arguments)
    if origin is NotRequired:
        return has_type(value, arguments[0], place)
    if is_typeddict(kind):
        return isinstance(value, dict) and check_entries(value, kind, place)
    if origin in (list, tuple):
        return isinstance(value, list) and all(check_item(item, arguments[0], place) for item in value)
    if origin in (dict, Mapping):
        names = isinstance(value, dict) and all(isinstance(name, str) for name in value)
        return names and all(check_item(item, arguments[1], f"{place}.{name}") for name, item in value.items())
    if isinstance(value, bool) or kind in (None, types.NoneType):
        return kind is bool if isinstance(value, bool) else value is None
    if kind in (int, float) and isinstance(value, int):
        return SMALLEST_INTEGER <= value <= LARGEST_INTEGER
    return isinstance(value, kind)


def check_item(value: Any, kind: Any, place: str) -> bool:
    check_type(value, kind, place)
    return True


def check_entries(values: dict[str, Any], kind: Any, place: str) -> bool:
    """Refuse a dictionary that lacks an entry of a TypedDict, or has one of another type, or one too many.

    place: where the dictionary stands, for the message; empty for the whole description
    """
    hints = get_type_hints(kind)
    missing = sorted(kind.__required_keys__ - set(values))
    if missing:
        raise DamageError(f"{place or 'the description'} has no entry {missing[0]!r}")
    unknown = sorted(set(values) - set(hints))
    if unknown:
        raise DamageError(f"{place or 'the description'} has an unknown entry {unknown[0]!r:.40}")
    for name, value in values.items():
        check_type(value, hints[name], f"{place}.{name}".lstrip("."))
    return True


def type_name(kind: Any) -> str:
    """A type as users know it."""
    names = {bool: "true or false", int: "a whole number", float: "a number", str: "text", types.NoneType: "empty"}
    if kind in names:
        return names[kind]
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Literal:
        return " or ".join(repr(one) for one in arguments)
    if origin in (Union, types.UnionType):
        return " or ".join(type_name(one) for one in arguments)
    return "a list" if origin in (list, tuple) else "a set of entries"


def shortened(value: Any) -> str:
    """A value for a message, in at most 40 characters; a number of any size is not spelled out."""
    if isinstance(value, int) and not SMALLEST_INTEGER <= value <= LARGEST_INTEGER:
        return "a number beyond 64 bits"
    if isinstance(value, (list, dict)):
        return "a list" if isinstance(value, list) else "a set of entries"
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:37]}..."
