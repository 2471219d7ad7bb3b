"""Checks of all paths of a command, before anything is read or computed."""

from collections.abc import Collection, Mapping
from pathlib import Path

from lkgp.persistence.paths import check_distinct, check_writable


def check_outputs(
    inputs: Mapping[str, Path | None],
    outputs: Mapping[str, Path | None],
    *,
    overwrite: bool,
    folders: Collection[str] = (),
) -> None:
    """Refuse outputs that cannot, or must not, be written, or that would replace an input or each other.

    inputs, outputs: paths by the names under which users know them, such as INPUT and --report; None is one that was
        not given
    overwrite: whether existing files may be replaced
    folders: the names of outputs that are folders of files, as Zarr stores are
    """
    check_distinct(given_paths(inputs), given_paths(outputs))
    for name, path in given_paths(outputs).items():
        check_writable(path, overwrite=overwrite, is_folder=name in folders)


def given_paths(paths: Mapping[str, Path | None]) -> dict[str, Path]:
    """The paths that were given."""
    return {name: path for name, path in paths.items() if path is not None}
