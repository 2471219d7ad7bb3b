"""Files that are written whole or not at all."""

import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from lkgp.errors import FileError

# A Zarr store has one of these files at its root, by its version.
STORE_FILES = ("zarr.json", ".zgroup", ".zmetadata", ".zattrs")
# A disk with less space than this, in bytes, counts as full.
FULL_DISK = 16384


def check_not_a_folder(path: Path) -> None:
    """Refuse to replace a folder, unless it is a Zarr store."""
    if path.is_dir() and not any((path / name).exists() for name in STORE_FILES):
        raise FileError(f"{path} is a folder, and not a Zarr store that could be replaced; name a file.")


def write_whole(path: Path, write: Callable[[Path], object]) -> None:
    """Let `write` write to a temporary place beside `path`, and move the result there once it is complete."""
    check_not_a_folder(path)
    try:
        # A folder, so that the file inside can have its own ending, which tells writers the format.
        folder = Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name}."))
    except OSError as error:
        raise FileError(f"{path} cannot be written: {error.strerror}.") from None
    temporary, before = folder / path.name, folder / "before"
    try:
        write(temporary)
        if path.is_dir():  # a Zarr store; a folder cannot be replaced in one step
            if not temporary.is_dir():
                raise IsADirectoryError("a Zarr store is there, and only another one may replace it; name a file")
            os.replace(path, before)
        os.replace(temporary, path)
    except (OSError, RuntimeError, TypeError, ValueError) as error:
        # Not every library can tell that the disk is full; what was half written still is on it.
        why = "no space is left on the disk" if shutil.disk_usage(folder).free < FULL_DISK else first_line(error)
        raise FileError(f"{path} could not be written, and nothing was left behind: {why}.") from None
    finally:
        if before.exists() and not path.exists():  # however this ended, Ctrl-C included
            os.replace(before, path)
        shutil.rmtree(folder, ignore_errors=True)


def first_line(error: BaseException) -> str:
    """The first line of what an error says."""
    return (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")
