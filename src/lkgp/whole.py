"""Files that are written whole or not at all."""

import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from lkgp.errors import FileError


def write_whole(path: Path, write: Callable[[Path], object]) -> None:
    """Let `write` write to a temporary place beside `path`, and move the result there once it is complete."""
    try:
        # A folder, so that the file inside can have its own ending, which tells writers the format.
        folder = Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name}."))
    except OSError as error:
        raise FileError(f"{path} cannot be written: {error.strerror}.") from None
    try:
        temporary = folder / path.name
        write(temporary)
        if path.is_dir():  # a Zarr store; a folder cannot be replaced in one step
            os.replace(path, folder / "before")
        os.replace(temporary, path)
    except (OSError, RuntimeError, TypeError, ValueError) as error:
        if (folder / "before").exists() and not path.exists():
            os.replace(folder / "before", path)
        raise FileError(f"{path} could not be written, and nothing was left behind: {first_line(error)}.") from None
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def first_line(error: BaseException) -> str:
    """The first line of what an error says."""
    return (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")
