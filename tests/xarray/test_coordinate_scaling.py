"""From labels to the points that a kernel sees."""

import cftime
import numpy as np
import pandas as pd
import pytest
from fields import factor_kinds, kilometres

import lkgp.xarray  # noqa: F401  (registers `.lkgp`)
import xarray as xr
from lkgp.errors import InputError
from lkgp.xarray.coordinate_scaling import CoordinateScaling
from lkgp.xarray.factors import choose_factors
from lkgp.xarray.summary import summarize


def test_the_dateline_and_full_turns_are_no_edge(field):
    factor = choose_factors(field)[0][0]
    east = field.assign_coords(longitude=[170.0, 175.0, 179.0, -178.0, -172.0])
    turned = east.assign_coords(longitude=[170.0, 175.0, 179.0, 182.0, 188.0])
    scaling = CoordinateScaling.of(factor, east.coords)
    x = scaling.to_points(east.coords)
    assert np.allclose(x, scaling.to_points(turned.coords))
    lat, lon = (a.ravel() for a in np.meshgrid(east.latitude, east.longitude, indexing="ij"))
    distances = np.linalg.norm(x[:, None] - x, axis=-1) * scaling.scale[0]
    expected = np.linalg.norm(kilometres(lat, lon)[:, None] - kilometres(lat, lon), axis=-1)
    assert np.allclose(distances, expected)
    circle = CoordinateScaling.of(choose_factors(field, factors=["latitude", "longitude", "time"])[0][1], field.coords)
    a, b = (circle.to_points({"longitude": xr.DataArray([value], dims="longitude")}) for value in (-0.5, 0.5))
    assert np.linalg.norm(a - b) * circle.scale[0] == pytest.approx(1.0, rel=1e-4)


def test_times_of_every_resolution_and_calendar_are_days(field):
    factor = choose_factors(field)[0][1]
    expected = np.arange(field.sizes["time"]) / 12
    for unit in ("s", "ms", "us", "ns"):
        same = field.assign_coords(time=field.time.values.astype(f"datetime64[{unit}]"))
        scaling = CoordinateScaling.of(factor, same.coords)
        assert np.allclose(
            scaling.to_points(same.coords)[:, 0] * scaling.scale[0] + scaling.shift[0], expected, atol=1e-9
        )
    for calendar, days in (("360_day", 30), ("noleap", 28), ("all_leap", 29)):
        dates = [cftime.datetime(2019, 2, 1, calendar=calendar), cftime.datetime(2019, 3, 1, 6, calendar=calendar)]
        short = field.isel(time=slice(2)).assign_coords(time=dates)
        scaling = CoordinateScaling.of(factor, short.coords)
        assert np.diff(scaling.to_points(short.coords)[:, 0])[0] * scaling.scale[0] == pytest.approx(
            days + 0.25, rel=1e-12
        )
        with pytest.raises(InputError, match=f"calendar '{calendar}'"):
            scaling.to_points(field.coords)
    broken = field.assign_coords(time=np.where(np.arange(40) == 3, np.datetime64("NaT"), field.time.values))
    with pytest.raises(InputError, match=r"NaT.* at position 3"):
        CoordinateScaling.of(factor, broken.coords)


def test_times_may_be_numbers(field):
    years = field.isel(latitude=[0, 1], longitude=[0, 1]).assign_coords(time=np.arange(40))
    assert factor_kinds(years)[-1] == (("time",), "time")
    filled, model = years.lkgp.fill(return_model=True, max_gap=3)
    assert int(filled.t2m_filled.sum()) > 0
    assert any("along time" in line.lower() and " time" in line for line in summarize(model))
    assert model.predict({"time": [40, 41]}).t2m.sizes["time"] == 2
    with pytest.raises(InputError, match="where numbers are needed"):
        model.predict({"time": ["soon"]})


