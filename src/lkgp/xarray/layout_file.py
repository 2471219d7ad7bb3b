"""The labels of a field in a model file: how the field lies on the grid, beside the model itself."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
import torch

import xarray as xr
from lkgp.errors import FileError
from lkgp.persistence import ModelContents
from lkgp.xarray.coordinate_scaling import CoordinateScaling
from lkgp.xarray.factors import Factor
from lkgp.xarray.formats.encoding import known_encoding
from lkgp.xarray.formats.netcdf import NETCDF
from lkgp.xarray.layout import Layout


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


def read_layout(contents: ModelContents) -> tuple[Layout, list[str]]:
    """The layout and the notes in the contents of a model file."""
    if "field" not in contents.header:
        raise FileError(f"{contents.source} is a model of arrays without labels; read it with lkgp.LKGP.load.")
    spec, tensors = contents.header["field"], contents.tensors
    # Older files call the scalings rulers, and the points on the grid kept.
    scaling_specs, prefix = (
        (spec["scalings"], "field.on_grid") if "scalings" in spec else (spec["rulers"], "field.kept")
    )
    scalings = tuple(build_scaling(scaling) for scaling in scaling_specs)
    on_grid = tuple(tensors[f"{prefix}.{k}"].numpy() for k in range(len(scalings)))
    labels = xr.load_dataset(bytes(tensors["field.labels"].numpy()))
    sizes = [labels.sizes[dim] for dim in spec["dims"]]
    # The values are in the model already; here an array of the right shape that takes no memory stands for them.
    nothing = np.broadcast_to(np.float32(np.nan), sizes)
    field = xr.DataArray(nothing, dims=spec["dims"], coords=labels.coords, name=spec["name"], attrs=spec["attrs"])
    return Layout(field, scalings, on_grid), spec["notes"]


def build_scaling(spec: dict[str, Any]) -> CoordinateScaling:
    """The inverse of `asdict`."""
    factor = Factor(tuple(spec["factor"]["dims"]), spec["factor"]["kind"], tuple(spec["factor"]["coords"]))
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
