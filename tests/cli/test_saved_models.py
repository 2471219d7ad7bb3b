"""`lkgp inspect`, and the commands that ask a saved model: predict, sample and validate."""

import json

import numpy as np
import pandas as pd
from command_line import run

import xarray as xr


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
    run("predict", model, tmp_path / "n.nc", "--no-std")
    assert list(xr.load_dataset(tmp_path / "n.nc").data_vars) == ["t2m"]
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
