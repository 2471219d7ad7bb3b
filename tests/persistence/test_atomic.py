"""Files are written completely, or not at all."""

import os
from pathlib import Path

import pytest

import xarray as xr
from lkgp.errors import FileError
from lkgp.persistence.atomic import write_atomically


def test_an_interrupted_or_failed_write_leaves_nothing(tmp_path):
    path = tmp_path / "out.nc"
    path.write_text("before")

    def fail(temporary):
        temporary.write_text("half")
        raise OSError(28, "No space left on device")

    with pytest.raises(FileError, match=r"could not be written, and nothing was left behind.*No space left"):
        write_atomically(path, fail)

    def stop(temporary):
        temporary.write_text("half")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_atomically(path, stop)
    assert path.read_text() == "before"
    assert [p.name for p in tmp_path.iterdir()] == ["out.nc"]


def test_a_folder_is_never_replaced_by_a_file(tmp_path):
    folder, store = tmp_path / "reports", tmp_path / "store.zarr"
    folder.mkdir()
    (folder / "keep.txt").write_text("keep me")
    xr.Dataset({"a": 1}).to_zarr(store, consolidated=False)
    for path in (folder, store):
        with pytest.raises(FileError, match="give the name of a file"):
            write_atomically(path, lambda temporary: temporary.write_text("new"))
    assert (folder / "keep.txt").read_text() == "keep me"
    assert "a" in xr.open_zarr(store, consolidated=False)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["reports", "store.zarr"]


def test_ctrl_c_between_two_stores_keeps_the_older_one(tmp_path, monkeypatch):
    path = tmp_path / "out.zarr"
    xr.Dataset({"a": 1}).to_zarr(path, consolidated=False)
    move = os.replace

    def stopped(source, target):
        if Path(target) == path and Path(source).name == path.name:  # the new one is about to take its place
            raise KeyboardInterrupt
        move(source, target)

    monkeypatch.setattr(os, "replace", stopped)
    with pytest.raises(KeyboardInterrupt):
        write_atomically(path, lambda temporary: xr.Dataset({"b": 1}).to_zarr(temporary, consolidated=False))
    assert "a" in xr.open_zarr(path, consolidated=False)
    assert [p.name for p in tmp_path.iterdir()] == ["out.zarr"]
