"""What a file format must provide, and the registry in which it is found by the ending of a file name."""

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import ClassVar

import pandas as pd
from xarray.conventions import cf_encoder

import xarray as xr
from lkgp.errors import FileError
from lkgp.xarray.formats.field_edit import FieldEdit
from lkgp.xarray.formats.table_edit import TableEdit

# Endings of compressed files, which say nothing about what is inside: data.csv.gz is a CSV file.
COMPRESSION = (".gz", ".bz2", ".xz", ".zip")


class FileFormat(ABC):
    """A format of files; derive from `FieldFormat` or `TableFormat`.

    name: as users know it, for messages
    endings: of file names, in lower case, such as (".csv", ".tsv")
    package: the optional package without which files cannot be read or written, by the name it is imported with
    is_folder: whether a "file" of this format is a folder
    """

    name: ClassVar[str]
    endings: ClassVar[tuple[str, ...]]
    package: ClassVar[str | None] = None
    is_folder: ClassVar[bool] = False


class FieldFormat(FileFormat):
    """A format that holds gridded fields.

    All methods may raise OSError, ValueError, KeyError, RuntimeError or TypeError; the user sees the first line
    of the message. A format whose files hold more than a decoded dataset does, such as groups or the way in which
    numbers are packed, overrides the methods about what is stored; paths to be written do not exist yet.
    """

    @abstractmethod
    def read(self, path: Path) -> xr.Dataset:
        """Open a file; the values may be loaded later."""

    @abstractmethod
    def write(self, dataset: xr.Dataset, path: Path) -> None:
        """Write a file; `path` does not exist yet, and need not be left clean after an error."""

    def read_stored(self, path: Path) -> dict[str, xr.Dataset]:
        """All groups of a file by their paths, "/" first, as they are stored and not as they are decoded."""
        decoded = self.read(path)
        variables, attrs = cf_encoder(decoded.variables, decoded.attrs)
        return {"/": xr.Dataset(variables, attrs=attrs)}

    def write_stored(self, groups: Mapping[str, xr.Dataset], path: Path) -> None:
        """Write the groups of another file; what cannot be written is an error."""
        if set(groups) != {"/"}:
            raise ValueError(f"{self.name} has no groups")
        self.write(xr.decode_cf(groups["/"], decode_timedelta=False), path)

    def write_edited(self, source: Path, edit: FieldEdit, path: Path) -> None:
        """Write a file of this format again with some variables filled, and the rest as it is stored."""
        groups = self.read_stored(source)
        self.write_stored({**groups, "/": edit.applied(groups["/"])}, path)


class OpenTable:
    """A table that was read from a file, and can be written again with some cells filled.

    frame: its columns as numbers, dates and text; if its index has a name, the labels say where the rows are in the
        file, as in "line 7"
    note: how the file was read where that had to be found out, as in "columns separated by semicolons"; else empty
    """

    def __init__(self, file_format: "TableFormat", frame: pd.DataFrame, note: str = "") -> None:
        self.file_format, self.frame, self.note = file_format, frame, note

    def write(self, edit: TableEdit, path: Path) -> None:
        """Write the edited table in its own format; `path` does not exist yet."""
        self.file_format.write(edit.apply(self.frame), path)


class TableFormat(FileFormat):
    """A format that holds a table with one header; its methods may raise the same errors as those of `FieldFormat`.

    A format whose files hold more than a frame does, such as the way in which a number is written, overrides `open`.
    """

    def open(self, path: Path, text_columns: Collection[str], number_columns: Collection[str]) -> OpenTable:
        """Read a file that is to be filled.

        text_columns: as in `read`
        number_columns: lower-case names of columns that hold numbers even if they look like codes, such as 007
        """
        return OpenTable(self, self.read(path, text_columns))

    @abstractmethod
    def read(self, path: Path, text_columns: Collection[str]) -> pd.DataFrame:
        """Read a file.

        text_columns: lower-case names of columns that must stay text, whatever their case in the file: the station
            00433 is not the number 433, and a station named NA is not missing
        """

    @abstractmethod
    def write(self, frame: pd.DataFrame, path: Path) -> None:
        """Write a file without the index of the frame; `path` does not exist yet."""


# The registered formats by the endings of their files.
FORMATS: dict[str, FieldFormat | TableFormat] = {}


def register(file_format: FieldFormat | TableFormat) -> None:
    """Let files with the endings of this format be read and written in it; an ending can be registered again."""
    if not isinstance(file_format, FieldFormat | TableFormat):
        raise TypeError(f"{file_format!r} must be an instance of a class derived from FieldFormat or TableFormat")
    for ending in file_format.endings:
        FORMATS[ending] = file_format


def find_format(path: Path) -> FieldFormat | TableFormat:
    """The format of a file, from the ending of its name."""
    endings = [suffix.lower() for suffix in path.suffixes if suffix.lower() not in COMPRESSION]
    if not endings or endings[-1] not in FORMATS:
        raise FileError(f"{path} has an unknown file format; its name must end in one of {', '.join(FORMATS)}.")
    return FORMATS[endings[-1]]


def is_table(path: Path) -> bool:
    """Whether the format of a file holds a table rather than gridded fields."""
    return isinstance(find_format(path), TableFormat)
