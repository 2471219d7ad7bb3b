"""A field around the Earth is filled as if there were no date line, by factors that are never formed as a matrix."""

import numpy as np
import pytest
from factor_checks import dense_of, kernel_of
from oracle import Oracle

import xarray as xr
from lkgp import LKGP, ObservationSpace
from lkgp.linalg.factors import base, circles
from lkgp.linalg.preconditioners import Vecchia
from lkgp.xarray.fitting import prepare

LATITUDES, LONGITUDES = np.linspace(-75, 75, 6), np.arange(-180, 180, 30.0)
TIMES = xr.date_range("2001-01-01", periods=4, freq="D")


@pytest.fixture(autouse=True)
def small_limits(monkeypatch):
    monkeypatch.setattr(circles, "CIRCLES_PAY", 10)
    monkeypatch.setattr(base, "MOST_ROOT_POINTS", 10)


def around_the_earth(longitudes):
    """A field with a gap across the date line, at longitudes -180 to 150, and single gaps."""
    rng = np.random.default_rng(0)
    values = rng.standard_normal((4, 6, 12))
    values[1:3, 2:4, [0, 1, -1]] = np.nan
    values[rng.uniform(size=values.shape) < 0.2] = np.nan
    coords = {"time": TIMES, "lat": LATITUDES, "lon": longitudes}
    return xr.DataArray(values, coords, ("time", "lat", "lon"), name="value")


def filled(longitudes):
    """Mean and standard deviation, (4, 6, 12), of the field over the factors that `lkgp fill` chooses, and of a dense
    computation."""
    prepared = prepare(around_the_earth(longitudes), None, None, None, None, 2.5)
    places = next(k for k, x in enumerate(prepared.points) if x.shape[1] == 3)
    names = ["0.5" if k == places else "1.5" for k in range(2)]
    gp = LKGP(
        [kernel_of(name, 0.8) for name in names],
        mean=0.0,
        noise=0.1,
        standardize=False,
        solver=ObservationSpace(preconditioner=Vecchia()),
    )
    gp.fit(prepared.points, prepared.values, optimize=False)
    assert gp.report_.structures[places] == "circles"
    kernels = [lambda x, z, name=name: dense_of(name, 0.8, x, z) for name in names]
    oracle = Oracle(kernels, [np.asarray(x) for x in prepared.points], prepared.values, 0.1)
    expected = oracle.mean_at(oracle.coords), oracle.covariance_at(oracle.coords).diagonal() ** 0.5
    pairs = (*gp.predict(), expected[0], expected[1].reshape(prepared.values.shape))
    return [part if places == 1 else np.asarray(part).T for part in pairs]


def test_the_same_field_turned_by_half_a_turn_is_filled_alike():
    here, turned = filled(LONGITUDES), filled(LONGITUDES + 180)
    for mean, std, mean_of_oracle, std_of_oracle in (here, turned):
        np.testing.assert_allclose(mean, mean_of_oracle, atol=2e-3)
        np.testing.assert_allclose(std, std_of_oracle, rtol=0.03)
    np.testing.assert_allclose(here[0], turned[0], atol=2e-3)
    np.testing.assert_allclose(here[2], turned[2], atol=1e-9)
