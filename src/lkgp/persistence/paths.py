"""Check paths before a long computation: what is to be written can be written, and nothing else is lost by it."""

import os
import stat
import tempfile
import unicodedata
from collections.abc import Mapping
from pathlib import Path

from lkgp.errors import FileError
from lkgp.persistence.atomic import check_not_a_folder, temporary_folder


def check_distinct(inputs: Mapping[str, Path], outputs: Mapping[str, Path]) -> None:
    """Refuse outputs that are, contain or lie inside an input or another output.

    inputs, outputs: paths by the name under which users know them, such as INPUT and --report
    """
    names = list(outputs)
    for i, name in enumerate(names):
        for other, path in inputs.items():
            if overlap(outputs[name], path):
                raise FileError(
                    f"{name} ({outputs[name]}) would replace {other} ({path}), or a part of it; choose another name."
                )
        for other in names[:i]:
            if overlap(outputs[name], outputs[other]):
                raise FileError(
                    f"{other} ({outputs[other]}) and {name} ({outputs[name]}) would overwrite each other; give each a "
                    "path of its own."
                )


def overlap(one: Path, two: Path) -> bool:
    """Whether two paths are the same, even by another name or link, or one of them lies inside the other."""
    try:
        pairs = [(a, b) for a in locations(one) for b in locations(two)]
        return any(is_within(a, b) or is_within(b, a) for a, b in pairs)
    except (OSError, RuntimeError):  # a loop of links, or a name too long; whoever opens the path says so
        return False


def locations(path: Path) -> set[Path]:
    """Where a path is: what it links to, and the link itself, which is what a write replaces."""
    return {path.resolve(), path.parent.resolve() / path.name}


def is_within(inner: Path, outer: Path) -> bool:
    """Whether a resolved path is another one or lies inside it."""
    return any(is_same(part, outer) for part in (inner, *inner.parents))


def is_same(one: Path, two: Path) -> bool:
    """Whether two resolved paths are the same file or folder, or would be if they existed."""
    if one == two:
        return True
    if one.exists() and two.exists():
        return os.path.samefile(one, two)  # knows hard links, and file systems that ignore the case of names
    same_name = plain_name(one) == plain_name(two)
    return (
        same_name
        and is_same(one.parent, two.parent)
        and (
            unicodedata.normalize("NFC", one.name) == unicodedata.normalize("NFC", two.name) or ignores_case(one.parent)
        )
    )


def plain_name(path: Path) -> str:
    """The name of a file without differences in case and in the encoding of accents."""
    return unicodedata.normalize("NFC", path.name).casefold()


def ignores_case(folder: Path) -> bool:
    """Whether names in this folder that differ in case are the same."""
    try:
        with tempfile.NamedTemporaryFile(dir=folder, prefix=".lkgp-") as probe:
            return Path(probe.name).with_name(Path(probe.name).name.swapcase()).exists()
    except OSError:
        return False


def check_writable(path: Path, *, overwrite: bool, is_folder: bool = False) -> None:
    """Refuse a path that cannot, or must not, be written.

    overwrite: whether an existing file may be replaced
    is_folder: whether the output is a folder of files, as a Zarr store is
    """
    check_folder(path.parent)
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        mode = None
    except OSError as error:
        raise FileError(f"{path} cannot be written ({error.strerror}); choose another name.") from None
    if mode is not None:
        check_replaceable(path, mode, overwrite, is_folder)
    try:
        # exactly what is done when the file is written
        with temporary_folder(path) as folder:
            (folder / path.name).touch()
    except OSError as error:
        raise FileError(f"cannot write to the folder {path.parent} ({error.strerror}); choose another one.") from None


def check_folder(folder: Path) -> None:
    """Refuse a folder that does not exist or is none."""
    try:
        if folder.is_dir():
            return
        blocking = next((part for part in (folder, *folder.parents) if part.exists() and not part.is_dir()), None)
    except OSError as error:
        raise FileError(f"the folder {folder} cannot be used ({error.strerror}); choose another one.") from None
    if blocking is not None:
        raise FileError(f"{blocking} is a file, not a folder; choose another path.")
    raise FileError(f"the folder {folder} does not exist; create it first.")


def check_new_folder(folder: Path) -> None:
    """Refuse a folder to which files cannot be added, or that cannot be created with the folders around it."""
    try:
        existing = next(part for part in (folder, *folder.absolute().parents) if part.exists())
    except OSError as error:
        raise FileError(f"the folder {folder} cannot be used ({error.strerror}); choose another one.") from None
    if not existing.is_dir():
        raise FileError(f"{existing} is a file, not a folder; choose another path.")
    try:
        with temporary_folder(existing / "trial") as trial:
            (trial / folder.name).touch()
    except OSError as error:
        raise FileError(f"cannot write to the folder {existing} ({error.strerror}); choose another one.") from None


def check_replaceable(path: Path, mode: int, overwrite: bool, is_folder: bool) -> None:
    """Refuse to replace what exists at a path; mode: its type and permissions, as in `os.stat`."""
    check_not_a_folder(path)
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
        raise FileError(f"{path} is neither a file nor a folder; give the name of a file.")
    if not overwrite:
        raise FileError(f"{path} already exists; use --overwrite to replace it.")
    if stat.S_ISDIR(mode) != is_folder:
        was, new = ("Zarr store", "file") if stat.S_ISDIR(mode) else ("file", "Zarr store")
        raise FileError(f"{path} is a {was}, which a {new} cannot replace; choose another name.")
    if not mode & (stat.S_IWUSR | stat.S_IWGRP | stat.S_IWOTH) or not os.access(path, os.W_OK):
        raise FileError(f"{path} is read-only; choose another name, or make it writable.")
