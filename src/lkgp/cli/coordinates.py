"""The coordinates at which a saved model is evaluated."""

from pathlib import Path
from typing import Any

import xarray as xr
from lkgp.cli.options import split_names
from lkgp.errors import InputError
from lkgp.xarray import FieldModel
from lkgp.xarray.formats.files import read_dataset, reading_values


def read_coordinates(
    fitted: FieldModel, at: list[str] | None, like: Path | None
) -> xr.Dataset | dict[str, list[float | str]] | None:
    """The values of --at by coordinate, or the coordinates of the file; with neither, None: those of the data."""
    if like is not None:
        if at:
            raise InputError("--at and --like cannot be used together; choose one of them.")
        with reading_values(like):
            return read_dataset(like).coords.to_dataset().load()
    found: dict[str, list[float | str]] = {}
    for text in at or ():
        name, equals, values = text.partition("=")
        if not equals:
            raise InputError(f"--at must have the form NAME=VALUE,VALUE,..., not {text!r}.")
        coord: Any = fitted.layout.field.coords.get(name.strip())
        # Names and dates stay text: the station 00433 is not the number 433.
        is_numeric = coord is not None and coord.dtype.kind in "fium"
        found[name.strip()] = [read_number(part) if is_numeric else part for part in split_names(values)]
    return found or None


def read_number(text: str) -> float | str:
    """A number if the text is one; otherwise the text, which the model refuses in a message of its own."""
    try:
        return float(text)
    except ValueError:
        return text
