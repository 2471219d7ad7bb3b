"""Small fields with gaps, and the model of them written down densely."""

import numpy as np
import pandas as pd
from oracle import Oracle, matern52, periodic

import xarray as xr


def small_field(places=(4, 5), times=40, missing=0.3, seed=0):
    """Temperature at places across the meridian of Greenwich, every other hour, with gaps and one place without any value."""
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


def kilometres(lat, lon):
    """Places on a ball of 6371 km, (n, 3)."""
    a, b = np.radians(lat), np.radians(lon)
    return 6371.0 * np.stack([np.cos(a) * np.cos(b), np.cos(a) * np.sin(b), np.sin(a)], axis=1)


def oracle_of(model, places, days, values):
    """The dense model with the hyperparameters of a `FieldModel` over places (n, 3) in km and days (t,); values (n, t)."""
    fitted = model.gp.model_
    space, time = fitted.kernels
    unit = [ruler.scale[0] for ruler in model.layout.rulers]
    shift, scale = float(model.gp._standardization.values.shift), float(model.gp._standardization.values.scale)
    weather, cycle = time.kernels
    repeats, changes = cycle.base_kernel.kernels

    def number(x):
        return x.detach().numpy().item()

    def over_time(x, z):
        first = number(weather.outputscale) * matern52(x, z, number(weather.base_kernel.lengthscale) * unit[1])
        repeat = periodic(x, z, number(repeats.lengthscale), number(repeats.period_length) * unit[1])
        return first + number(cycle.outputscale) * repeat * matern52(x, z, number(changes.lengthscale) * unit[1])

    kernels = [lambda x, z: matern52(x, z, number(space.lengthscale) * unit[0]), over_time]
    scaled = (values - shift) / scale
    return (
        Oracle(kernels, [places, days[:, None]], scaled, number(fitted.noise_variance()), number(fitted.mean.constant)),
        shift,
        scale,
    )
