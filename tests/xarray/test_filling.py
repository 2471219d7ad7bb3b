"""What is filled, and the metadata of what comes back."""

import numpy as np
import pytest
from gpytorch.kernels import MaternKernel

import lkgp.xarray  # noqa: F401  (registers `.lkgp`)
import xarray as xr
from lkgp.errors import InputError


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


def test_nothing_is_overwritten_or_misread(field, model):
    small = field.isel(time=slice(0, 10), latitude=[0, 1], longitude=[0, 1])
    dataset = xr.Dataset({"t": small, "t_std": small.isel(time=0)})
    with pytest.raises(InputError, match="already a variable 't_std'"):
        dataset.lkgp.fill(["t"])
    filled = model.fill(field).assign(other=field.isel(time=0, drop=True))
    with pytest.raises(InputError, match="no variable has gaps"):
        filled.drop_vars("other").lkgp.fill()
    with pytest.raises(TypeError, match="return_model"):  # one field has one model, a dataset has several
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
        (bare, "time has length 3, but had length 40 in the fit"),
    ):
        with pytest.raises(InputError, match=message):
            model.fill(other)
    cells = field.stack(cell=("latitude", "longitude"), create_index=False).isel(cell=slice(6), time=slice(12))
    of_cells = cells.lkgp.fit()
    part = of_cells.fill(cells.transpose("cell", "time").isel(time=[5, 2]))
    xr.testing.assert_equal(part, of_cells.fill(cells).isel(time=[5, 2]).transpose("cell", "time"))
    with pytest.raises(InputError, match="latitude differs from that of the fitted field"):
        of_cells.fill(cells.isel(cell=slice(None, None, -1)))


def test_fields_are_filled_and_predicted_without_error_bars(field, model, monkeypatch):
    filled, predicted = model.fill(field), model.predict({"latitude": [50.3]})
    monkeypatch.setattr("lkgp.posterior.posterior.Posterior.variance", None)
    means = model.fill(field, std=False)
    xr.testing.assert_equal(means, filled.drop_vars("t2m_std"))
    assert means.t2m.attrs["ancillary_variables"] == "t2m_filled"
    xr.testing.assert_identical(model.predict({"latitude": [50.3]}, std=False), predicted.drop_vars("t2m_std"))
    with pytest.raises(InputError, match="calibrate rescales the error bars"):
        model.fill(field, calibrate=True, std=False)
