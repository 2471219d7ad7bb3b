"""netCDF, Zarr, CSV and Parquet in and out, and the commands for people with gridded data."""

import json
import os
import resource
import signal
import subprocess
import sys
import time
import warnings
from pathlib import Path

import cftime
import netCDF4
import numpy as np
import pandas as pd
import pytest
import typer
from fields import small_field
from typer.testing import CliRunner

import xarray as xr
from lkgp.cli import app
from lkgp.cli.common import Stopped, err, errors_for_people
from lkgp.errors import FileError, InputError
from lkgp.persistence.atomic import write_atomically
from lkgp.xarray import storage
from lkgp.xarray.tables import Table


def run(*arguments, code=0):
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == code, result.output + str(result.exception)
    return result


@pytest.fixture
def small(tmp_path):
    """A small file with gaps."""
    field = small_field(places=(2, 3), times=16).rename("t2m")
    path = tmp_path / "in.nc"
    field.to_dataset().to_netcdf(path)
    return path


@pytest.fixture(scope="module")
def stations():
    """A long table: six stations, of which one starts late, with rows that repeat and rows without a value."""
    rng = np.random.default_rng(0)
    days = pd.date_range("2021-01-01", periods=30)
    rows = []
    for k in range(6):
        where = {"station": f"S{k}", "lat": 50 + 0.3 * k, "lon": 359.5 + 0.2 * k, "elevation": 10.0 * k}
        for i, day in enumerate(days):
            if (k == 3 and i < 12) or rng.random() < 0.15:
                continue
            value = 5 + np.sin(i / 4) + 0.1 * k + 0.05 * rng.standard_normal()
            rows.append({"date": day.strftime("%Y-%m-%d"), **where, "temp": value, "remark": "ok"})
    rows[7]["temp"] = np.nan
    rows += [{**rows[4], "temp": rows[4]["temp"] + 0.02}, {**rows[20], "temp": rows[20]["temp"] - 0.02}]
    return pd.DataFrame(rows)


# Tables


def test_a_long_table_comes_back_with_all_its_rows(stations, tmp_path):
    stations.to_csv(tmp_path / "in.csv", index=False)
    result = run("fill", tmp_path / "in.csv", tmp_path / "out.csv")
    assert "2 rows repeat" in result.output
    filled = pd.read_csv(tmp_path / "out.csv")
    assert list(filled.columns) == [*stations.columns, "temp_std", "temp_filled"]
    assert len(filled) == 6 * 30 + 2
    assert filled["temp"].notna().all()
    assert filled.groupby(["station", "date"]).size().shape == (180,)
    # What was given is there as it was, repeated rows too.
    given = filled[filled.temp_filled == 0].merge(
        stations.dropna(subset="temp"), on=list(stations.columns), how="outer", indicator=True
    )
    assert (given._merge == "both").all()
    late = filled[(filled.station == "S3") & (filled.date < "2021-01-13")]
    assert (late.temp_filled == 1).all()
    assert np.allclose(late.elevation, 30.0)
    truth = 5 + np.sin(np.arange(12) / 4) + 0.3
    assert np.abs(late.temp - truth).max() < 0.4
    assert list(dict.fromkeys(filled.station)) == [f"S{k}" for k in range(6)]


def test_a_wide_table_and_parquet(stations, tmp_path):
    wide = stations.pivot_table(index="date", columns="station", values="temp").reset_index()
    wide.to_parquet(tmp_path / "in.parquet")
    run("fill", tmp_path / "in.parquet", tmp_path / "out.parquet", "--quiet")
    filled = pd.read_parquet(tmp_path / "out.parquet")
    assert len(filled) == len(wide)
    for k in range(6):
        seen = wide[f"S{k}"].notna()
        assert np.array_equal(filled[f"S{k}"][seen], wide[f"S{k}"][seen])
        assert filled[f"S{k}"].notna().all()
        assert np.array_equal(filled[f"S{k}_filled"] == 1, ~seen)
        assert (filled[f"S{k}_std"] > 0).all()


