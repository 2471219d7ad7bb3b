"""Atomic writes: a file is written completely, or not at all."""

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from lkgp.errors import FileError

# Which of these files a Zarr store has at its root depends on its version.
STORE_FILES = ("zarr.json", ".zgroup", ".zmetadata", ".zattrs")
# A disk with fewer free bytes than this counts as full. A few blocks may stay free when a write fails for
# lack of space; a larger number would blame the disk for errors that have another cause.
FULL_DISK = 16384
# Characters of the name of a file in that of its temporary folder: at four bytes each, they fit into the 255 of a name.
SHOWN_CHARACTERS = 40


def check_not_a_folder(path: Path) -> None:
    """Reject the path of a folder, unless the folder is a Zarr store."""
    if path.is_dir() and not any((path / name).exists() for name in STORE_FILES):
        raise FileError(f"{path} is a folder, not a file or Zarr store that can be replaced; give the name of a file.")


def make_temporary_folder(path: Path) -> Path:
    """A new folder beside `path`, in which the file is written: it keeps its ending, which tells writers the format."""
    # The beginning of the name tells users what it is; all of it could be too long for a name.
    return Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name[:SHOWN_CHARACTERS]}."))


@contextmanager
def temporary_folder(path: Path) -> Iterator[Path]:
    """The folder in which `path` would be written, for a trial."""
    folder = make_temporary_folder(path)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def write_atomically(path: Path, write: Callable[[Path], object]) -> None:
    """Let `write` write to a temporary path in the same folder, and move the result to `path` once it is complete."""
    check_not_a_folder(path)
    try:
        folder = make_temporary_folder(path)
    except OSError as error:
        raise FileError(f"{path} cannot be written: {error.strerror}.") from None
    temporary, before = folder / path.name, folder / "before"
    try:
        write(temporary)
        if path.is_dir():  # a Zarr store; a folder cannot be replaced in one step
            if not temporary.is_dir():
                raise IsADirectoryError("only another Zarr store may replace a Zarr store; give the name of a file")
            os.replace(path, before)
        os.replace(temporary, path)
    except (OSError, RuntimeError, TypeError, ValueError) as error:
        # Not every library reports that the disk is full. The incomplete file is still there, so the disk still is.
        why = "no space is left on the disk" if shutil.disk_usage(folder).free < FULL_DISK else first_line(error)
        raise FileError(f"{path} could not be written, and nothing was left behind: {why}.") from None
    finally:
        if before.exists() and not path.exists():  # however the write ended, even by Ctrl-C
            os.replace(before, path)
        shutil.rmtree(folder, ignore_errors=True)


def first_line(error: BaseException) -> str:
    """The first line of an error message, without its full stop."""
    return (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")
