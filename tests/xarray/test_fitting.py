"""Fits of unusual fields, and fields that are refused."""

import numpy as np
import pandas as pd
import pytest
from gpytorch.kernels import MaternKernel, ScaleKernel

import lkgp.xarray
import xarray as xr
from lkgp.errors import InputError


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
    with pytest.raises(InputError, match="time contains 2019-03-01 00:00:00 more than once"):
        xr.concat([small, small.isel(time=[0])], "time").lkgp.fill()
    with pytest.raises(InputError, match="expected a DataArray but got Dataset"):
        lkgp.xarray.fit(small.to_dataset())
    with pytest.raises(InputError, match="holds <U"):
        xr.full_like(small, "a", dtype=str).lkgp.fill()
    undecoded = small.fillna(-9999.0)
    with pytest.warns(UserWarning, match="t2m repeatedly equals -9999"):
        undecoded.lkgp.inspect()
    with pytest.raises(TypeError):
        small.lkgp.fill(colour="red")


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
