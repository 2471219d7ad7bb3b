"""Settings records: frozen dataclasses that are checked on construction and registered by name."""

import importlib
import pkgutil
from collections.abc import Iterable
from typing import Any, ClassVar

from lkgp.errors import InputError


class Settings:
    """Base class of all settings records; a model file names a record by its class.

    A subclass is registered when it is defined, so a new one can be saved and loaded without editing any table.
    """

    known: ClassVar[dict[str, type["Settings"]]] = {}

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        known = Settings.known.get(cls.__name__)
        if known is not None and known.__module__ != cls.__module__ and known.__module__.startswith("lkgp."):
            raise TypeError(f"{cls.__name__} is the name of one of lkgp's own settings; choose another name.")
        Settings.known[cls.__name__] = cls


def check_positive(settings: object, **numbers: float) -> None:
    """Reject settings that are not positive numbers, naming the first."""
    for name, value in numbers.items():
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not value > 0:
            raise InputError(f"{type(settings).__name__}: {name} must be a positive number, not {value!r}.")


def import_modules(package: str, path: Iterable[str]) -> None:
    """Import every module of a package, so that a kind defined in a new file registers itself without other edits."""
    for module in pkgutil.iter_modules(path):
        importlib.import_module(f"{package}.{module.name}")