def test_tables_that_cannot_be_understood_are_refused(stations):
    with pytest.raises(InputError, match="no column 'when'; there are date"):
        Table.of(stations, time="when")
    with pytest.raises(InputError, match="no column looks like time"):
        Table.of(stations.drop(columns="date"))
    with pytest.raises(InputError, match="name the column that tells them apart"):
        Table.of(stations[["date", "temp"]])
    with pytest.raises(InputError, match="no column to fill holds numbers"):
        Table.of(stations[["date", "station", "remark"]])
    with pytest.raises(InputError, match="holds 'never', but dates are needed as ISO 8601"):
        Table.of(stations.assign(date="never"))
    with pytest.raises(InputError, match="temp holds text such as '3,5'"):
        Table.of(stations.assign(temp="3,5"))
    with pytest.raises(InputError, match="a column 'temp_std' already"):
        Table.of(stations.assign(temp_std=1.0))
    with pytest.raises(InputError, match="empty in row 1"):
        Table.of(stations.assign(date=stations.date.where(stations.index > 0)))
    moving = stations.copy()
    moving.loc[3, "lat"] += 1
    with pytest.raises(InputError, match="the lat of the station 'S0' is not always the same"):
        Table.of(moving).to_dataset()
    unnamed = Table.of(stations.drop(columns="station"))
    assert unnamed.to_dataset().sizes["station"] == 6


def test_dates_and_names_come_back_as_they_were(tmp_path):
    """German dates, days as whole numbers, and names of stations with zeros in front."""
    days = pd.date_range("2020-01-25", periods=20)
    for form in ("%d.%m.%Y", "%Y%m%d"):
        rows = [
            {"station": name, "date": day.strftime(form), "v": np.sin(i / 3)}
            for name in ("00433", "NA")
            for i, day in enumerate(days)
        ]
        pd.DataFrame(rows).drop(index=[5, 30]).to_csv(tmp_path / "in.csv", index=False)
        option = ["--date-format", form] if form == "%d.%m.%Y" else []
        run("fill", tmp_path / "in.csv", tmp_path / "out.csv", "--overwrite", "--quiet", *option)
        filled = pd.read_csv(tmp_path / "out.csv", dtype=str, keep_default_na=False)
        assert sorted(set(filled.station)) == ["00433", "NA"]
        assert filled[filled.station == "NA"].date.tolist() == days.strftime(form).tolist()
        assert (filled.v_filled == "1").sum() == 2
    assert "of the form %H" in run("inspect", tmp_path / "in.csv", "--date-format", "%H", code=2).output.replace(
        "\n", " "
    )


# Files


def test_a_file_with_everything_comes_back_with_everything_in_its_place(tmp_path):
    """A land mask, decreasing latitude, longitudes from 0 to 360, a calendar of 360 days, 16-bit packing and two variables."""
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


def test_bad_files_and_outputs_are_refused_in_a_sentence(small, tmp_path):
    (tmp_path / "text.nc").write_text("this is not netCDF")
    (tmp_path / "there.nc").write_text("keep me")
    nothing = xr.load_dataset(small)
    (nothing * np.nan).to_netcdf(tmp_path / "nothing.nc")
    xr.Dataset({"a": (("x", "y"), [[1.0, np.nan]])}).to_netcdf(tmp_path / "bare.nc")
    for arguments, message in (
        ((tmp_path / "text.nc", tmp_path / "o.nc"), "is not a netCDF file that can be read"),
        ((tmp_path / "gone.nc", tmp_path / "o.nc"), "is not there"),
        ((small, tmp_path / "there.nc"), "pass --overwrite"),
        ((small, tmp_path / "no" / "o.nc"), "make it first"),
        ((small, Path("/proc/o.nc")), "cannot be written to"),
        ((small, tmp_path / "o.xyz"), "tells no format"),
        ((small, tmp_path / "o.csv"), "both be tables, or neither"),
        ((small, tmp_path / "o.nc", "-v", "wind"), "no variable 'wind'; there are t2m"),
        ((small, tmp_path / "o.nc", "--station", "a"), "--station is for tables"),
        ((small, tmp_path / "o.nc", "--max-memory", "much"), "a size such as 4GB"),
        ((tmp_path / "nothing.nc", tmp_path / "o.nc"), "nothing is observed"),
        ((tmp_path / "bare.nc", tmp_path / "o.nc"), "has no coordinates"),
    ):
        output = run("fill", *arguments, code=2).output
        assert message in output.replace("\n", " "), output
        assert "Traceback" not in output
        assert not (tmp_path / "o.nc").exists()
    assert (tmp_path / "there.nc").read_text() == "keep me"


