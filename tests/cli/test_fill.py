"""`lkgp fill` with gridded files: what is in the output, and what is refused."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import cftime
import netCDF4
import numpy as np
import pytest
from command_line import run
from fields import small_field

import xarray as xr
from lkgp.cli.errors import Stopped
from lkgp.errors import InputError


def test_a_file_with_everything_comes_back_with_everything_in_its_place(tmp_path):
    """Land mask, decreasing latitude, longitudes from 0 to 360, 360-day calendar, 16-bit packing, two variables."""
    base = small_field(places=(4, 5), times=24)
    dates = [cftime.Datetime360Day(2001, 2, 1 + k) for k in range(24)]
    field = base.assign_coords(time=("time", dates, {"standard_name": "time", "axis": "T"})).drop_vars("height")
    field = field.where(xr.DataArray(np.arange(20).reshape(4, 5) % 7 != 3, dims=("latitude", "longitude")))
    dataset = xr.Dataset(
        {
            "sst": field.assign_attrs(cell_methods="time: mean"),
            "salt": (field / 8).astype(np.float64),
            "mask": field.isnull().all("time").astype("i1"),
        },
        attrs={"title": "everything", "Conventions": "CF-1.8", "history": "made by hand"},
    )
    dataset["salt"].attrs = {"units": "1e-3", "standard_name": "sea_water_salinity"}
    dataset["longitude"].attrs["bounds"] = "lon_bnds"
    dataset["lon_bnds"] = (("longitude", "bnds"), np.stack([field.longitude - 0.5, field.longitude + 0.5], axis=1))
    packing = {
        "dtype": "int16",
        "scale_factor": 0.01,
        "add_offset": 280.0,
        "_FillValue": np.int16(-32768),
        "zlib": True,
    }
    path, result = tmp_path / "in.nc", tmp_path / "out.nc"
    dataset.to_netcdf(
        path,
        encoding={"sst": packing, "time": {"units": "hours since 2001-01-01", "calendar": "360_day", "dtype": "int32"}},
    )
    original = path.read_bytes()
    run("fill", path, result, "--quiet")
    assert path.read_bytes() == original
    with netCDF4.Dataset(path) as before, netCDF4.Dataset(result) as after:
        assert {name: len(dim) for name, dim in before.dimensions.items()} == {
            name: len(dim) for name, dim in after.dimensions.items()
        }
        assert set(after.variables) - set(before.variables) == {"sst_std", "sst_filled", "salt_std", "salt_filled"}
        for name, variable in before.variables.items():
            same = after.variables[name]
            assert same.dimensions == variable.dimensions
            assert same.dtype == variable.dtype, name
            ours = {key: same.getncattr(key) for key in same.ncattrs() if key != "ancillary_variables"}
            assert str(ours) == str({key: variable.getncattr(key) for key in variable.ncattrs()}), name
        assert after.variables["sst"].ancillary_variables == "sst_std sst_filled"
        assert after.variables["sst_std"].units == "K"
        assert after.history.splitlines()[-1] == "made by hand"
        assert after.title == "everything"
    old, new = xr.open_dataset(path), xr.open_dataset(result)
    xr.testing.assert_identical(
        old.coords.to_dataset().drop_attrs(deep=False), new.coords.to_dataset().drop_attrs(deep=False)
    )
    land = dataset.mask.astype(bool)
    for name in ("sst", "salt"):
        seen = old[name].notnull()
        assert bool((new[name] == old[name]).where(seen, True).all())
        assert bool(new[name].isnull().equals(xr.broadcast(land, new[name])[0].transpose(*new[name].dims)))
    old.close()
    new.close()


def test_zarr_in_and_out(small, tmp_path):
    xr.open_dataset(small).drop_encoding().to_zarr(tmp_path / "in.zarr", consolidated=False)
    run("fill", tmp_path / "in.zarr", tmp_path / "out.zarr", "--quiet")
    run("fill", tmp_path / "in.zarr", tmp_path / "out.zarr", "--quiet", "--overwrite")
    run("fill", small, tmp_path / "out.nc", "--quiet")
    zarr = xr.open_dataset(tmp_path / "out.zarr", engine="zarr", consolidated=False).load()
    netcdf = xr.load_dataset(tmp_path / "out.nc")
    assert np.allclose(zarr.t2m, netcdf.t2m, equal_nan=True)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["in.nc", "in.zarr", "out.nc", "out.zarr"]


def test_zarr_keeps_packing_chunks_and_units_of_time(small, tmp_path):
    packing = {"dtype": "int16", "scale_factor": 0.01, "add_offset": 280.0, "_FillValue": -32768, "chunks": (8, 2, 3)}
    time_ = {"units": "hours since 2000-01-01", "dtype": "int32"}
    xr.load_dataset(small).drop_encoding().to_zarr(
        tmp_path / "in.zarr", encoding={"t2m": packing, "time": time_}, consolidated=False
    )
    run("fill", tmp_path / "in.zarr", tmp_path / "out.zarr", "--quiet")
    run("fill", tmp_path / "in.zarr", tmp_path / "out.nc", "--quiet")
    filled = xr.open_dataset(tmp_path / "out.zarr", engine="zarr", consolidated=False)
    assert {key: filled.t2m.encoding[key] for key in packing} == {**packing, "dtype": np.dtype("int16")}
    assert filled.time.encoding["units"] == time_["units"]
    assert filled.t2m_std.encoding["chunks"] == (8, 2, 3)
    xr.testing.assert_allclose(filled.t2m.load(), xr.load_dataset(tmp_path / "out.nc").t2m)


def test_coordinates_and_bounds_gain_no_fill_value_and_companions_have_the_grid_mapping(small, tmp_path):
    dataset = xr.load_dataset(small).assign(crs=0)
    dataset["t2m"].attrs["grid_mapping"] = "crs"
    dataset["latitude"].attrs["bounds"] = "lat_bnds"
    dataset["lat_bnds"] = (("latitude", "nv"), np.stack([dataset.latitude - 1, dataset.latitude + 1], axis=1))
    for name in ("latitude", "longitude", "lat_bnds"):
        dataset[name].encoding = {"_FillValue": None}
    dataset.to_netcdf(tmp_path / "in.nc")
    run("fill", tmp_path / "in.nc", tmp_path / "o.nc", "--quiet")
    with netCDF4.Dataset(tmp_path / "o.nc") as file:
        for name in ("latitude", "longitude", "lat_bnds"):
            assert "_FillValue" not in file[name].ncattrs(), name
        for name in ("t2m", "t2m_std", "t2m_filled"):
            assert file[name].grid_mapping == "crs"


def test_nothing_missing_is_said_and_still_smoothed(small, tmp_path):
    whole = xr.load_dataset(small).fillna(281.0)
    whole.to_netcdf(tmp_path / "whole.nc")
    assert "no variable has gaps" in run("fill", tmp_path / "whole.nc", tmp_path / "o.nc", code=2).output
    result = run("fill", tmp_path / "whole.nc", tmp_path / "o.nc", "-v", "t2m", "--smooth")
    assert "nothing is missing" in result.output
    smooth = xr.load_dataset(tmp_path / "o.nc")
    assert float(np.abs(smooth.t2m - whole.t2m).max()) > 0
    assert bool((smooth.t2m_std > 0).all())


def test_the_models_of_several_variables_have_names_of_their_own(small, tmp_path):
    two = xr.load_dataset(small)
    two.assign(other=two.t2m + 1).to_netcdf(tmp_path / "two.nc")
    (tmp_path / "m-other.lkgp").write_text("keep me")
    arguments = ("fill", tmp_path / "two.nc", tmp_path / "o.nc", "--model", tmp_path / "m.lkgp")
    assert "use --overwrite" in run(*arguments, code=2).output
    assert (tmp_path / "m-other.lkgp").read_text() == "keep me"
    assert not (tmp_path / "o.nc").exists()
    paths = [str(tmp_path / f"m-{name}.lkgp") for name in ("t2m", "other")]
    found = json.loads(run(*arguments, "--overwrite", "--json", "--quiet").output)
    assert found["models"] == paths
    said = run(*arguments, "--overwrite").output.replace("\n", "")
    assert f"saved the model of other to {paths[1]}" in said
    assert not (tmp_path / "m.lkgp").exists()


def test_the_kernels_that_were_tried_are_told(small, tmp_path):
    arguments = ("fill", small, tmp_path / "o.nc", "--overwrite")
    (found,) = json.loads(run(*arguments, "--json", "--quiet").output)["variables"]
    compared = found["kernels"][-1]
    assert compared["factor"] == "time"
    assert len(compared["candidates"]) > 1
    best = compared["candidates"][0]["name"]
    assert any(note.startswith(f"{best} along time") for note in found["chosen"])
    assert f"chosen     {best} along time" in run(*arguments).output
    (fixed,) = json.loads(run(*arguments, "--smoothness", "1.5", "--json", "--quiet").output)["variables"]
    assert fixed["kernels"] == []


def test_ctrl_c_while_a_model_is_kept_tells_what_is_written(small, tmp_path, monkeypatch):
    def stop(*_):
        raise Stopped

    monkeypatch.setattr("lkgp.xarray.FieldModel.save", stop)
    output = run("fill", small, tmp_path / "o.nc", "--model", tmp_path / "m.lkgp", code=130).output
    assert "o.nc was written, but other outputs" in output.replace("\n", "")


def test_what_can_be_known_is_refused_before_the_fit(small, tmp_path, monkeypatch):
    def no_fit(*_, **__):
        raise AssertionError("a fit began")

    monkeypatch.setattr("lkgp.gp.LKGP.fit", no_fit)
    two = xr.load_dataset(small)
    two.assign(empty=two.t2m * np.nan).to_netcdf(tmp_path / "two.nc")
    two.t2m.isel(time=0, drop=True).to_netcdf(tmp_path / "map.nc")
    for source, arguments, message in (
        (small, ("--max-gap", "2weeks"), "length of time such as"),
        (small, ("--max-gap", "6"), "length of time such as '6h'"),
        (tmp_path / "map.nc", ("--max-gap", "6h"), "no time dimension"),
        (tmp_path / "two.nc", (), "empty is NaN everywhere"),
    ):
        output = run("fill", source, tmp_path / "o.nc", *arguments, code=2).output
        assert message in output.replace("\n", " ")
    for fill in (two.lkgp.fill, two.t2m.lkgp.fill):
        with pytest.raises(InputError, match="length of time such as"):
            fill(max_gap="6")


def test_a_folder_is_not_replaced_by_a_report_or_a_model(small, tmp_path):
    folder = tmp_path / "reports"
    folder.mkdir()
    (folder / "keep.txt").write_text("keep me")
    for option in ("--report", "--model"):
        output = run("fill", small, tmp_path / "o.nc", option, folder, "--overwrite", code=2).output
        assert "reports is a folder" in output.replace("\n", "")
    assert (folder / "keep.txt").read_text() == "keep me"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["in.nc", "reports"]


def test_a_full_disk_costs_nothing(small, tmp_path):
    """No file of this process may grow beyond 4 kB, as on a disk that is full."""
    resource = pytest.importorskip("resource", reason="only Unix can limit the size of files")

    def limit():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))

    before = small.read_bytes()
    command = [sys.executable, "-m", "lkgp.cli", "fill", str(small), str(tmp_path / "out.nc"), "--quiet"]
    done = subprocess.run(command, capture_output=True, text=True, preexec_fn=limit, check=False)
    assert done.returncode == 2, done.stderr
    assert "nothing was left behind" in done.stderr
    assert "Traceback" not in done.stderr
    assert small.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["in.nc"]


def test_ctrl_c_stops_and_leaves_nothing(tmp_path):
    field = small_field(places=(9, 9), times=200)
    field.to_dataset().to_netcdf(tmp_path / "in.nc")
    command = [sys.executable, "-m", "lkgp.cli", "fill", str(tmp_path / "in.nc"), str(tmp_path / "out.nc")]
    process = subprocess.Popen(
        command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, env={**os.environ, "OMP_NUM_THREADS": "1"}
    )
    assert process.stderr is not None
    line = b""
    while b"evaluation" not in line:  # until the fit is under way
        line = process.stderr.readline()
        assert line, "the fit ended before it could be stopped"
    time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    _, error = process.communicate(timeout=120)
    assert process.returncode == 130
    assert b"stopped; nothing was written" in error
    assert b"Traceback" not in error
    assert [p.name for p in Path(tmp_path).iterdir()] == ["in.nc"]


def test_error_bars_can_be_left_out(small, tmp_path):
    run("fill", small, tmp_path / "means.nc", "--no-std", "--quiet")
    assert list(xr.load_dataset(tmp_path / "means.nc").data_vars) == ["t2m", "t2m_filled"]
    for option in (["--calibrate"], ["--report", tmp_path / "page.html"]):
        assert "--no-std leaves out" in run("fill", small, tmp_path / "o.nc", "--no-std", *option, code=2).output
