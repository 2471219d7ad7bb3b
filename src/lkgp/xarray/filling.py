"""Filling the gaps of a field, with an error bar for every cell."""

from typing import Any

import numpy as np
import xarray as xr

from lkgp.errors import InputError
from lkgp.xarray.field import FittedField
from lkgp.xarray.manners import encoding_of, error_attrs, flag_attrs, history_line, keeps_attrs, short_gaps


def as_mask(where: Any, field: xr.DataArray) -> xr.DataArray:
    """`where` as a boolean field; what is NaN there is False."""
    if not isinstance(where, xr.DataArray):
        values = np.asarray(where)
        if values.shape != field.shape:
            raise InputError(f"`where` has the shape {values.shape}, but the field has {field.shape}; give a DataArray if they differ.")
        where = xr.DataArray(values, dims=field.dims)
    if set(where.dims) - set(field.dims):
        raise InputError(
            f"`where` has the dimensions {', '.join(map(str, where.dims))}, but the field has {', '.join(map(str, field.dims))}."
        )
    try:
        xr.align(where, field, join="exact", copy=False)
    except ValueError:
        raise InputError("`where` has other coordinates than the field; bring it onto the same ones first.") from None
    return where.notnull() & where.astype(bool)


def fill_with(
    model: FittedField,
    field: xr.DataArray,
    *,
    smooth: bool,
    never_observed: bool,
    max_gap: Any,
    where: xr.DataArray | None,
    factor: float,
    keep_attrs: bool | None,
) -> xr.Dataset:
    """The field that `model` was fitted to, with its gaps filled; words as in `FieldModel.fill`.

    factor: of the error bars
    """
    name, layout = model.name, model.layout
    found = model.predict(observation_noise=not smooth)
    missing = field.isnull()
    filled = missing & (found[name].notnull())
    if never_observed:
        if not all(kept.all() for kept in layout.kept):
            found = model.predict(
                {coord: field[coord] for factor in layout.factors for coord in factor.coords}, observation_noise=not smooth
            )
        filled = missing
    elif layout.time is not None and field.sizes[layout.time] > 1:
        filled = filled & ~missing.all(layout.time)
    if max_gap is not None:
        filled = filled & short_gaps(missing, layout.time, max_gap)
    if where is not None:
        filled = filled & as_mask(where, field)
    filled = filled.transpose(*field.dims)
    mean, std = (found[key].transpose(*field.dims).variable for key in (name, f"{name}_std"))
    shown = ~missing | filled
    values = np.where(filled | (shown & smooth), mean, field).astype(field.dtype if field.dtype.kind == "f" else float)
    attrs = dict(field.attrs) if keeps_attrs(keep_attrs) else {}
    pair = [f"{name}_std", f"{name}_filled"]
    ancillary = " ".join(dict.fromkeys([*str(attrs.get("ancillary_variables", "")).split(), *pair]))
    like = field.drop_attrs(deep=False)
    result = like.copy(data=values).rename(name).assign_attrs({**attrs, "ancillary_variables": ancillary}).to_dataset()
    errors = np.where(shown, factor * std, np.nan).astype(values.dtype)
    said = {} if factor == 1.0 else {"comment": f"multiplied by {factor:.3g}, so that 95 % intervals hold 95 % of cells that were withheld"}
    result[pair[0]] = like.copy(data=errors).assign_attrs(error_attrs(attrs, name) | said)
    result[pair[1]] = like.copy(data=filled.values.astype(np.int8)).assign_attrs(flag_attrs(attrs, name))
    result[name].encoding, result[pair[0]].encoding = encoding_of(field, result[name])
    result[pair[1]].encoding = {}
    over = " x ".join(factor.name for factor in layout.factors)
    did = "smoothed" if smooth else "filled"
    what = f"{did} {name}: {int(filled.sum())} of {int(missing.sum())} missing cells filled by a Gaussian process over {over}"
    return result.assign_attrs(history=history_line(what))
