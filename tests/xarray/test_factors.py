"""Which dimensions form which factor."""

import numpy as np
import pandas as pd
import pytest
from fields import factor_kinds

import xarray as xr
from lkgp.errors import InputError
from lkgp.xarray.factors import choose_factors


def test_factors_are_guessed_from_attributes_and_names(field):
    assert factor_kinds(field) == [(("latitude", "longitude"), "sphere"), (("time",), "time")]
    bare = field.rename(latitude="lat", longitude="lon").drop_attrs()
    assert factor_kinds(bare) == [(("lat", "lon"), "sphere"), (("time",), "time")]
    odd = field.rename(latitude="a", longitude="b", time="c")
    assert factor_kinds(odd) == [(("a", "b"), "sphere"), (("c",), "time")]


def test_factors_can_be_chosen(field):
    assert factor_kinds(field, factors=["latitude", "longitude", "time"]) == [
        (("latitude",), "number"),
        (("longitude",), "longitude"),
        (("time",), "time"),
    ]
    assert factor_kinds(field, space=["longitude"]) == [
        (("longitude",), "longitude"),
        (("latitude",), "number"),
        (("time",), "time"),
    ]
    for words, message in (
        ({"factors": ["latitude", "time"]}, "'longitude' is missing"),
        ({"factors": ["time", ("time", "latitude", "longitude")]}, "appears more than once"),
        ({"space": "depth"}, "'depth', but the field has time, latitude, longitude"),
        ({"space": ("latitude", "time")}, "'time' is the time dimension"),
        ({"space": "latitude", "factors": ["time"]}, "not both"),
    ):
        with pytest.raises(InputError, match=message):
            choose_factors(field, **words)


def test_stations_levels_members_and_grids_that_are_not_regular():
    place = {
        "lat": ("station", [50.0, 51.0, 52.0]),
        "lon": ("station", [1.0, 2.0, 3.0]),
        "elevation": ("station", [5.0, 300.0, 80.0]),
    }
    stations = xr.DataArray(
        np.zeros((3, 4, 2)),
        dims=("station", "time", "member"),
        coords={**place, "time": pd.date_range("2020", periods=4), "member": ["a", "b"]},
    )
    stations["elevation"].attrs = {"standard_name": "height", "units": "m", "axis": "Z", "positive": "up"}
    factors, _ = choose_factors(stations)
    assert [(f.kind, f.coords) for f in factors] == [
        ("sphere", ("lat", "lon", "elevation")),
        ("category", ("member",)),
        ("time", ("time",)),
    ]
    levels = xr.DataArray(
        np.zeros((2, 3, 4)),
        dims=("depth", "x", "y"),
        coords={"depth": [0.0, 10.0], "x": [1.0, 2, 3], "y": np.arange(4.0)},
    )
    assert factor_kinds(levels, space=("x", "y")) == [(("x", "y"), "plane"), (("depth",), "number")]
    lon, lat = np.meshgrid(np.arange(4.0), np.arange(50.0, 53.0))
    curved = xr.DataArray(
        np.zeros((3, 4)), dims=("j", "i"), coords={"lat": (("j", "i"), lat), "lon": (("j", "i"), lon)}
    )
    assert factor_kinds(curved) == [(("j", "i"), "sphere")]
    with pytest.raises(InputError, match="'x' has no coordinates"):
        choose_factors(xr.DataArray(np.zeros((2, 3)), dims=("x", "y"), coords={"y": [1, 2, 3]}))


def test_too_many_places_become_two_factors(monkeypatch, field):
    monkeypatch.setattr("lkgp.xarray.factors.MAX_PLACES", 10)
    factors, notes = choose_factors(field)
    assert [factor.dims for factor in factors] == [("latitude",), ("longitude",), ("time",)]
    assert "19 places are too many for one" in notes[0]


def test_a_dimension_along_which_places_do_not_vary_is_no_part_of_space(field):
    deep = field.expand_dims(depth=[0.0, 10.0])
    with pytest.raises(InputError, match="'depth' must be a factor of its own"):
        choose_factors(deep, space=("latitude", "longitude", "depth"))
