"""Zarr stores, which are folders."""

import json
import shutil
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

import xarray as xr
from lkgp.xarray.formats.base import FieldFormat, register
from lkgp.xarray.formats.encoding import EncodingRules, known_encoding, without_default_fill_values
from lkgp.xarray.formats.field_edit import Change, FieldEdit

NETCDF_STORAGE = ("chunksizes", "contiguous", "shuffle", "fletcher32", "endian")
NETCDF_COMPRESSION = ("zlib", "complevel", "szip", "zstd", "bzip2", "blosc")
ZARR = EncodingRules(unknown=NETCDF_STORAGE + NETCDF_COMPRESSION, text_dtype=False)
# How an array is divided and compressed, which new variables share with the one that they belong to.
STORAGE = ("chunks", "shards", "compressors")


class Zarr(FieldFormat):
    name = "Zarr"
    endings = (".zarr",)
    package = "zarr"
    is_folder = True

    def read(self, path: Path) -> xr.Dataset:
        with quiet():
            return xr.open_dataset(path, engine="zarr", decode_timedelta=False)

    def write(self, dataset: xr.Dataset, path: Path) -> None:
        known_encoding(dataset, ZARR).to_zarr(path, mode="w", consolidated=False)

    def read_stored(self, path: Path) -> dict[str, xr.Dataset]:
        with quiet():
            options = {"mask_and_scale": False, "decode_times": False, "decode_coords": False}
            return without_default_fill_values(xr.open_groups(path, engine="zarr", **options))

    def write_stored(self, groups: Mapping[str, xr.Dataset], path: Path) -> None:
        for i, (group, dataset) in enumerate(groups.items()):
            known_encoding(dataset, ZARR).to_zarr(path, mode="a" if i else "w", group=group, consolidated=False)

    def write_edited(self, source: Path, edit: FieldEdit, path: Path) -> None:
        """Change a copy of the store, in which groups, codecs and chunks without new values are what they were."""
        if not source.is_dir():
            super().write_edited(source, edit, path)
            return
        import zarr  # noqa: PLC0415  (slow to import, and optional)

        shutil.copytree(source, path)
        store = zarr.open_group(path, mode="r+", use_consolidated=False)
        attrs, version = dict(store.attrs), store.metadata.zarr_format
        added = edit.added.copy()
        for name, change in edit.changed.items():
            if not change_array(store[name], change, name):
                del store[name]  # its data type does not fit, and it is written anew
                added[name] = change.unpacked(name)
        added = known_encoding(added, ZARR)
        for name in added.variables:
            of = next(old for old in edit.changed if name in (old, f"{old}_std", f"{old}_filled"))
            before = edit.changed[of].before.encoding
            added[name].encoding |= {key: before[key] for key in STORAGE if before.get(key) is not None}
        added.to_zarr(path, mode="a", consolidated=False, zarr_format=version)
        store.attrs.put({**attrs, "history": edit.history})
        if is_consolidated(source):
            with quiet():
                zarr.consolidate_metadata(path)


def change_array(array: Any, change: Change, name: str) -> bool:
    """Write the chunks of an array that have changed cells; returns False if it cannot hold the new values."""
    raw, cells = np.asarray(array[...]), change.cells
    stored = change.stored(raw)
    if stored is None:
        return False
    size = array.shards or array.chunks
    for corner in product(*(range(0, n, step) for n, step in zip(array.shape, size, strict=True))):
        part = tuple(slice(start, start + step) for start, step in zip(corner, size, strict=True))
        if cells[part].any():
            array[part] = stored[part]
    again = np.asarray(array[...])
    if not np.array_equal(again[~cells], raw[~cells], equal_nan=raw.dtype.kind == "f"):
        warnings.warn(f"the codec of {name} loses digits, so that observed values change a little", stacklevel=2)
    array.attrs.update(change.new_attrs)
    return True


def is_consolidated(path: Path) -> bool:
    """Whether the metadata of all arrays of a store are kept in one place, too."""
    root = path / "zarr.json"
    return (path / ".zmetadata").exists() or (
        root.exists() and json.loads(root.read_text()).get("consolidated_metadata") is not None
    )


@contextmanager
def quiet() -> Iterator[None]:
    """Without the warnings that a store lacks consolidated metadata, or has them in a version that may change."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        warnings.simplefilter("ignore", UserWarning)
        yield


register(Zarr())
