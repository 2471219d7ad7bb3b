"""The labels of a field in a model file: how the field lies on the grid, beside the model itself."""

import math
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, TypedDict

import netCDF4
import numpy as np
import torch

import xarray as xr
from lkgp.data.grid import PartialGrid
from lkgp.persistence import ModelContents
from lkgp.persistence.damage import DamageError, naming_the_file
from lkgp.persistence.plain_types import check_type
from lkgp.persistence.tensors import get_finite, get_mask
from lkgp.xarray.coordinate_scaling import CoordinateScaling
from lkgp.xarray.factors import Factor, Kind
from lkgp.xarray.formats.encoding import known_encoding
from lkgp.xarray.formats.netcdf import NETCDF
from lkgp.xarray.layout import Layout

# Labels and scaled coordinates agree to rounding: times are stored in microseconds, and scaled points are of order one.
SAME_POINT = 1e-6
# Bytes that labels may take, and how many times more than what is stored of them: 1000 is the most that the usual
# compression can reach, and coordinates, which differ from each other, stay far below a tenth of it.
MIN_LABEL_BYTES, MOST_COMPRESSION = 50e6, 100.0


class FactorEntry(TypedDict):
    """See `Factor`."""

    dims: list[str]
    kind: Kind
    coords: list[str]


class ScalingEntry(TypedDict):
    """See `CoordinateScaling`."""

    factor: FactorEntry
    shift: list[float]
    scale: list[float]
    origin: str
    calendar: str
    categories: list[str]


class FieldEntry(TypedDict):
    """The entry "field" of a description; docs/model-file.md explains it."""

    name: str
    dims: list[str]
    attrs: dict[str, bool | int | float | str | list[Any]]
    scalings: list[ScalingEntry]
    notes: list[str]


def add_layout(contents: ModelContents, layout: Layout, name: str, notes: Sequence[str]) -> ModelContents:
    """The contents of a model file with the layout, name and notes of a field added."""
    labels = layout.field.to_dataset(name="labels").drop_vars("labels")
    spec = {
        "name": name,
        "dims": list(map(str, layout.field.dims)),
        "attrs": json_attrs(layout.field.attrs),
        "scalings": [asdict(scaling) for scaling in layout.scalings],
        "notes": list(notes),
    }
    netcdf = bytearray(known_encoding(labels, NETCDF).to_netcdf())
    tensors = {"field.labels": torch.frombuffer(netcdf, dtype=torch.uint8)}
    tensors |= {f"field.on_grid.{k}": torch.from_numpy(on_grid) for k, on_grid in enumerate(layout.on_grid)}
    return ModelContents({**contents.header, "field": spec}, contents.tensors | tensors)


def read_layout(contents: ModelContents, grid: PartialGrid) -> tuple[Layout, list[str]]:
    """The layout and the notes in the contents of a model file.

    grid: that of the model in the same file, whose points the labels must give
    """
    with naming_the_file(contents.source):
        # Older files call the scalings rulers, and the points on the grid kept.
        entry, tensors = contents.header["field"], contents.tensors
        is_old = isinstance(entry, dict) and "rulers" in entry
        spec = {("scalings" if name == "rulers" else name): value for name, value in entry.items()} if is_old else entry
        check_type(spec, FieldEntry, "field")
        if len(spec["scalings"]) != len(grid.coords):
            raise DamageError(f"it has labels for {len(spec['scalings'])} factors instead of {len(grid.coords)}")
        masks = "field.kept" if is_old else "field.on_grid"
        on_grid = [get_mask(tensors, f"{masks}.{k}", (None,)).numpy() for k in range(len(grid.coords))]
        scalings = tuple(build_scaling(scaling) for scaling in spec["scalings"])
        for scaling, coords in zip(scalings, grid.coords, strict=True):
            if scaling.factor.kind == "category" and len(scaling.categories) != coords.shape[1]:
                raise DamageError(f"{scaling.factor.name} has {len(scaling.categories)} categories")
        labels = read_labels(tensors, spec["dims"], scalings, [len(mask) for mask in on_grid])
        sizes = [labels.sizes[dim] for dim in spec["dims"]]
        # The values are in the model already; here an array of the right shape that takes no memory stands for them.
        nothing = np.broadcast_to(np.float32(np.nan), sizes)
        field = xr.DataArray(nothing, dims=spec["dims"], coords=labels.coords, name=spec["name"], attrs=spec["attrs"])
        layout = Layout(field, scalings, tuple(on_grid))
        check_points(layout, grid)
        return layout, spec["notes"]


def read_labels(
    tensors: dict[str, torch.Tensor], dims: Sequence[str], scalings: Sequence[CoordinateScaling], points: Sequence[int]
) -> xr.Dataset:
    """The coordinates of the field; points: the number of points of every factor, by which their sizes are checked."""
    stored = bytes(get_finite(tensors, "field.labels", (None,), [torch.uint8]).numpy())
    # A compressed array can be far longer than what is stored of it, so sizes are checked before values are read.
    with netCDF4.Dataset("labels", memory=stored) as labels:
        sizes = {name: dim.size for name, dim in labels.dimensions.items()}
        arrays = [(array.size, array.dtype) for array in labels.variables.values()]
        # Texts of any length are not compressed; only their places count.
        size = sum(count * np.dtype(object if dtype is str else dtype).itemsize for count, dtype in arrays)
        if size > MIN_LABEL_BYTES + MOST_COMPRESSION * len(stored):
            raise DamageError(f"its labels take {size / 1e6:.0f} MB")
    if sorted(dim for scaling in scalings for dim in scaling.factor.dims) != sorted(dims) or not set(dims) <= set(
        sizes
    ):
        raise DamageError("its labels do not have the dimensions of its factors")
    for scaling, count in zip(scalings, points, strict=True):
        if math.prod(sizes[dim] for dim in scaling.factor.dims) != count:
            raise DamageError(f"it does not have one label for each of the {count} points of {scaling.factor.name}")
    return xr.load_dataset(stored)


def check_points(layout: Layout, grid: PartialGrid) -> None:
    """Refuse labels that do not give the points of the grid of the model."""
    for factor, points, coords in zip(layout.factors, layout.points(), grid.coords, strict=True):
        known = coords.double().numpy()
        if points.shape != known.shape or not np.allclose(points, known, rtol=0.0, atol=SAME_POINT):
            raise DamageError(f"its labels of {factor.name} do not give the points that the model was fitted to")


def build_scaling(spec: dict[str, Any]) -> CoordinateScaling:
    """The inverse of `asdict`."""
    factor = Factor(tuple(spec["factor"]["dims"]), spec["factor"]["kind"], tuple(spec["factor"]["coords"]))
    numbers = [*spec["shift"], *spec["scale"]]
    if not np.isfinite(numbers).all() or not all(scale > 0 for scale in spec["scale"]):
        raise DamageError(f"the scaling of {factor.name} is not finite and positive")
    return CoordinateScaling(
        factor=factor,
        shift=tuple(spec["shift"]),
        scale=tuple(spec["scale"]),
        origin=spec["origin"],
        calendar=spec["calendar"],
        categories=tuple(spec["categories"]),
    )


def json_attrs(attrs: dict[Any, Any]) -> dict[str, Any]:
    """Attributes as JSON can hold them; anything else becomes text."""
    simple = {
        name: value.tolist() if isinstance(value, (np.ndarray, np.generic)) else value for name, value in attrs.items()
    }
    return {
        str(name): value if isinstance(value, (bool, int, float, str, list)) else str(value)
        for name, value in simple.items()
    }
