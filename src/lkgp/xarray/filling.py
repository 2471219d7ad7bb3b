"""Filling the gaps of a field, with an error bar for every cell."""

from typing import Any

import numpy as np

import xarray as xr
from lkgp.errors import InputError
from lkgp.xarray.cf_metadata import encodings_of, error_attrs, flag_attrs, history_line, resolve_keep_attrs
from lkgp.xarray.fitted_field import FittedField
from lkgp.xarray.layout import Layout
from lkgp.xarray.max_gap import MaxGap, in_short_gaps


def fill_field(
    model: FittedField,
    field: xr.DataArray,
    *,
    smooth: bool,
    never_observed: bool,
    max_gap: MaxGap | None,
    where: xr.DataArray | np.ndarray | None,
    error_factor: float,
    keep_attrs: bool | None,
    std: bool = True,
) -> xr.Dataset:
    """The field that `model` was fitted to, or a part of it in any order, with its gaps filled.

    error_factor: the factor by which the error bars are multiplied; the other arguments as in `FieldModel.fill`
    """
    name, layout = model.name, model.layout
    missing, labels = field.isnull(), differing_labels(field, layout)
    if never_observed and not all(on_grid.all() for on_grid in layout.on_grid):
        places = {coord: field[coord] for factor in layout.factors for coord in factor.coords}
        predicted = model.predict(places, observation_noise=not smooth, std=std)
    else:
        predicted = model.predict(observation_noise=not smooth, std=std).sel(labels)
    filled = missing if never_observed else missing & predicted[name].notnull()
    if not never_observed and layout.time is not None and layout.field.sizes[layout.time] > 1:
        seen = model.observed.notnull().any(layout.time)
        filled = filled & seen.sel({dim: index for dim, index in labels.items() if dim != layout.time})
    if max_gap is not None:
        filled = filled & in_short_gaps(missing, layout.time, max_gap)
    if where is not None:
        filled = filled & as_mask(where, field)
    filled = filled.transpose(*field.dims)
    present = ~missing | filled
    dtype = field.dtype if field.dtype.kind == "f" else float
    mean = predicted[name].transpose(*field.dims).variable
    values, errors = np.where(filled | (present & smooth), mean, field).astype(dtype), None
    if std:
        found = predicted[f"{name}_std"].transpose(*field.dims).variable
        errors = np.where(present, error_factor * found, np.nan).astype(dtype)
    result = filled_dataset(field, name, values, errors, filled.values.astype(np.int8), error_factor, keep_attrs)
    verb, over = "smoothed" if smooth else "filled", " x ".join(factor.name for factor in layout.factors)
    counts = f"{int(filled.sum())} of {int(missing.sum())} missing cells filled"
    action = f"{verb} {name}: {counts} by a Gaussian process over {over}"
    return result.assign_attrs(history=history_line(action))


def filled_dataset(
    field: xr.DataArray,
    name: str,
    values: np.ndarray,
    errors: np.ndarray | None,
    flags: np.ndarray,
    error_factor: float,
    keep_attrs: bool | None,
) -> xr.Dataset:
    """NAME, NAME_std and NAME_filled with the field's labels, attributes and encoding; all arrays of its shape.

    errors: the standard errors; None leaves out NAME_std
    """
    attrs = dict(field.attrs) if resolve_keep_attrs(keep_attrs) else {}
    std_name, flag_name = f"{name}_std", f"{name}_filled"
    added = [flag_name] if errors is None else [std_name, flag_name]
    ancillary = " ".join(dict.fromkeys([*str(attrs.get("ancillary_variables", "")).split(), *added]))
    std_attrs = error_attrs(attrs, name)
    if error_factor != 1.0:
        std_attrs["comment"] = (
            f"multiplied by {error_factor:.3g} so that 95 % intervals contain 95 % of the withheld cells"
        )
    like = field.drop_attrs(deep=False)
    result = like.copy(data=values).rename(name).assign_attrs({**attrs, "ancillary_variables": ancillary}).to_dataset()
    if errors is not None:
        result[std_name] = like.copy(data=errors).assign_attrs(std_attrs)
    result[flag_name] = like.copy(data=flags).assign_attrs(flag_attrs(attrs, name))
    result[name].encoding, std_encoding = encodings_of(field, result[name])
    if errors is not None:
        result[std_name].encoding = std_encoding
    result[flag_name].encoding = {key: value for key, value in field.encoding.items() if key == "grid_mapping"}
    return result


def as_mask(where: xr.DataArray | np.ndarray, field: xr.DataArray) -> xr.DataArray:
    """`where` as a boolean field, False where it is NaN."""
    if not isinstance(where, xr.DataArray):
        values = np.asarray(where)
        if values.shape != field.shape:
            raise InputError(
                f"`where` has the shape {values.shape}, but the field has {field.shape}; give a DataArray if they "
                "differ."
            )
        where = xr.DataArray(values, dims=field.dims)
    if set(where.dims) - set(field.dims):
        raise InputError(
            f"`where` has the dimensions {', '.join(map(str, where.dims))}, but the field has "
            f"{', '.join(map(str, field.dims))}."
        )
    try:
        xr.align(where, field, join="exact", copy=False)
    except ValueError:
        raise InputError("`where` has different coordinates from the field; align the two first.") from None
    return where.notnull() & where.astype(bool)


def differing_labels(field: xr.DataArray, layout: Layout) -> dict[Any, Any]:
    """The labels of a field along the dimensions in which it has fewer than the fitted field, or another order."""
    fitted = layout.field
    if set(field.dims) != set(fitted.dims):
        raise InputError(
            f"the field has the dimensions {', '.join(map(str, field.dims))}, but the model was fitted to "
            f"{', '.join(map(str, fitted.dims))}; give a field with the same dimensions."
        )
    found: dict[Any, Any] = {}
    for dim, size in field.sizes.items():
        labels, known = field.indexes.get(dim), fitted.indexes.get(dim)
        if labels is None or known is None:
            if size != fitted.sizes[dim]:
                raise InputError(
                    f"{dim} has length {size}, but had length {fitted.sizes[dim]} in the fit; give it labels that say "
                    "which entries it holds."
                )
        elif not labels.equals(known):
            # A label that occurred twice identifies a point no better than an unknown one.
            new = labels[~labels.isin(known.drop_duplicates(keep=False))]
            if len(new):
                raise InputError(
                    f"{dim} has {new[0]}, which the model was not fitted to; use `predict` for it, or fit again."
                )
            found[dim] = labels
    check_same_places(field, layout, found)
    return found


def check_same_places(field: xr.DataArray, layout: Layout, labels: dict[Any, Any]) -> None:
    """Refuse a field whose coordinates without an index, such as those of stations, differ from the fitted ones."""
    for factor in layout.factors:
        for name in factor.coords:
            if name not in field.coords or name in field.indexes:
                continue
            here, fitted = field[name].variable, layout.field[name]
            known = fitted.sel({dim: index for dim, index in labels.items() if dim in fitted.dims}).variable
            if set(here.dims) != set(known.dims) or not here.equals(known.transpose(*here.dims)):
                raise InputError(
                    f"{name} differs from that of the fitted field; give the fitted field with its places in the same "
                    "order."
                )
