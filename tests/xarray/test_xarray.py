"""Fields of xarray: factors from labels, exact results, and manners."""

import cftime
import dask.array
import numpy as np
import pandas as pd
import pytest
import torch
from fields import kilometres, oracle_of, small_field
from gpytorch.kernels import MaternKernel, RBFKernel, ScaleKernel

import lkgp
import lkgp.xarray
import xarray as xr
from lkgp.errors import FileError, InputError
from lkgp.xarray.datasets import choose_variables
from lkgp.xarray.factors import choose_factors
from lkgp.xarray.kernels import default_kernels
from lkgp.xarray.points import Ruler
from lkgp.xarray.words import HALF, in_words


@pytest.fixture(scope="module")
def field():
    return small_field()


@pytest.fixture(scope="module")
def model(field):
    return lkgp.xarray.fit(field)


def kinds(field, **words):
    return [(factor.dims, factor.kind) for factor in choose_factors(field, **words)[0]]


# Which factors


def test_factors_are_guessed_from_attributes_and_names(field):
    assert kinds(field) == [(("latitude", "longitude"), "sphere"), (("time",), "time")]
    bare = field.rename(latitude="lat", longitude="lon").drop_attrs()
    assert kinds(bare) == [(("lat", "lon"), "sphere"), (("time",), "time")]
    odd = field.rename(latitude="a", longitude="b", time="c")
    assert kinds(odd) == [(("a", "b"), "sphere"), (("c",), "time")]


