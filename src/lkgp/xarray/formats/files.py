"""Reading and writing fields and tables in any registered format; files are written completely, or not at all."""

import zlib
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import pandas as pd

import xarray as xr
from lkgp.errors import FileError
from lkgp.persistence.atomic import first_line, write_atomically
from lkgp.xarray.formats.base import FieldFormat, FileFormat, TableFormat, find_format


def read_dataset(path: Path) -> xr.Dataset:
    """Open a file of gridded fields; read its values inside `reading_values`."""
    file_format = find_format(path)
    if not isinstance(file_format, FieldFormat):
        raise FileError(f"{path} is a table, but a file of gridded fields is needed.")
    with _reading(path, file_format):
        return file_format.read(path)


def read_table(path: Path, text_columns: Collection[str] = ()) -> pd.DataFrame:
    """Read a table; text_columns: lower-case names of columns that stay text, whatever their case in the file."""
    file_format = find_format(path)
    if not isinstance(file_format, TableFormat):
        raise FileError(f"{path} holds gridded fields, but a table is needed.")
    with _reading(path, file_format):
        return file_format.read(path, text_columns)


@contextmanager
def reading_values(path: Path) -> Iterator[None]:
    """While values of an opened file are loaded: a sentence if they are damaged."""
    try:
        yield
    except (OSError, RuntimeError, zlib.error) as error:
        raise FileError(
            f"{path} contains values that cannot be read ({first_line(error)}); the file may be damaged."
        ) from None


def find_written_format(path: Path) -> FieldFormat | TableFormat:
    """The format in which a file will be written; refused if it is not known or its package is not installed."""
    file_format = find_format(path)
    _check_package(path, file_format)
    return file_format


def write_dataset(dataset: xr.Dataset, path: Path) -> None:
    """Write fields in the format given by the name of the file; a format for tables gets one row per cell."""
    file_format = find_written_format(path)
    if isinstance(file_format, FieldFormat):
        write_atomically(path, lambda temporary: file_format.write(dataset, temporary))
    else:
        write_table(dataset.to_dataframe().reset_index(), path)


def write_table(frame: pd.DataFrame, path: Path) -> None:
    """Write a table in the format given by the name of the file."""
    file_format = find_written_format(path)
    if not isinstance(file_format, TableFormat):
        raise FileError(f"{path} would hold gridded fields, but the data are a table; choose a format for tables.")
    write_atomically(path, lambda temporary: file_format.write(frame, temporary))


@contextmanager
def _reading(path: Path, file_format: FileFormat) -> Iterator[None]:
    """While a file is opened: a sentence if that fails."""
    if not path.exists():
        raise FileError(f"{path} does not exist.")
    _check_package(path, file_format)
    try:
        yield
    except PermissionError:
        raise FileError(f"{path} cannot be read; check its permissions.") from None
    except (OSError, ValueError, KeyError, RuntimeError, TypeError) as error:
        raise FileError(f"{path} is not a readable {file_format.name} file ({first_line(error)}).") from None


def _check_package(path: Path, file_format: FileFormat) -> None:
    if file_format.package is not None and find_spec(file_format.package) is None:
        raise FileError(f"{path} needs the package {file_format.package}; install it with: pip install 'lkgp[files]'")
