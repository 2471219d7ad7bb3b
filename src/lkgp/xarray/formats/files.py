"""Reading and writing fields and tables in any registered format; files are written completely, or not at all."""

import tempfile
import warnings
import zlib
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import pandas as pd

import xarray as xr
from lkgp.errors import FileError
from lkgp.persistence.atomic import first_line, write_atomically
from lkgp.xarray.formats.base import COMPRESSION, FieldFormat, FileFormat, OpenTable, TableFormat, find_format
from lkgp.xarray.formats.field_edit import FieldEdit
from lkgp.xarray.formats.table_edit import TableEdit


def read_dataset(path: Path) -> xr.Dataset:
    """Open a file of gridded fields; read its values inside `reading_values`."""
    file_format = _field_format(path)
    with _reading(path, file_format):
        return file_format.read(path)


def group_names(path: Path) -> list[str]:
    """The names of the groups in a file of gridded fields."""
    file_format = _field_format(path)
    with _reading(path, file_format):
        return [name.strip("/") for name in file_format.read_stored(path) if name != "/"]


def read_table(path: Path, text_columns: Collection[str] = ()) -> pd.DataFrame:
    """Read a table; text_columns: lower-case names of columns that stay text, whatever their case in the file."""
    file_format = find_format(path)
    if not isinstance(file_format, TableFormat):
        raise FileError(f"{path} holds gridded fields, but a table is needed.")
    with _reading(path, file_format):
        return file_format.read(path, text_columns)


def open_table(path: Path, text_columns: Collection[str], number_columns: Collection[str]) -> OpenTable:
    """Read a table that is to be filled; the columns as in `TableFormat.open`."""
    file_format = find_format(path)
    if not isinstance(file_format, TableFormat):
        raise FileError(f"{path} holds gridded fields, but a table is needed.")
    with _reading(path, file_format):
        return file_format.open(path, text_columns, number_columns)


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


def write_edited(table: OpenTable, edit: TableEdit, path: Path) -> None:
    """Write a table with some cells filled in the format that it was read from."""
    write_atomically(path, lambda temporary: table.write(edit, temporary))


def write_filled(source: Path, edit: FieldEdit, path: Path) -> None:
    """Write a file of fields again, with some variables filled and the rest as it is stored."""
    old, new = _field_format(source), _field_format(path)

    def write(temporary: Path) -> None:
        if old is new:
            old.write_edited(source, edit, temporary)
        else:
            groups = old.read_stored(source)
            new.write_stored({**groups, "/": edit.applied(groups["/"])}, temporary)

    write_atomically(path, write)


def check_conversion(source: Path, path: Path) -> None:
    """Refuse to write the content of a file in a format that cannot hold all of it; nothing is left behind."""
    old, new = _field_format(source), _field_format(path)
    _check_package(path, new)
    if path.suffix.lower() in COMPRESSION:
        raise FileError(f"{path} would be compressed twice; give a name that does not end in {path.suffix}.")
    if old is new:
        return
    with tempfile.TemporaryDirectory() as folder, _reading(source, old):
        groups = old.read_stored(source)
        # One cell of each variable is enough to see whether its data type and its attributes can be written.
        parts = {key: group.isel({dim: slice(0, 1) for dim in group.dims}) for key, group in groups.items()}
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # they are told when the file is written
                new.write_stored(parts, Path(folder) / path.name)
        except (OSError, ValueError, KeyError, RuntimeError, TypeError) as error:
            raise FileError(
                f"{path} cannot hold everything in {source} ({first_line(error)}); give the output the same format."
            ) from None


def _field_format(path: Path) -> FieldFormat:
    file_format = find_format(path)
    if not isinstance(file_format, FieldFormat):
        raise FileError(f"{path} is a table, but a file of gridded fields is needed.")
    return file_format


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
    except (OSError, ValueError, KeyError, RuntimeError, TypeError, EOFError) as error:
        raise FileError(f"{path} is not a readable {file_format.name} file ({first_line(error)}).") from None


def _check_package(path: Path, file_format: FileFormat) -> None:
    if file_format.package is not None and find_spec(file_format.package) is None:
        raise FileError(f"{path} needs the package {file_format.package}; install it with: pip install 'lkgp[files]'")
