"""Points without observations have no influence on a fit, whichever way the data come."""

import numpy as np
import pandas as pd
import pytest
import torch

import lkgp.curves
import lkgp.xarray
import xarray as xr
from lkgp import LKGP
from lkgp.botorch import LatentKroneckerGP
from lkgp.data.scaling import Scaling
from lkgp.sklearn import LKGPRegressor

# The same hyperparameters to the last digits: the searches see the same numbers, up to rounding.
TIGHT = 1e-6


def grid_values(seed=0):
    """Points of two factors, and a function of them with noise and gaps, (9, 7)."""
    rng = np.random.default_rng(seed)
    x, t = np.sort(rng.uniform(0, 1, 9)), np.linspace(0, 3, 7)
    Y = np.sin(4 * x)[:, None] * np.cos(2 * t) + 0.1 * rng.normal(size=(9, 7))
    return x, t, np.where(rng.random(Y.shape) < 0.25, np.nan, Y)


def with_empty(x, Y, axis, new):
    """The points and values with empty points `new` added along one axis."""
    longer = np.concatenate([x, new])
    padding = [(0, 0)] * Y.ndim
    padding[axis] = (0, len(new))
    order = np.argsort(longer)
    return longer[order], np.take(np.pad(Y, padding, constant_values=np.nan), order, axis)


def learned(model):
    return np.concatenate([p.detach().double().numpy().ravel() for p in model.parameters()])


@pytest.mark.parametrize("axis", [0, 1])
def test_empty_rows_and_columns_change_nothing(axis):
    coords, Y = list(grid_values()[:2]), grid_values()[2]
    plain = LKGP().fit(coords, Y)
    longer = list(coords)
    longer[axis], filled = with_empty(coords[axis], Y, axis, [-40.0, 0.53, 700.0])
    other = LKGP().fit(longer, filled)
    assert np.allclose(learned(other.model_), learned(plain.model_), rtol=TIGHT, atol=TIGHT)
    for one, two in zip(plain.predict(), other.predict(coords), strict=True):
        assert np.allclose(one, two, rtol=TIGHT, atol=1e-8)
    assert np.isfinite(other.predict()[1]).all()


def test_all_data_at_one_point_are_scaled_by_all_points():
    """Only then: the observations leave the scale open, and predictions must not depend on the unit."""
    x, t, Y = grid_values()
    Y[np.arange(9) != 4] = np.nan
    found = [LKGP().fit([unit * x, t], Y).predict() for unit in (1.0, 1000.0)]
    assert np.allclose(*[mean for mean, _ in found], atol=1e-8)
    assert np.allclose(*[std for _, std in found], atol=1e-8)
    points = torch.tensor([[0.0, 5.0], [2.0, 5.0], [4.0, 5.0]], dtype=torch.float64)
    scaling = Scaling.standard(points[:1], everywhere=points)
    assert scaling.shift.tolist() == [0.0, 5.0]
    assert np.allclose(scaling.scale, [np.sqrt(8 / 3), 1.0])


def test_a_field_is_scaled_by_what_was_observed():
    rng = np.random.default_rng(1)
    days = pd.date_range("2020-01-01", periods=14).values
    lat = np.array([48.0, 49.0, 50.5, 52.0])
    values = np.sin(np.arange(14) / 3)[:, None] * lat / 50 + 0.05 * rng.normal(size=(14, 4))
    values[rng.random(values.shape) < 0.2] = np.nan
    field = xr.DataArray(values, dims=("time", "latitude"), coords={"time": days, "latitude": lat}, name="t")
    longer = field.reindex(time=pd.date_range("2019-12-30", periods=40).values, latitude=[*lat, 70.0])
    plain, other = (lkgp.xarray.fit(one, factors=["time", "latitude"]) for one in (field, longer))
    assert np.allclose(learned(plain.gp.model_), learned(other.gp.model_), rtol=TIGHT, atol=TIGHT)
    mean = [one.predict()["t"].sel(time=days, latitude=lat).values for one in (plain, other)]
    assert np.allclose(*mean, atol=1e-7)


def test_a_target_without_values_does_not_change_the_others():
    rng = np.random.default_rng(2)
    X = rng.normal(size=(12, 2))
    Y = np.stack([X[:, 0], X[:, 0] + X[:, 1], np.sin(X[:, 1])], axis=1) + 0.1 * rng.normal(size=(12, 3))
    Y[rng.random(Y.shape) < 0.2] = np.nan
    empty_row, empty_target = np.array([[50.0, -50.0]]), np.full((12, 1), np.nan)
    plain = LKGPRegressor().fit(X, Y).predict(X, return_std=True)
    row = LKGPRegressor().fit(np.vstack([X, empty_row]), np.vstack([Y, np.full((1, 3), np.nan)]))
    target = LKGPRegressor().fit(X, np.hstack([Y[:, :2], empty_target, Y[:, 2:]]))
    for one, two, three in zip(plain, row.predict(X, return_std=True), target.predict(X, return_std=True), strict=True):
        assert np.allclose(one, two, atol=1e-6)
        assert np.allclose(one, three[:, [0, 1, 3]], atol=1e-6)


def test_a_botorch_model_is_scaled_by_what_was_observed():
    x, t, Y = grid_values()
    longer, filled = with_empty(x, Y, 0, [-40.0, 700.0])
    found = []
    for points, values in ((x, Y), (longer, filled)):
        model = LatentKroneckerGP(*(torch.as_tensor(a)[:, None] for a in (points, t)), torch.as_tensor(values))
        model.fit()
        posterior = model.posterior(torch.as_tensor(x)[:, None])
        found.append((posterior.mean.detach().numpy(), posterior.variance.detach().numpy()))
    assert np.allclose(found[0][0], found[1][0], atol=1e-7)
    assert np.allclose(found[0][1], found[1][1], atol=1e-7)


def test_runs_without_values_do_not_change_the_others():
    rng = np.random.default_rng(3)
    rates = 10 ** np.linspace(-4, -1, 8)
    runs = [{"rate": rate, "kind": kind} for rate, kind in zip(rates, "abababab", strict=True)]
    curves = [(1 + 10 * rate) / np.arange(1, 6) + 0.02 * rng.normal(size=5) for rate in rates]
    waiting = [{"rate": 1e-9, "kind": "c"}, {"rate": 5.0, "kind": "a", "depth": 3}]
    plain = lkgp.curves.CurveModel(last_epoch=6).fit(runs, curves)
    other = lkgp.curves.CurveModel(last_epoch=6).fit([waiting[0], *runs, waiting[1]], [[np.nan], *curves, [np.nan]])
    assert np.allclose(learned(plain.gp_.model_), learned(other.gp_.model_), rtol=TIGHT, atol=TIGHT)
    for one, two in zip(plain.forecasts(threshold=0.2), other.forecasts(threshold=0.2)[1:-1], strict=True):
        assert np.allclose(one.median, two.median, rtol=1e-5)
    # A rate below all that have values is not taken for the lowest of them.
    encoded = other.encoding_.space.encode(waiting)
    assert encoded[0, 0] < -1
    assert encoded[1, 0] > 1.2
