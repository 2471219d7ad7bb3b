"""What a file format must provide, and the registry in which it is found by the ending of a file name."""

from abc import ABC, abstractmethod
from collections.abc import Collection
from pathlib import Path
from typing import ClassVar

import pandas as pd

import xarray as xr
from lkgp.errors import FileError

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

    Both methods may raise OSError, ValueError, KeyError, RuntimeError or TypeError; the user sees the first line
    of the message.
    """

    @abstractmethod
    def read(self, path: Path) -> xr.Dataset:
        """Open a file; the values may be loaded later."""

    @abstractmethod
    def write(self, dataset: xr.Dataset, path: Path) -> None:
        """Write a file; `path` does not exist yet, and need not be left clean after an error."""


class TableFormat(FileFormat):
    """A format that holds a table with one header; its methods may raise the same errors as those of `FieldFormat`."""

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