def test_nothing_missing_is_said_and_still_smoothed(small, tmp_path):
    whole = xr.load_dataset(small).fillna(281.0)
    whole.to_netcdf(tmp_path / "whole.nc")
    assert "no variable has gaps" in run("fill", tmp_path / "whole.nc", tmp_path / "o.nc", code=2).output
    result = run("fill", tmp_path / "whole.nc", tmp_path / "o.nc", "-v", "t2m", "--smooth")
    assert "nothing is missing" in result.output
    smooth = xr.load_dataset(tmp_path / "o.nc")
    assert float(np.abs(smooth.t2m - whole.t2m).max()) > 0
    assert bool((smooth.t2m_std > 0).all())


def test_inspect_tells_what_is_missing_and_what_it_would_take(small):
    text = run("inspect", small).output
    for words in ("t2m", "missing", "latitude x longitude (places on the sphere)", "along time: ", "GB of memory"):
        assert words in text
    (found,) = json.loads(run("inspect", small, "--json").output)
    assert found["cells"] == 80
    assert found["never"] == 16
    assert found["memory"] > 0


def test_models_are_kept_and_asked_again(small, tmp_path):
    model = tmp_path / "m.lkgp"
    found = json.loads(
        run("fill", small, tmp_path / "o.nc", "--model", model, "--json", "--validate", "--quiet").output
    )
    assert found["variables"][0]["name"] == "t2m"
    assert found["variables"][0]["validation"]["scores"]["lkgp"]["rmse"] < 1
    assert found["peak_memory"] > 1e8
    run("predict", model, tmp_path / "p.nc", "--at", "time=2019-03-02T12,2019-03-02T13", "--at", "latitude=50.5")
    predicted = xr.load_dataset(tmp_path / "p.nc")
    assert predicted.t2m.sizes == {"time": 2, "latitude": 1, "longitude": 3}
    run("predict", model, tmp_path / "l.nc", "--like", small, "--field-only")
    assert xr.load_dataset(tmp_path / "l.nc").t2m.sizes == {"time": 16, "latitude": 2, "longitude": 3}
    run("sample", model, tmp_path / "s.nc", "--samples", "3")
    assert xr.load_dataset(tmp_path / "s.nc").t2m.sizes["sample"] == 3
    assert "linear in time" in run("validate", model).output
    assert "lkgp" in json.loads(run("validate", model, "--json").output)["scores"]
    assert "NAME=VALUE" in run("predict", model, tmp_path / "q.nc", "--at", "noon", code=2).output
    run("predict", model, tmp_path / "p.csv", "--at", "time=2019-03-02T12,2019-03-02T13", "--at", "latitude=50.5")
    rows = pd.read_csv(tmp_path / "p.csv", parse_dates=["time"]).set_index(["time", "latitude", "longitude"]).t2m
    np.testing.assert_allclose(
        rows.to_xarray().sel(predicted.indexes), predicted.t2m.transpose("time", "latitude", "longitude")
    )
    run("sample", model, tmp_path / "s.parquet", "--samples", "3")
    assert len(pd.read_parquet(tmp_path / "s.parquet")) == 3 * xr.load_dataset(small).t2m.size
    assert "not a model" in run("validate", small, code=2).output


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


