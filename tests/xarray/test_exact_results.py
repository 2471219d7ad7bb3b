"""Fields are filled as the dense model says."""

import numpy as np
import pandas as pd
import pytest
from fields import factor_kinds, kilometres, oracle_of

import lkgp.xarray  # noqa: F401  (registers `.lkgp`)
import xarray as xr
from lkgp.errors import InputError
from lkgp.xarray.summary import summarize


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
    assert factor_kinds(stations) == [(("station",), "sphere"), (("time",), "time")]
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
    assert any(" m" in line for line in summarize(model))
    with pytest.raises(InputError, match="'middle', which was not in the fitted data"):
        model.predict({"kind": ["middle"]})
