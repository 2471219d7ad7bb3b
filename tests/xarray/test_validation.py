"""What gaps look like, cells withheld like them, and the baselines that lkgp is compared with."""

import numpy as np
import pandas as pd
import pytest
from fields import small_field

import lkgp.xarray
import xarray as xr
from lkgp.errors import InputError
from lkgp.xarray.baselines import climatology, linear_in_time, nearest_place
from lkgp.xarray.factors import choose_factors
from lkgp.xarray.gaps import Gaps, run_lengths, withhold
from lkgp.xarray.layout import Layout
from lkgp.xarray.time_series import to_series


def runs(shape=(60, 400), length=24, share=0.3, seed=0):
    """Observed cells with runs of gaps at random places."""
    rng = np.random.default_rng(seed)
    observed = np.ones(shape, dtype=bool)
    while observed.mean() > 1 - share:
        row, start = rng.integers(shape[0]), rng.integers(shape[1] - length)
        observed[row, start : start + length] = False
    return observed


def test_run_lengths_by_hand():
    missing = np.array([[1, 1, 0, 1, 0], [0, 0, 0, 0, 1], [1, 1, 1, 1, 1]], dtype=bool)
    assert sorted(run_lengths(missing)) == [1, 1, 2, 5]


def test_gaps_are_described():
    rng = np.random.default_rng(0)
    at_random = rng.random((60, 400)) > 0.3
    days = np.ones((60, 400), dtype=bool)
    days[:, rng.permutation(400)[:80]] = False
    assert str(Gaps.of(np.ones((3, 4), dtype=bool))) == "nothing is missing"
    assert "mostly single cells" in str(Gaps.of(at_random))
    assert "mostly runs of about 24 times" in str(Gaps.of(runs()))
    assert "mostly whole times" in str(Gaps.of(days))


@pytest.mark.parametrize("kind", ["random", "runs", "days"])
def test_withheld_cells_look_like_the_gaps(kind):
    rng = np.random.default_rng(1)
    if kind == "random":
        observed = rng.random((60, 400)) > 0.3
    elif kind == "runs":
        observed = runs()
    else:
        observed = np.repeat((np.arange(400) % 40 > 5)[None], 60, axis=0)
    hidden, how = withhold(observed, 0.1, rng)
    assert not (hidden & ~observed).any()
    assert 0.05 < hidden.sum() / observed.sum() < 0.25
    assert "copy of the gaps" in how
    ours, theirs = run_lengths(hidden), run_lengths(~observed)
    assert 0.5 < np.mean(ours) / np.mean(theirs) < 2.0
    if kind == "days":
        assert np.isin(hidden.sum(axis=0), (0, 60)).all()


def test_without_gaps_cells_are_withheld_at_random():
    hidden, how = withhold(np.ones((50, 60), dtype=bool), 0.1, np.random.default_rng(0))
    assert how == "single cells at random"
    assert hidden.mean() == pytest.approx(0.1, abs=0.02)


def test_the_baselines_by_hand():
    values = np.array([[1.0, np.nan, 3.0, np.nan], [np.nan, 8.0, np.nan, np.nan], [5.0, 5.0, np.nan, 9.0]])
    array = xr.DataArray(
        values,
        dims=("station", "time"),
        coords={
            "lat": ("station", [0.0, 1.0, 3.0]),
            "lon": ("station", [0.0] * 3),
            "time": pd.date_range("2020", periods=4),
        },
    )
    layout = Layout.of(array, choose_factors(array)[0])
    assert linear_in_time(values, layout).tolist() == [[1, 2, 3, 3], [8, 8, 8, 8], [5, 5, 7, 9]]
    assert climatology(values, layout)[:, 0].tolist() == [2.0, 8.0, pytest.approx(19 / 3)]
    assert nearest_place(values, layout).tolist() == [[1, 8, 3, 9], [1, 8, 3, 9], [5, 5, 3, 9]]
    hours = array.isel(time=[0, 1, 2, 3]).assign_coords(time=pd.date_range("2020", periods=4, freq="6h"))
    hours = xr.concat([hours, hours.assign_coords(time=hours.time + np.timedelta64(1, "D"))], "time")
    daily = climatology(hours.values, Layout.of(hours, choose_factors(hours)[0]))
    assert daily[2].tolist() == [5, 5, pytest.approx(19 / 3), 9] * 2


def test_error_bars_are_right_on_data_of_the_models_own_kind():
    field = small_field(places=(5, 6), times=60)
    model = lkgp.xarray.fit(field)
    found = model.validate(share=0.2)
    ours = found.scores["lkgp"]
    assert ours["rmse"] < 0.7 * min(row["rmse"] for method, row in found.scores.items() if method != "lkgp")
    assert ours["rmse"] == pytest.approx(0.1, rel=0.35)  # the noise of the data
    assert 0.85 < ours["in_95%"] <= 1.0
    assert found.withheld > 100
    assert "copy of the gaps" in str(found)
    assert [p for p, _ in found.calibration][:2] == [0.05, 0.1]
    again = model.validate(share=0.2)
    assert again.scores == found.scores
    with pytest.raises(InputError, match="share must be between"):
        model.validate(share=2.0)


def test_the_order_of_times_in_the_field_does_not_matter():
    field = small_field(places=(3, 3), times=30)
    order = np.random.default_rng(0).permutation(30)
    layouts = [Layout.of(array, choose_factors(array)[0]) for array in (field, field.isel(time=order))]
    values = [layout.to_grid(layout.field) for layout in layouts]
    assert str(Gaps.of(to_series(np.isfinite(values[0]), layouts[0]))) == str(
        Gaps.of(to_series(np.isfinite(values[1]), layouts[1]))
    )
    for baseline in (linear_in_time, climatology, nearest_place):
        sorted_, shuffled = (baseline(array, layout) for array, layout in zip(values, layouts, strict=True))
        assert np.array_equal(shuffled, sorted_[:, order])


def test_large_fields_are_validated_in_a_window_of_time(monkeypatch):
    field = small_field(places=(3, 4), times=120)
    model = lkgp.xarray.fit(field, smoothness=2.5)
    monkeypatch.setattr("lkgp.xarray.validation.MAX_CELLS", 60 * 11)  # one place has no value at all
    checked = model.validate()
    assert "in 60 of the 120 times" in checked.how
    assert 0 < checked.withheld <= 0.2 * 60 * 11
    # The same as a model that has seen nothing but the window, less what is withheld.
    assert checked.scores["lkgp"]["rmse"] < checked.scores["climatology"]["rmse"]
    assert 0.8 < checked.scores["lkgp"]["in_95%"] <= 1.0
    assert model.validate().to_dict() == checked.to_dict()


def test_error_bars_are_calibrated_on_withheld_cells():
    field = small_field(places=(3, 4), times=60)
    model = lkgp.xarray.fit(field, smoothness=2.5)
    checked = model.validate()
    plain, wide = model.fill(field), model.fill(field, calibrate=checked)
    assert checked.factor != 1.0
    np.testing.assert_allclose(wide.t2m_std, checked.factor * plain.t2m_std, rtol=1e-6)
    np.testing.assert_array_equal(wide.t2m, plain.t2m)
    assert "95 % of the withheld cells" in wide.t2m_std.attrs["comment"]
    assert "comment" not in plain.t2m_std.attrs
    xr.testing.assert_identical(model.fill(field, calibrate=True).t2m_std, wide.t2m_std)
    assert "times as wide" in str(checked)
