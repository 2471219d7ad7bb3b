"""Filling the gaps of a field, with an error bar for every cell."""

from typing import Any

import numpy as np

import xarray as xr
from lkgp.errors import InputError
from lkgp.xarray.field import FittedField, Layout
from lkgp.xarray.manners import encoding_of, error_attrs, flag_attrs, history_line, keeps_attrs, short_gaps


def as_mask(where: Any, field: xr.DataArray) -> xr.DataArray:
    """`where` as a boolean field; what is NaN there is False."""
    if not isinstance(where, xr.DataArray):
        values = np.asarray(where)
        if values.shape != field.shape:
            raise InputError(
                f"`where` has the shape {values.shape}, but the field has {field.shape}; give a DataArray if they differ."
            )
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


def other_labels(field: xr.DataArray, layout: Layout) -> dict[Any, Any]:
    """The labels of a field along the dimensions in which they are fewer than those that were fitted, or in another order."""
    fitted = layout.field
    if set(field.dims) != set(fitted.dims):
        raise InputError(
            f"the field has the dimensions {', '.join(map(str, field.dims))}, but the model was fitted to one over "
            f"{', '.join(map(str, fitted.dims))}; fill a field with the same ones."
        )
    found: dict[Any, Any] = {}
    for dim, size in field.sizes.items():
        labels, known = field.indexes.get(dim), fitted.indexes.get(dim)
        if labels is None or known is None:
            if size != fitted.sizes[dim]:
                raise InputError(
                    f"{dim} is {size} long, but was {fitted.sizes[dim]} long in the fit, and has no labels that tell which."
                )
        elif not labels.equals(known):
            # A label that was there more than once tells no more than one that was not.
            new = labels[~labels.isin(known.drop_duplicates(keep=False))]
            if len(new):
                raise InputError(
                    f"{dim} has {new[0]}, which the model was not fitted to; ask for it with `predict`, or fit again."
                )
            found[dim] = labels
    for name in (
        name
        for factor in layout.factors
        for name in factor.coords
        if name in field.coords and name not in field.indexes
    ):
        here = field[name].variable
        known = fitted[name].sel({dim: labels for dim, labels in found.items() if dim in fitted[name].dims}).variable
        if set(here.dims) != set(known.dims) or not here.equals(known.transpose(*here.dims)):
            raise InputError(
                f"{name} is not what it was in the fit; fill the field that was fitted, with its places in the same order."
            )
    return found


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
    """The field that `model` was fitted to, or a part of it, in any order, with its gaps filled; words as in `FieldModel.fill`.

    factor: of the error bars
    """
    name, layout = model.name, model.layout
    missing, labels = field.isnull(), other_labels(field, layout)
    if never_observed and not all(kept.all() for kept in layout.kept):
        found = model.predict(
            {coord: field[coord] for factor in layout.factors for coord in factor.coords}, observation_noise=not smooth
        )
    else:
        found = model.predict(observation_noise=not smooth).sel(labels)
    filled = missing if never_observed else missing & found[name].notnull()
    if not never_observed and layout.time is not None and layout.field.sizes[layout.time] > 1:
        seen = model.observed.notnull().any(layout.time)
        filled = filled & seen.sel({dim: index for dim, index in labels.items() if dim != layout.time})
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
    said = (
        {}
        if factor == 1.0
        else {"comment": f"multiplied by {factor:.3g}, so that 95 % intervals hold 95 % of cells that were withheld"}
    )
    result[pair[0]] = like.copy(data=errors).assign_attrs(error_attrs(attrs, name) | said)
    result[pair[1]] = like.copy(data=filled.values.astype(np.int8)).assign_attrs(flag_attrs(attrs, name))
    result[name].encoding, result[pair[0]].encoding = encoding_of(field, result[name])
    result[pair[1]].encoding = {key: value for key, value in field.encoding.items() if key == "grid_mapping"}
    over = " x ".join(factor.name for factor in layout.factors)
    did = "smoothed" if smooth else "filled"
    what = f"{did} {name}: {int(filled.sum())} of {int(missing.sum())} missing cells filled by a Gaussian process over {over}"
    return result.assign_attrs(history=history_line(what))
