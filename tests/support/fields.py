"""Small fields with gaps, and the model of them written down densely."""

import numpy as np
import pandas as pd
from oracle import Oracle, matern, periodic, rational_quadratic

import xarray as xr
from lkgp.data.standardization import Standardization
from lkgp.xarray.factors import Dims, choose_factors


def small_field(places=(4, 5), times=40, missing=0.3, seed=0):
    """Temperature at places across the prime meridian, every two hours, with gaps and one place without any value."""
    rng = np.random.default_rng(seed)
    lat, lon = np.linspace(52.0, 49.0, places[0]), np.mod(np.linspace(-2.0, 2.0, places[1]), 360.0)
    t = 2 * np.arange(times)
    smooth = (
        np.sin(2 * np.pi * t / 24)[:, None, None] * (lat[:, None] - 45) / 5
        + np.cos(np.deg2rad(30 * lon))
        + 0.02 * t[:, None, None]
    )
    values = 280.0 + smooth + 0.1 * rng.standard_normal((times, *places))
    values[rng.random(values.shape) < missing] = np.nan
    values[:, 1, 2] = np.nan
    return xr.DataArray(
        values.astype(np.float32),
        dims=("time", "latitude", "longitude"),
        coords={
            "time": ("time", pd.date_range("2019-03-01", periods=times, freq="2h").values, {"standard_name": "time"}),
            "latitude": ("latitude", lat, {"units": "degrees_north", "standard_name": "latitude"}),
            "longitude": ("longitude", lon, {"units": "degrees_east", "standard_name": "longitude"}),
            "height": ((), 2.0, {"units": "m"}),
        },
        name="t2m",
        attrs={"units": "K", "standard_name": "air_temperature", "long_name": "temperature"},
    )


def factor_kinds(
    field: xr.DataArray, *, space: Dims | None = None, time: str | None = None, factors: list[Dims] | None = None
) -> list[tuple[tuple[str, ...], str]]:
    """The dimensions and the kind of each factor that is chosen for a field."""
    return [(f.dims, f.kind) for f in choose_factors(field, space=space, time=time, factors=factors)[0]]


def kilometres(lat, lon):
    """Places on a ball of 6371 km, (n, 3)."""
    a, b = np.radians(lat), np.radians(lon)
    return 6371.0 * np.stack([np.cos(a) * np.cos(b), np.cos(a) * np.sin(b), np.sin(a)], axis=1)


def dense_kernel(kernel, unit):
    """A fitted kernel over scaled coordinates as a function of unscaled ones; unit: the scale."""
    name = type(kernel).__name__
    if name == "ScaleKernel":
        inner, factor = dense_kernel(kernel.base_kernel, unit), kernel.outputscale.item()
        return lambda x, z: factor * inner(x, z)
    if name in ("AdditiveKernel", "ProductKernel"):
        parts = [dense_kernel(part, unit) for part in kernel.kernels]
        combine = np.sum if name == "AdditiveKernel" else np.prod
        return lambda x, z: combine([part(x, z) for part in parts], axis=0)
    length = kernel.lengthscale.item()
    if name == "PeriodicKernel":
        return lambda x, z: periodic(x, z, length, kernel.period_length.item() * unit)
    if name == "RQKernel":
        return lambda x, z: rational_quadratic(x, z, length * unit, kernel.alpha.item())
    assert name == "MaternKernel"
    return lambda x, z: matern(x, z, length * unit, kernel.nu)


def oracle_of(model, places, days, values):
    """The dense model with the hyperparameters of a `FieldModel`.

    places: (n, 3) in km; days: (t,); values: (n, t)
    """
    fitted = model.gp.model_
    space, time = fitted.kernels
    unit = [scaling.scale[0] for scaling in model.layout.scalings]
    standardized = Standardization.of(model.gp.observations_, coords=False).values
    shift, scale = float(standardized.shift), float(standardized.scale)
    kernels = [dense_kernel(space, unit[0]), dense_kernel(time, unit[1])]
    scaled = (values - shift) / scale
    return (
        Oracle(kernels, [places, days[:, None]], scaled, fitted.noise_variance().item(), fitted.mean.constant.item()),
        shift,
        scale,
    )