def test_factors_can_be_chosen(field):
    assert kinds(field, factors=["latitude", "longitude", "time"]) == [
        (("latitude",), "number"),
        (("longitude",), "longitude"),
        (("time",), "time"),
    ]
    assert kinds(field, space=["longitude"]) == [
        (("longitude",), "longitude"),
        (("latitude",), "number"),
        (("time",), "time"),
    ]
    for words, message in (
        ({"factors": ["latitude", "time"]}, "'longitude' is there nowhere"),
        ({"factors": ["time", ("time", "latitude", "longitude")]}, "more than once"),
        ({"space": "depth"}, "'depth'; the field has time, latitude, longitude"),
        ({"space": ("latitude", "time")}, "'time' is time"),
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
    assert kinds(levels, space=("x", "y")) == [(("x", "y"), "plane"), (("depth",), "number")]
    lon, lat = np.meshgrid(np.arange(4.0), np.arange(50.0, 53.0))
    curved = xr.DataArray(
        np.zeros((3, 4)), dims=("j", "i"), coords={"lat": (("j", "i"), lat), "lon": (("j", "i"), lon)}
    )
    assert kinds(curved) == [(("j", "i"), "sphere")]
    with pytest.raises(InputError, match="'x' has no coordinates"):
        choose_factors(xr.DataArray(np.zeros((2, 3)), dims=("x", "y"), coords={"y": [1, 2, 3]}))


def test_too_many_places_become_two_factors(monkeypatch, field):
    monkeypatch.setattr("lkgp.xarray.factors.MOST_PLACES", 10)
    factors, notes = choose_factors(field)
    assert [factor.dims for factor in factors] == [("latitude",), ("longitude",), ("time",)]
    assert "19 places are too many for one" in notes[0]


# From labels to numbers


def test_the_dateline_and_full_turns_are_no_edge(field):
    factor = choose_factors(field)[0][0]
    east = field.assign_coords(longitude=[170.0, 175.0, 179.0, -178.0, -172.0])
    turned = east.assign_coords(longitude=[170.0, 175.0, 179.0, 182.0, 188.0])
    ruler = Ruler.of(factor, east.coords)
    x = ruler.measure(east.coords)
    assert np.allclose(x, ruler.measure(turned.coords))
    lat, lon = (a.ravel() for a in np.meshgrid(east.latitude, east.longitude, indexing="ij"))
    distances = np.linalg.norm(x[:, None] - x, axis=-1) * ruler.scale[0]
    expected = np.linalg.norm(kilometres(lat, lon)[:, None] - kilometres(lat, lon), axis=-1)
    assert np.allclose(distances, expected)
    circle = Ruler.of(choose_factors(field, factors=["latitude", "longitude", "time"])[0][1], field.coords)
    a, b = (circle.measure({"longitude": xr.DataArray([value], dims="longitude")}) for value in (-0.5, 0.5))
    assert np.linalg.norm(a - b) * circle.scale[0] == pytest.approx(1.0, rel=1e-4)


def test_times_of_every_resolution_and_calendar_are_days(field):
    factor = choose_factors(field)[0][1]
    expected = np.arange(field.sizes["time"]) / 12
    for unit in ("s", "ms", "us", "ns"):
        same = field.assign_coords(time=field.time.values.astype(f"datetime64[{unit}]"))
        ruler = Ruler.of(factor, same.coords)
        assert np.allclose(ruler.measure(same.coords)[:, 0] * ruler.scale[0] + ruler.shift[0], expected, atol=1e-9)
    for calendar, days in (("360_day", 30), ("noleap", 28), ("all_leap", 29)):
        dates = [cftime.datetime(2019, 2, 1, calendar=calendar), cftime.datetime(2019, 3, 1, 6, calendar=calendar)]
        short = field.isel(time=slice(2)).assign_coords(time=dates)
        ruler = Ruler.of(factor, short.coords)
        assert np.diff(ruler.measure(short.coords)[:, 0])[0] * ruler.scale[0] == pytest.approx(days + 0.25, rel=1e-12)
        with pytest.raises(InputError, match=f"calendar '{calendar}'"):
            ruler.measure(field.coords)
    broken = field.assign_coords(time=np.where(np.arange(40) == 3, np.datetime64("NaT"), field.time.values))
    with pytest.raises(InputError, match=r"NaT.* at position 3"):
        Ruler.of(factor, broken.coords)


def test_cycles_are_put_in_where_they_can_be_seen(field):
    def cycles(times):
        short = field.isel(latitude=[0], longitude=[0], time=slice(0, 1)).reindex(time=times)
        layout = [Ruler.of(factor, short.coords) for factor in choose_factors(short)[0]]
        return default_kernels(layout, [ruler.measure(short.coords) for ruler in layout])[1]

    assert cycles(pd.date_range("2019", periods=100, freq="h")) == ["a daily cycle along time"]
    assert cycles(pd.date_range("2019", periods=60, freq="h")) == []
    assert cycles(pd.date_range("2019", periods=800, freq="D")) == ["a yearly cycle along time"]
    assert cycles(pd.date_range("2019", periods=4000, freq="6h")) == [
        "a daily cycle along time",
        "a yearly cycle along time",
    ]
    assert cycles(pd.date_range("2019", periods=100, freq="D")) == []


def test_times_may_be_numbers(field):
    years = field.isel(latitude=[0, 1], longitude=[0, 1]).assign_coords(time=np.arange(40))
    assert kinds(years)[-1] == (("time",), "time")
    filled, model = years.lkgp.fill(return_model=True, max_gap=3)
    assert int(filled.t2m_filled.sum()) > 0
    assert any("along time" in line.lower() and " time" in line for line in in_words(model))
    assert model.predict({"time": [40, 41]}).t2m.sizes["time"] == 2
    with pytest.raises(InputError, match="where numbers are needed"):
        model.predict({"time": ["soon"]})


# Exact results


def test_the_filled_field_is_that_of_the_dense_model(field, model):
    lat, lon = (a.ravel() for a in np.meshgrid(field.latitude, field.longitude, indexing="ij"))
    values = field.transpose("latitude", "longitude", "time").values.reshape(20, 40).astype(float)
    seen = np.isfinite(values).any(axis=1)
    assert seen.sum() == 19
    days = np.arange(40) / 12
    oracle, shift, scale = oracle_of(model, kilometres(lat, lon)[seen], days, values[seen])
    new_days = np.array([20.5, 41.0]) / 12
    new = [kilometres(lat, lon), new_days[:, None]]
    noise = model.gp.model_.noise_variance().item()
    times = field.time.values[0] + (new_days * 86400e9).astype("timedelta64[ns]")
    here = {"time": times, "latitude": field.latitude, "longitude": field.longitude}
    found = model.predict(here).transpose("latitude", "longitude", "time")
    assert np.allclose(found.t2m.values.reshape(20, 2), shift + scale * oracle.mean_at(new), atol=2e-4)
    expected = scale * np.sqrt(oracle.variance_at(new) + noise)
    assert np.allclose(found.t2m_std.values.reshape(20, 2), expected, rtol=1e-4)
    own = [kilometres(lat, lon)[seen], days[:, None]]
    filled = model.fill(field).transpose("latitude", "longitude", "time")
    gaps = (filled.t2m_filled.values == 1).reshape(20, 40)
    assert gaps.sum() == np.isnan(values[seen]).sum()
    assert np.allclose(
        filled.t2m.values.reshape(20, 40)[gaps], (shift + scale * oracle.mean_at(own))[gaps[seen]], atol=2e-4
    )
    expected = scale * np.sqrt(oracle.variance_at(own) + noise)
    assert np.allclose(filled.t2m_std.values.reshape(20, 40)[seen], expected, rtol=1e-4)


def test_draws_have_the_covariance_of_the_dense_model(field, model):
    """Off the grid in time, at all places, the one without any value too."""
    lat, lon = (a.ravel() for a in np.meshgrid(field.latitude, field.longitude, indexing="ij"))
    values = field.transpose("latitude", "longitude", "time").values.reshape(20, 40).astype(float)
    seen = np.isfinite(values).any(axis=1)
    oracle, shift, scale = oracle_of(model, kilometres(lat, lon)[seen], np.arange(40) / 12, values[seen])
    chosen = [3, 7, 12]
    new = [kilometres(lat, lon)[chosen], np.array([[20.5 / 12], [41 / 12]])]
    mean, covariance = oracle.mean_at(new).ravel(), oracle.covariance_at(new)
    points = {
        "latitude": xr.DataArray(lat[chosen], dims="point"),
        "longitude": xr.DataArray(lon[chosen], dims="point"),
        "time": field.time.values[0] + (np.array([20.5, 41.0]) * 7200e9).astype("timedelta64[ns]"),
    }
    draws = model.sample(4000, points)
    assert draws.dims == ("sample", "time", "point")
    flat = (draws.transpose("sample", "point", "time").values.reshape(4000, -1).astype(float) - shift) / scale
    deviation = np.sqrt(np.diag(covariance))
    assert np.abs((flat.mean(axis=0) - mean) / deviation).max() < 5 / np.sqrt(4000)
    correlation = np.cov(flat.T) / np.outer(deviation, deviation)
    assert np.abs(correlation - covariance / np.outer(deviation, deviation)).max() < 8 / np.sqrt(4000)


def test_space_as_one_factor_as_two_and_as_stations(field):
    """All three work; with stations in the places of the grid the model is the same as with the grid."""
    stacked = field.stack(station=("latitude", "longitude")).reset_index("station").drop_vars("height")
    stations = stacked.assign_coords(station=np.arange(20)).transpose("station", "time")
    assert kinds(stations) == [(("station",), "sphere"), (("time",), "time")]
    grid, listed = field.lkgp.fill(), stations.lkgp.fill()
    as_grid = listed.t2m.values.reshape(4, 5, 40).transpose(2, 0, 1)
    assert np.allclose(as_grid, grid.t2m.values, atol=1e-3, equal_nan=True)
    apart = field.lkgp.fill(factors=["latitude", "longitude", "time"])
    gaps = apart.t2m_filled.values == 1
    assert np.array_equal(gaps, grid.t2m_filled.values == 1)
    assert np.sqrt(np.mean((apart.t2m - grid.t2m).values[gaps] ** 2)) < 0.1


def test_heights_and_categories_are_factors_of_their_own():
    rng = np.random.default_rng(0)
    height = rng.uniform(0, 2000, 12)
    t = np.arange(30)
    values = (
        15
        - 0.0065 * height[:, None, None]
        + np.sin(t / 5)[:, None] * np.array([1.0, 1.3])
        + 0.05 * rng.standard_normal((12, 30, 2))
    )
    truth = values.copy()
    values[rng.random(values.shape) < 0.3] = np.nan
    array = xr.DataArray(
        values,
        dims=("station", "time", "kind"),
        coords={
            "lat": ("station", rng.uniform(46, 47, 12)),
            "lon": ("station", rng.uniform(8, 9, 12)),
            "height": ("station", height, {"standard_name": "height", "units": "m", "axis": "Z"}),
            "time": pd.date_range("2020", periods=30),
            "kind": ["low", "high"],
        },
        name="t",
    )
    filled, model = array.lkgp.fill(return_model=True)
    gaps = filled.t_filled.values == 1
    error = (filled.t.values - truth)[gaps]
    assert np.sqrt(np.mean(error**2)) < 0.2
    inside = np.abs(error) < 1.96 * filled.t_std.values[gaps]
    assert 0.85 < inside.mean() <= 1.0
    assert any(" m" in line for line in in_words(model))
    with pytest.raises(InputError, match="'middle', which was not there"):
        model.predict({"kind": ["middle"]})


# Manners


def test_everything_of_the_field_is_in_its_place(field, model):
    before = field.copy(deep=True)
    filled = model.fill(field)
    xr.testing.assert_identical(field, before)
    assert list(filled.data_vars) == ["t2m", "t2m_std", "t2m_filled"]
    for name in filled.data_vars:
        assert filled[name].dims == field.dims
    xr.testing.assert_identical(filled.coords.to_dataset().drop_attrs(deep=False), field.coords.to_dataset())
    assert filled.t2m.dtype == filled.t2m_std.dtype == np.float32
    assert filled.t2m_filled.dtype == np.int8
    seen = field.notnull()
    assert bool((filled.t2m == field).where(seen, True).all())
    assert {**field.attrs, "ancillary_variables": "t2m_std t2m_filled"} == filled.t2m.attrs
    assert filled.t2m_std.attrs["standard_name"] == "air_temperature standard_error"
    assert filled.t2m_std.attrs["units"] == "K"
    assert filled.t2m_filled.attrs["flag_meanings"] == "as_given filled"
    assert "filled t2m" in filled.attrs["history"]
    never = field.isnull().all("time")
    assert int(never.sum()) == 1
    assert bool(filled.t2m.isnull().all("time").equals(never))
    assert bool((filled.t2m.isnull() == filled.t2m_std.isnull()).all())


def test_what_is_filled_can_be_chosen(field, model):
    everything = model.fill(field, never_observed=True)
    assert not bool(everything.t2m.isnull().any())
    part = model.fill(field, where=field.latitude > 50.5)
    assert set(np.unique(part.t2m_filled.where(field.latitude <= 50.5, drop=True))) == {0}
    assert int(part.t2m_filled.sum()) > 0
    with pytest.raises(InputError, match="depth"):
        model.fill(field, where=xr.DataArray([True], dims="depth"))
    limited = model.fill(field, max_gap="4h")
    inside = limited.t2m_filled.isel(time=slice(2, -2)) == 1
    alone = field.isnull() & field.shift(time=1).notnull() & field.shift(time=-1).notnull()
    assert bool((inside == alone.isel(time=slice(2, -2))).all())
    with pytest.raises(InputError, match="length of time such as"):
        model.fill(field, max_gap="long")


def test_smoothing_replaces_observed_values_and_tells_the_error_of_the_field(field, model):
    smooth, plain = model.fill(field, smooth=True), model.fill(field)
    seen = field.notnull()
    assert float(np.abs((smooth.t2m - field).where(seen)).max()) > 0.05
    noise = model.gp.report_.noise_std
    difference = (plain.t2m_std**2 - smooth.t2m_std**2).values
    assert np.allclose(difference[np.isfinite(difference)], noise**2, rtol=1e-3)


def test_attributes_follow_the_option_of_xarray(field, model):
    with xr.set_options(keep_attrs=False):
        assert "long_name" not in model.fill(field).t2m.attrs
    assert "long_name" not in model.fill(field, keep_attrs=False).t2m.attrs


def test_packing_is_kept_where_it_fits(field, model):
    packed = field.copy()
    packed.encoding = {
        "dtype": np.dtype("int16"),
        "scale_factor": 0.01,
        "add_offset": 280.0,
        "_FillValue": -32768,
        "zlib": True,
    }
    filled = model.fill(packed)
    assert filled.t2m.encoding == packed.encoding
    assert filled.t2m_std.encoding["zlib"]
    assert "scale_factor" not in filled.t2m_std.encoding
    packed.encoding["scale_factor"] = 1e-5
    assert "scale_factor" not in model.fill(packed).t2m.encoding


def test_chunked_fields_and_integers(field):
    small = field.isel(time=slice(0, 12), latitude=[0, 1], longitude=[0, 1])
    chunked = small.copy(data=dask.array.from_array(small.values, chunks=(5, 1, 2)))
    told = []
    xr.testing.assert_equal(chunked.lkgp.fill(tell=told.append), small.lkgp.fill())
    assert "GB of memory" in str(told[0])
    whole = (small.fillna(280.0) * 10).astype(int)
    filled = whole.lkgp.fill()
    assert filled.t2m.dtype == float
    assert int(filled.t2m_filled.sum()) == 0


def test_a_dataset_is_filled_variable_by_variable(field):
    small = field.isel(time=slice(0, 10), latitude=[0, 1], longitude=[0, 1])
    dataset = xr.Dataset(
        {"a": small, "b": 2 * small, "mask": small.isel(time=0) > 0}, attrs={"title": "two", "history": "made"}
    )
    filled = dataset.lkgp.fill()
    assert set(filled.data_vars) == {"a", "a_std", "a_filled", "b", "b_std", "b_filled", "mask"}
    assert filled.attrs["title"] == "two"
    lines = filled.attrs["history"].splitlines()
    assert len(lines) == 3
    assert lines[-1] == "made"
    assert np.allclose(filled.b, 2 * filled.a, rtol=1e-4)
    with pytest.raises(InputError, match="no variable 'c'; there are a, b, mask"):
        dataset.lkgp.fill(["c"])
    with pytest.raises(InputError, match="no variable has gaps"):
        dataset.fillna(280.0).lkgp.fill()


def test_own_kernels_and_bad_input(field):
    small = field.isel(time=slice(0, 10), latitude=[0, 1], longitude=[0, 1])
    kernels = [ScaleKernel(MaternKernel(nu=1.5)), MaternKernel(nu=1.5)]
    assert small.lkgp.fit(kernels=kernels).gp.model_.kernels[1].nu == 1.5
    with pytest.raises(InputError, match="nothing is observed: t2m is NaN everywhere"):
        (small * np.nan).rename("t2m").lkgp.fill()
    infinite = small.copy()
    infinite[2, 1, 0] = np.inf
    with pytest.raises(InputError, match="infinite at time=2019-03-01T04"):
        infinite.lkgp.fill()
    with pytest.raises(InputError, match="time has 2019-03-01 00:00:00 more than once"):
        xr.concat([small, small.isel(time=[0])], "time").lkgp.fill()
    with pytest.raises(InputError, match="takes a DataArray, not Dataset"):
        lkgp.xarray.fit(small.to_dataset())
    with pytest.raises(InputError, match="holds <U"):
        xr.full_like(small, "a", dtype=str).lkgp.fill()
    undecoded = small.fillna(-9999.0)
    with pytest.warns(UserWarning, match="-9999 again and again"):
        undecoded.lkgp.inspect()
    with pytest.raises(TypeError):
        small.lkgp.fill(colour="red")


# Asking elsewhere, and keeping


def test_predictions_elsewhere_have_their_own_labels(field, model):
    found = model.predict({"time": ["2019-03-05T18", "2019-03-05T19"]})
    assert found.t2m.dims == field.dims
    assert found.t2m.shape == (2, 4, 5)
    assert bool(found.t2m.isnull().equals(found.t2m.isnull() & field.isnull().all("time")))
    single = model.predict({"latitude": 50.3, "longitude": 0.7, "time": "2019-03-01T05:30"})
    assert single.t2m.shape == (1, 1, 1)
    other = model.predict(field.isel(time=[3, 4]))
    assert np.allclose(
        other.t2m.where(field.notnull().any("time")), model.predict().t2m.isel(time=[3, 4]), atol=1e-3, equal_nan=True
    )
    for coords, message in (
        ({"depth": [1]}, "no coordinate 'depth'"),
        ([1, 2], "as a dictionary"),
        ({"time": ["soon"]}, "give dates such as"),
    ):
        with pytest.raises(InputError, match=message):
            model.predict(coords)


def test_a_saved_model_answers_as_before(field, model, tmp_path):
    predicted = model.predict()
    model.save(tmp_path / "model.lkgp")
    loaded = lkgp.xarray.FieldModel.load(tmp_path / "model.lkgp")
    xr.testing.assert_identical(loaded.predict(), predicted)
    xr.testing.assert_equal(loaded.observed, field.where(field.notnull()))
    xr.testing.assert_identical(loaded.sample(2, {"time": ["2019-03-03"]}), model.sample(2, {"time": ["2019-03-03"]}))
    xr.testing.assert_identical(loaded.fill(field).drop_attrs(), model.fill(field).drop_attrs())
    plain = lkgp.LKGP.load(tmp_path / "model.lkgp")
    assert np.array_equal(plain.predict()[0], model.gp.predict()[0])
    plain.save(tmp_path / "plain.lkgp")
    with pytest.raises(FileError, match="without labels"):
        lkgp.xarray.FieldModel.load(tmp_path / "plain.lkgp")


def test_what_was_fitted_in_words(model):
    lines = in_words(model)
    assert any("latitude x longitude: likeness falls to one half over" in line and "km" in line for line in lines)
    assert any("a cycle of 24 hours" in line for line in lines)
    assert any("noise" in line and "K" in line for line in lines)


def test_likeness_has_fallen_to_one_half_where_the_words_say():
    for nu, distance in HALF.items():
        kernel = RBFKernel() if nu is None else MaternKernel(nu=nu)
        kernel.lengthscale = 1.0
        assert kernel(torch.zeros(1, 1), torch.full((1, 1), distance)).to_dense().item() == pytest.approx(0.5, abs=1e-3)


# What a careful user found


def test_a_field_without_any_noise_is_filled():
    t, lat, lon = np.arange(30.0), np.arange(50.0, 54.0), np.arange(5.0)
    truth = 15 + np.sin(lat / 1.5)[:, None] + np.cos(lon / 2) + 3 * np.sin(t / 5)[:, None, None]
    field = xr.DataArray(
        truth.copy(),
        dims=("time", "lat", "lon"),
        coords={"time": pd.date_range("2020", periods=30), "lat": lat, "lon": lon},
        name="v",
    )
    field[3, 1, 1] = np.nan
    filled = field.lkgp.fill()
    assert float(filled.v[3, 1, 1]) == pytest.approx(truth[3, 1, 1], abs=0.05)


def test_fields_without_time_are_filled_and_validated(field):
    single = field.isel(time=2, drop=True)
    filled, model = single.lkgp.fill(return_model=True)
    assert not bool(filled.t2m.isnull().any())
    assert set(model.validate(share=0.3).scores) == {"lkgp", "nearest cell", "mean"}
    one_time = field.isel(time=[2])
    assert int(one_time.lkgp.fill().t2m_filled.sum()) == int(one_time.isnull().sum())


def test_nothing_is_overwritten_or_misread(field, model):
    small = field.isel(time=slice(0, 10), latitude=[0, 1], longitude=[0, 1])
    dataset = xr.Dataset({"t": small, "t_std": small.isel(time=0)})
    with pytest.raises(InputError, match="a variable 't_std' already"):
        dataset.lkgp.fill(["t"])
    filled = model.fill(field).assign(other=field.isel(time=0, drop=True))
    with pytest.raises(InputError, match="no variable has gaps"):
        filled.drop_vars("other").lkgp.fill()
    with pytest.raises(InputError, match="for one field"):
        dataset.drop_vars("t_std").lkgp.fill(return_model=True)
    with pytest.raises(InputError, match="one kernel for each"):
        small.lkgp.fill(kernels=MaternKernel())
    mask = field * 0 + 1  # NaN where nothing was seen
    assert int(model.fill(field, where=mask).t2m_filled.sum()) == 0
    assert int(model.fill(field, where=np.ones(field.shape)).t2m_filled.sum()) == int(
        model.fill(field).t2m_filled.sum()
    )
    for where in (np.ones(3), (field > 0).isel(time=slice(0, 5))):
        with pytest.raises(InputError, match="`where` has"):
            small.lkgp.fill(where=where)
    with pytest.raises(InputError, match="length of time such as"):
        model.fill(field, max_gap=5)
    shuffled = field.isel(time=np.random.default_rng(0).permutation(40))
    again = model.fill(shuffled, max_gap="4h").sortby("time")
    xr.testing.assert_equal(again, model.fill(field, max_gap="4h"))
    packed = field.round(1)
    packed.encoding = {
        "dtype": np.dtype("int16"),
        "scale_factor": 0.1,
        "_FillValue": round(float(model.fill(field).t2m.max()) * 10),
    }
    assert "scale_factor" not in model.fill(packed).t2m.encoding


def test_points_can_be_asked_by_their_labels(field):
    stations = field.stack(station=("latitude", "longitude")).reset_index("station").drop_vars("height")
    stations = stations.assign_coords(station=[f"S{k}" for k in range(20)]).isel(station=slice(0, 6), time=slice(0, 12))
    model = stations.lkgp.fit()
    found = model.predict({"station": ["S3", "S1"]})
    assert found.t2m.sizes["station"] == 2
    assert np.allclose(found.t2m, model.predict().t2m.isel(station=[3, 1]), atol=1e-3)
    track = {name: xr.DataArray([50.0, 51.0], dims="point") for name in ("latitude", "longitude")}
    for coords, message in (
        ({"station": ["S9"]}, "name points of the field"),
        ({"latitude": [50.5]}, "have different lengths"),
        ({**track, "time": xr.DataArray(field.time.values[:2], dims="point")}, "share a dimension"),
        (xr.Dataset(coords={"lat": [1.0]}), "has none of the coordinates"),
    ):
        with pytest.raises(InputError, match=message):
            model.predict(coords)


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
    assert [kind for _, kind in kinds(array)] == ["sphere", "number", "time"]
    filled = array.lkgp.fill()
    assert int(filled.v_filled.sum()) == 1
    assert bool(filled.v[:, :, 0, 0].isnull().all())


# What a reviewer found


def test_a_part_of_the_field_is_filled_in_any_order(field, model):
    whole = model.fill(field)
    xr.testing.assert_equal(model.fill(field.sortby("latitude")).sortby("latitude", ascending=False), whole)
    part = {"time": slice(3), "longitude": [3, 1]}
    xr.testing.assert_equal(model.fill(field.isel(part)), whole.isel(part))
    everything = model.fill(field, never_observed=True)
    assert np.allclose(model.fill(field.isel(part), never_observed=True).t2m, everything.t2m.isel(part), atol=1e-3)
    bare = field.isel(time=slice(3)).drop_vars("time")
    for other, message in (
        (field.assign_coords(latitude=field.latitude + 1), "latitude has 53.0, which the model was not fitted to"),
        (field.isel(time=0, drop=True), "has the dimensions latitude, longitude, but"),
        (bare, "time is 3 long, but was 40 long in the fit"),
    ):
        with pytest.raises(InputError, match=message):
            model.fill(other)
    cells = field.stack(cell=("latitude", "longitude"), create_index=False).isel(cell=slice(6), time=slice(12))
    of_cells = cells.lkgp.fit()
    part = of_cells.fill(cells.transpose("cell", "time").isel(time=[5, 2]))
    xr.testing.assert_equal(part, of_cells.fill(cells).isel(time=[5, 2]).transpose("cell", "time"))
    with pytest.raises(InputError, match="latitude is not what it was in the fit"):
        of_cells.fill(cells.isel(cell=slice(None, None, -1)))


def test_only_what_varies_in_time_is_filled_unless_it_is_named(field):
    sea = field.isel(time=slice(0, 10), latitude=[0, 1], longitude=[0, 1, 2])
    depth = sea.isel(time=0, drop=True).drop_vars("height")
    dataset = xr.Dataset({"sst": sea, "depth": depth, "edges": sea.expand_dims(nv=2)})
    dataset["latitude"].attrs["bounds"] = "edges"
    assert choose_variables(dataset, None) == ["sst"]
    assert choose_variables(dataset, ["depth"]) == ["depth"]
    assert choose_variables(dataset[["depth"]].where(dataset.latitude > 51.5), None) == ["depth"]
    with pytest.raises(InputError, match="no variable has gaps"):
        choose_variables(dataset.fillna({"sst": 280.0}), None)


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
    assert Ruler.of(
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


def test_a_dimension_along_which_places_do_not_vary_is_no_part_of_space(field):
    deep = field.expand_dims(depth=[0.0, 10.0])
    with pytest.raises(InputError, match="'depth' must be a factor of its own"):
        choose_factors(deep, space=("latitude", "longitude", "depth"))


def test_the_callers_chunks_stay_chunks(field):
    small = field.isel(time=slice(0, 12), latitude=[0, 1], longitude=[0, 1])
    chunked = small.chunk({"time": 5})
    filled = chunked.lkgp.fill()
    assert chunked.chunks is not None
    assert filled.t2m.chunks is None
