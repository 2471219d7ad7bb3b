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
    assert factor_kinds(levels, space=("x", "y")) == [(("x", "y"), "map"), (("depth",), "number")]
    assert factor_kinds(levels) == [(("x", "y"), "map"), (("depth",), "number")]
    levels.x.attrs["units"] = "km"
    assert factor_kinds(levels) == [(("x", "y"), "plane"), (("depth",), "number")]
    assert factor_kinds(levels, factors=["x", "y", "depth"])[:2] == [(("x",), "number"), (("y",), "number")]
    lon, lat = np.meshgrid(np.arange(4.0), np.arange(50.0, 53.0))
    curved = xr.DataArray(
        np.zeros((3, 4)), dims=("j", "i"), coords={"lat": (("j", "i"), lat), "lon": (("j", "i"), lon)}
    )
    assert factor_kinds(curved) == [(("j", "i"), "sphere")]
    with pytest.raises(InputError, match="'x' has no coordinates"):
        choose_factors(xr.DataArray(np.zeros((2, 3)), dims=("x", "y"), coords={"y": [1, 2, 3]}))


def test_places_are_one_factor_however_many():
    lat, lon = np.linspace(-60, 60, 120), np.linspace(0, 100, 200)
    many = xr.DataArray(np.zeros((120, 200)), dims=("lat", "lon"), coords={"lat": lat, "lon": lon})
    assert factor_kinds(many) == [(("lat", "lon"), "sphere")]
    assert factor_kinds(many, factors=["lat", "lon"]) == [(("lat",), "number"), (("lon",), "longitude")]


def plain_map(names=("a", "b"), units=(None, None), extents=(1.0, 1.0), time=None):
    coords = {
        name: (name, np.linspace(0, extent, 4), {} if unit is None else {"units": unit})
        for name, unit, extent in zip(names, units, extents, strict=True)
    }
    found = xr.DataArray(np.zeros((4, 4)), dims=names, coords=coords)
    return found if time is None else found.expand_dims(time=pd.date_range("2020", periods=time))


def test_the_numbers_of_a_plain_map_are_one_factor():
    both = ("a", "b")
    factors, notes = choose_factors(plain_map(units=("m", "m")))
    assert [(factor.dims, factor.kind) for factor in factors] == [(both, "map")]
    assert "a and b form one factor over places" in notes[0]
    # Without units, or with very different extents, each direction has its own scale.
    assert factor_kinds(plain_map()) == [(both, "plane")]
    assert factor_kinds(plain_map(units=("m", "m"), extents=(1.0, 100.0))) == [(both, "plane")]
    # The names of map coordinates are enough.
    assert factor_kinds(plain_map(("y", "x"))) == [(("y", "x"), "map")]
    assert factor_kinds(plain_map(("y", "x"), time=3)) == [(("y", "x"), "map"), (("time",), "time")]
    # Numbers of different units are no places, and neither are numbers beside time.
    assert factor_kinds(plain_map(units=("m", "s"))) == [(("a",), "number"), (("b",), "number")]
    assert factor_kinds(plain_map(), time="a") == [(("b",), "number"), (("a",), "time")]


def test_stations_with_x_and_y_are_places_on_a_map():
    stations = xr.DataArray(
        np.zeros((3, 4)),
        dims=("station", "time"),
        coords={
            "x": ("station", [0.0, 1.0, 5.0], {"units": "km"}),
            "y": ("station", [0.0, 2.0, 1.0], {"units": "km"}),
            "time": pd.date_range("2020", periods=4),
        },
    )
    factors, _ = choose_factors(stations)
    assert [(f.dims, f.kind, f.coords) for f in factors] == [
        (("station",), "map", ("y", "x")),
        (("time",), "time", ("time",)),
    ]


def test_a_dimension_along_which_places_do_not_vary_is_no_part_of_space(field):
    deep = field.expand_dims(depth=[0.0, 10.0])
    with pytest.raises(InputError, match="'depth' must be a factor of its own"):
        choose_factors(deep, space=("latitude", "longitude", "depth"))