def test_radians_are_degrees(field):
    """Cells of ICON have their places in radians."""
    cells = (
        field.stack(cell=("latitude", "longitude"))
        .reset_index("cell")
        .drop_vars("height")
        .isel(cell=slice(6), time=slice(12))
    )
    turned = cells.assign_coords({name: np.deg2rad(cells[name]) for name in ("latitude", "longitude")})
    for name in ("latitude", "longitude"):
        turned[name].attrs = {"standard_name": name, "units": "radian"}
    degrees, radians = cells.lkgp.fit(), turned.lkgp.fit()
    assert np.allclose(radians.layout.points()[0], degrees.layout.points()[0], atol=1e-9)
    asked = [
        model.predict({"latitude": [lat], "longitude": [0.0]}).t2m
        for model, lat in ((degrees, 50.5), (radians, np.deg2rad(50.5)))
    ]
    assert np.allclose(*asked, atol=1e-3)
    pole = np.float32([np.pi / 2])
    assert CoordinateScaling.of(
        radians.layout.factors[0], {"latitude": turned.latitude[:1].copy(data=pole), "longitude": turned.longitude[:1]}
    )


def test_a_row_at_the_pole_is_no_edge():
    """All of its places are one point, and its values are still those of places of their own."""
    rng = np.random.default_rng(0)
    lat, lon, t = np.array([90.0, 85.0, 80.0]), np.arange(0.0, 91.0, 5.0), np.arange(15)
    truth = np.cos(np.deg2rad(lat))[:, None] * np.cos(np.deg2rad(lon)) * 5 + np.sin(t / 3)[:, None, None]
    values = truth + 0.05 * rng.standard_normal(truth.shape)
    values[rng.random(values.shape) < 0.3] = np.nan
    coords = {"time": pd.date_range("2020", periods=15), "lat": lat, "lon": lon}
    filled = xr.DataArray(values.astype(np.float32), dims=("time", "lat", "lon"), coords=coords, name="v").lkgp.fill()
    assert np.abs(filled.v - truth).max() < 0.3
    assert float(filled.v_std.isel(lat=0).max()) < 0.15


def test_places_that_are_one_are_named():
    coords = {
        "lat": ("station", [50.0, 51.0, 51.0]),
        "lon": ("station", [0.0, 1.0, 361.0]),
        "time": pd.date_range("2020", periods=4),
    }
    array = xr.DataArray(np.arange(12.0).reshape(3, 4), dims=("station", "time"), coords=coords, name="v")
    with pytest.raises(InputError, match="station B and station C are at the same place; merge"):
        array.assign_coords(station=list("ABC")).lkgp.inspect()
    with pytest.raises(InputError, match=r"lat 51.0, lon 1.0 and lat 51.0, lon 361.0 are at the same place"):
        array.lkgp.inspect()
    apart = array.assign_coords(
        elevation=("station", [0.0, 5.0, 90.0], {"standard_name": "height", "units": "m", "axis": "Z"})
    )
    assert apart.lkgp.inspect().observed == 12


def test_lengths_of_time_and_places_off_the_map():
    lon, lat = np.meshgrid(np.arange(4.0), np.arange(50.0, 53.0))
    lat[0, 0] = lon[0, 0] = np.nan  # nothing is there, not even a place
    steps = np.arange(6).astype("timedelta64[h]").astype("timedelta64[ns]")
    rng = np.random.default_rng(0)
    values = np.sin(np.arange(5.0))[:, None, None, None] + rng.standard_normal((5, 6, 3, 4)) * 0.1
    values[:, :, 0, 0] = np.nan
    values[2, 3, 1, 1] = np.nan
    coords = {
        "lat": (("y", "x"), lat),
        "lon": (("y", "x"), lon),
        "step": steps,
        "time": pd.date_range("2020", periods=5),
    }
    array = xr.DataArray(values, dims=("time", "step", "y", "x"), coords=coords, name="v")
    assert [kind for _, kind in factor_kinds(array)] == ["sphere", "number", "time"]
    filled = array.lkgp.fill()
    assert int(filled.v_filled.sum()) == 1
    assert bool(filled.v[:, :, 0, 0].isnull().all())
