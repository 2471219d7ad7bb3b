"""Checks of output paths, before any work is done."""

import os
import tempfile
from pathlib import Path

from lkgp.errors import FileError
from lkgp.persistence.atomic import check_not_a_folder


def check_output(path: Path, overwrite: bool) -> None:
    """Refuse a path that cannot, or must not, be written."""
    check_not_a_folder(path)
    if path.exists() and not overwrite:
        raise FileError(f"{path} already exists; use --overwrite to replace it.")
    if not path.parent.is_dir():
        raise FileError(f"the folder {path.parent} does not exist; create it first.")
    try:
        os.rmdir(tempfile.mkdtemp(dir=path.parent))
    except OSError as error:
        raise FileError(f"cannot write to the folder {path.parent} ({error.strerror}); choose another one.") from None


def model_paths(path: Path | None, variables: list[str]) -> list[Path]:
    """Where to save the model of each variable: one file per variable; an empty list if no path was given."""
    if path is None:
        return []
    return [path] if len(variables) == 1 else [path.with_stem(f"{path.stem}-{name}") for name in variables]
