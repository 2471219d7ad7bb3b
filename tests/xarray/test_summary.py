"""Default kernels, and fitted ones in plain sentences."""

import pandas as pd
import pytest
import torch
from gpytorch.kernels import MaternKernel, RBFKernel

from lkgp.xarray.coordinate_scaling import CoordinateScaling
from lkgp.xarray.factors import choose_factors
from lkgp.xarray.kernels import default_kernels
from lkgp.xarray.summary import HALF_DISTANCE, summarize


def test_cycles_are_put_in_where_they_can_be_seen(field):
    def cycles(times):
        short = field.isel(latitude=[0], longitude=[0], time=slice(0, 1)).reindex(time=times)
        layout = [CoordinateScaling.of(factor, short.coords) for factor in choose_factors(short)[0]]
        return default_kernels(layout, [scaling.to_points(short.coords) for scaling in layout])[1]

    assert cycles(pd.date_range("2019", periods=100, freq="h")) == ["a daily cycle along time"]
    assert cycles(pd.date_range("2019", periods=60, freq="h")) == []
    assert cycles(pd.date_range("2019", periods=800, freq="D")) == ["a yearly cycle along time"]
    assert cycles(pd.date_range("2019", periods=4000, freq="6h")) == [
        "a daily cycle along time",
        "a yearly cycle along time",
    ]
    assert cycles(pd.date_range("2019", periods=100, freq="D")) == []


def test_the_summary_tells_lengths_cycles_and_noise(model):
    lines = summarize(model)
    assert any(
        "latitude x longitude: the correlation falls to one half over" in line and "km" in line for line in lines
    )
    assert any("a cycle of 24 hours" in line for line in lines)
    assert any("Noise" in line and "K" in line for line in lines)


def test_the_correlation_has_fallen_to_one_half_where_the_summary_says():
    for nu, distance in HALF_DISTANCE.items():
        kernel = RBFKernel() if nu is None else MaternKernel(nu=nu)
        kernel.lengthscale = 1.0
        assert kernel(torch.zeros(1, 1), torch.full((1, 1), distance)).to_dense().item() == pytest.approx(0.5, abs=1e-3)