def test_a_full_disk_costs_nothing(small, tmp_path):
    """No file of this process may grow beyond 4 kB, as on a disk that is full."""

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


# What a reviewer found


def test_a_folder_is_never_replaced_by_a_file(small, tmp_path):
    folder, store = tmp_path / "reports", tmp_path / "store.zarr"
    folder.mkdir()
    (folder / "keep.txt").write_text("keep me")
    for option in ("--report", "--model"):
        output = run("fill", small, tmp_path / "o.nc", option, folder, "--overwrite", code=2).output
        assert "reports is a folder" in output.replace("\n", "")
    xr.Dataset({"a": 1}).to_zarr(store, consolidated=False)
    for path in (folder, store):
        with pytest.raises(FileError, match="name a file"):
            write_atomically(path, lambda temporary: temporary.write_text("new"))
    assert (folder / "keep.txt").read_text() == "keep me"
    assert "a" in xr.open_zarr(store, consolidated=False)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["in.nc", "reports", "store.zarr"]


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


def test_tables_are_smoothed_where_they_have_values_too(stations):
    wide = Table.of(
        stations.drop_duplicates(["station", "date"])
        .pivot(index="date", columns="station", values="temp")
        .reset_index()
    )
    for table, name, column in ((Table.of(stations), "temp", "temp"), (wide, "value", "S0")):
        dataset = table.to_dataset()
        known = xr.zeros_like(dataset[name])
        known[0, 0] = np.nan  # what the model left alone
        result = xr.Dataset({name: known, f"{name}_std": known, f"{name}_filled": known})
        smooth, plain = table.filled(result, smooth=True), table.filled(result)
        assert (smooth[column].isin([0.0, table.frame[column].iloc[0]])).all()
        assert (smooth[column] == 0.0).sum() > 20
        seen = table.frame[column].dropna()
        assert seen.isin(plain[column]).all()


@pytest.mark.parametrize(
    ("offsets", "expected"),
    [
        (("+01:00", "+01:00"), "2019-03-01 06:00:00+01:00"),
        (("+01:00", "+02:00"), "2019-03-01 05:00:00+00:00"),  # summer time begins
        (("", ""), "2019-03-01 06:00:00"),
    ],
)
def test_dates_come_back_with_their_offset(offsets, expected):
    days = [f"2019-03-01T06:00{offsets[0]}", f"2019-04-01T06:00{offsets[1]}"]
    table = Table.of(pd.DataFrame({"date": days, "station": "a", "v": [1.5, 2.5]}))
    dataset = table.to_dataset()
    assert dataset.date.values[0] == np.datetime64("2019-03-01T05:00" if offsets[0] else "2019-03-01T06:00")
    assert str(table.filled(dataset.assign(v_std=dataset.v, v_filled=dataset.v)).date[0]) == expected


def test_the_models_of_several_variables_have_names_of_their_own(small, tmp_path):
    two = xr.load_dataset(small)
    two.assign(other=two.t2m + 1).to_netcdf(tmp_path / "two.nc")
    (tmp_path / "m-other.lkgp").write_text("keep me")
    arguments = ("fill", tmp_path / "two.nc", tmp_path / "o.nc", "--model", tmp_path / "m.lkgp")
    assert "pass --overwrite" in run(*arguments, code=2).output
    assert (tmp_path / "m-other.lkgp").read_text() == "keep me"
    assert not (tmp_path / "o.nc").exists()
    paths = [str(tmp_path / f"m-{name}.lkgp") for name in ("t2m", "other")]
    found = json.loads(run(*arguments, "--overwrite", "--json", "--quiet").output)
    assert found["models"] == paths
    said = run(*arguments, "--overwrite").output.replace("\n", "")
    assert f"kept the model of other in {paths[1]}" in said
    assert not (tmp_path / "m.lkgp").exists()


