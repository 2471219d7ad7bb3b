"""Checks of all paths of a command, before anything is read or computed."""

from collections.abc import Mapping
from pathlib import Path

from lkgp.persistence.paths import check_distinct, check_writable
from lkgp.xarray.formats.files import find_written_format


def check_paths(
    inputs: Mapping[str, Path | None],
    data: Mapping[str, Path],
    others: Mapping[str, Path | None],
    overwrite: bool,
) -> None:
    """Refuse paths that cannot, or must not, be written, and outputs that would replace an input or each other.

    Paths have the names under which users know them, such as INPUT and --report; None is one that was not given.

    inputs: what is read; data: outputs whose format follows from their name; others: further outputs, which are files
    overwrite: whether existing files may be replaced
    """
    folders = {name: find_written_format(path).is_folder for name, path in data.items()}
    outputs = {name: path for name, path in {**data, **others}.items() if path is not None}
    check_distinct({name: path for name, path in inputs.items() if path is not None}, outputs)
    for name, path in outputs.items():
        check_writable(path, overwrite=overwrite, is_folder=folders.get(name, False))


def model_paths(path: Path | None, variables: list[str]) -> dict[str, Path]:
    """Where to save the model of each variable, by its name: one file for each; nothing if no path was given."""
    if path is None:
        return {}
    if len(variables) == 1:
        return {variables[0]: path}
    # A slash in the name of a variable does not name a folder.
    return {name: path.with_name(f"{path.stem}-{name.replace('/', '_')}{path.suffix}") for name in variables}
