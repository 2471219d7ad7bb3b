"""Latitudes and longitudes: their units, points in space, and longitudes without a jump."""

import numpy as np

import xarray as xr
from lkgp.errors import InputError

EARTH_RADIUS_KM = 6371.0
# The CF names of radians.
RADIANS = ("rad", "radian", "radians")
# Places at a pole are moved this many degrees away from it, about 10 cm, so that they stay distinct.
POLE_OFFSET_DEGREES = 1e-6


def in_radians(coord: xr.DataArray) -> bool:
    """Whether the units of a coordinate are radians, as in the output of ICON."""
    return str(coord.attrs.get("units", "")).strip().lower() in RADIANS


def in_degrees(coord: xr.DataArray) -> xr.DataArray:
    """The coordinate itself, or converted to degrees if it is in radians."""
    if not in_radians(coord):
        return coord
    return xr.DataArray(np.rad2deg(coord.values), dims=coord.dims, attrs={**coord.attrs, "units": "degrees"})


def on_sphere(latitude: np.ndarray, longitude: np.ndarray) -> list[np.ndarray]:
    """Cartesian coordinates in kilometres from the centre of the Earth: three columns, each (n,).

    latitude, longitude: in degrees, (n,)
    """
    # The tolerance admits a pole that was stored as float32 radians.
    outside = np.abs(latitude) > 90.0 + 1e-5
    if outside.any():
        raise InputError(
            f"the latitude {latitude[outside][0]:g} is not between -90 and 90 degrees; give degrees, or set the "
            "attribute units to radians."
        )
    limit = 90.0 - POLE_OFFSET_DEGREES
    lat, lon = np.deg2rad(np.clip(latitude, -limit, limit)), np.deg2rad(longitude)
    # R (cos lat cos lon, cos lat sin lon, sin lat)
    return [
        EARTH_RADIUS_KM * np.cos(lat) * np.cos(lon),
        EARTH_RADIUS_KM * np.cos(lat) * np.sin(lon),
        EARTH_RADIUS_KM * np.sin(lat),
    ]


def on_circle(longitude: np.ndarray) -> list[np.ndarray]:
    """Points on a circle along which one degree of longitude has length one: two columns, each (n,)."""
    angle = np.deg2rad(longitude)
    return [np.rad2deg(np.cos(angle)), np.rad2deg(np.sin(angle))]


def unwrap_longitude(longitude: np.ndarray) -> np.ndarray:
    """Longitudes without a jump: the widest stretch without any place is put at the edges of the map."""
    circle = np.sort(np.unique(np.mod(longitude, 360.0)))
    gaps = np.diff(circle, append=circle[0] + 360.0)
    widest = np.flatnonzero(gaps > gaps.max() - 1e-9)[-1]
    start = circle[(widest + 1) % len(circle)]
    turned = start + np.mod(np.mod(longitude, 360.0) - start, 360.0)
    return turned - 360.0 if turned.mean() > 180.0 else turned