def test_ctrl_c_while_a_model_is_kept_tells_what_is_written(small, tmp_path, monkeypatch):
    def stop(*_):
        raise Stopped

    monkeypatch.setattr("lkgp.xarray.FieldModel.save", stop)
    output = run("fill", small, tmp_path / "o.nc", "--model", tmp_path / "m.lkgp", code=130).output
    assert "o.nc is written, but not all" in output.replace("\n", "")


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
        (tmp_path / "map.nc", ("--max-gap", "6h"), "no dimension of time"),
        (tmp_path / "two.nc", (), "empty is NaN everywhere"),
    ):
        output = run("fill", source, tmp_path / "o.nc", *arguments, code=2).output
        assert message in output.replace("\n", " ")
    for fill in (two.lkgp.fill, two.t2m.lkgp.fill):
        with pytest.raises(InputError, match="length of time such as"):
            fill(max_gap="6")


def test_a_file_with_two_fill_values_is_written(small, tmp_path):
    dataset = xr.load_dataset(small)
    dataset["t2m"].encoding = {"_FillValue": np.float32(1e20), "missing_value": np.float32(-999.0)}
    dataset["latitude"].encoding = {"_FillValue": 1e20, "missing_value": 1e20}
    storage.write_dataset(dataset, tmp_path / "o.nc")
    with netCDF4.Dataset(tmp_path / "o.nc") as file:
        assert file["t2m"]._FillValue == np.float32(1e20)
        assert "missing_value" not in file["t2m"].ncattrs()
        assert file["latitude"].missing_value == 1e20


def test_values_that_are_damaged_are_told_in_a_sentence(tmp_path):
    values = np.random.default_rng(0).standard_normal((40, 20, 20))
    coords = {"time": np.arange(40.0), "lat": np.linspace(40, 50, 20), "lon": np.linspace(0, 10, 20)}
    path = tmp_path / "in.nc"
    xr.Dataset({"v": (("time", "lat", "lon"), values)}, coords).to_netcdf(
        path, encoding={"v": {"zlib": True, "fletcher32": True}}
    )
    damaged = bytearray(path.read_bytes())
    damaged[len(damaged) // 2] ^= 0xFF
    path.write_bytes(bytes(damaged))
    output = run("inspect", path, code=2).output
    assert "holds values that cannot be read" in output.replace("\n", " ")


def test_want_of_memory_and_of_files_is_told_in_a_sentence():
    for error, message in (
        (
            RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate"),
            "too little memory",
        ),
        (OSError(5, "Input/output error"), "could not be read or written"),
    ):
        with err.capture() as said, pytest.raises(typer.Exit) as stopped, errors_for_people():
            raise error
        assert stopped.value.exit_code == 1
        assert message in said.get()
    with pytest.raises(RuntimeError, match="a mistake of ours"), errors_for_people():
        raise RuntimeError("a mistake of ours")


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


def test_stations_are_asked_by_names_that_look_like_numbers(tmp_path):
    days = pd.date_range("2020-01-25", periods=12)
    rows = [
        {"station": name, "date": day, "v": np.sin(i / 3)} for name in ("00433", "00500") for i, day in enumerate(days)
    ]
    pd.DataFrame(rows).drop(index=[5, 15]).to_csv(tmp_path / "in.csv", index=False)
    run("fill", tmp_path / "in.csv", tmp_path / "out.csv", "--model", tmp_path / "m.lkgp", "--quiet")
    run("predict", tmp_path / "m.lkgp", tmp_path / "p.nc", "--at", "station=00500", "--at", "date=2020-02-01")
    assert xr.load_dataset(tmp_path / "p.nc").v.sizes == {"station": 1, "date": 1}


def test_quiet_is_quiet(stations, tmp_path):
    stations.to_csv(tmp_path / "in.csv", index=False)
    assert run("fill", tmp_path / "in.csv", tmp_path / "out.csv", "--quiet").output == ""
    with errors_for_people(quiet=True):
        warnings.warn("nobody asked for this", stacklevel=1)
