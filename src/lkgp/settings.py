"""Records of settings: frozen dataclasses that are checked when they are made and known by name."""

from typing import Any, ClassVar

from lkgp.errors import InputError


class Settings:
    """The base of every record of settings; a model file names a record by its class.

    A subclass is registered when it is defined, so a new one can be saved and loaded without any table to edit.
    """

    known: ClassVar[dict[str, type["Settings"]]] = {}

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        Settings.known[cls.__name__] = cls


def check_positive(settings: object, **numbers: float) -> None:
    """Refuse settings that are not positive numbers, by name."""
    for name, value in numbers.items():
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not value > 0:
            raise InputError(f"{type(settings).__name__}: {name} must be a positive number, not {value!r}.")
