"""Fields and datasets in, filled datasets out."""

from collections.abc import Callable, Sequence

import numpy as np
from gpytorch.kernels import Kernel

import xarray as xr
from lkgp.errors import InputError
from lkgp.xarray.cf_coordinates import CFCoordinates
from lkgp.xarray.factors import Dims, choose_factors
from lkgp.xarray.field_values import as_float_field, load_field
from lkgp.xarray.filling import as_mask
from lkgp.xarray.fitting import fit
from lkgp.xarray.layout import Layout
from lkgp.xarray.max_gap import MaxGap, parse_max_gap
from lkgp.xarray.model import FieldModel
from lkgp.xarray.preview import Preview
from lkgp.xarray.validation import Validation

# CF attributes that name variables which only describe another variable; these are never filled on their own.
DESCRIBING_ATTRS = ("ancillary_variables", "bounds", "climatology")


def fill(
    field: xr.DataArray,
    *,
    space: Dims | None = None,
    time: str | None = None,
    factors: Sequence[Dims] | None = None,
    kernels: Sequence[Kernel] | None = None,
    smoothness: float | None = None,
    seed: int = 0,
    progress: bool | Callable[[int, float], None] = False,
    max_memory: float | None = None,
    on_preview: Callable[[Preview], None] | None = None,
    smooth: bool = False,
    never_observed: bool = False,
    max_gap: MaxGap | None = None,
    where: xr.DataArray | np.ndarray | None = None,
    calibrate: bool | Validation = False,
    keep_attrs: bool | None = None,
    std: bool = True,
    return_model: bool = False,
) -> xr.Dataset | tuple[xr.Dataset, FieldModel]:
    """A field with its gaps filled, as a Dataset.

    The Dataset has NAME, NAME_std (the standard error, in the same units) and NAME_filled (1 where a cell was filled).

    space, time, factors, kernels, smoothness, seed, progress, max_memory, on_preview: about the model, as in `fit`
    smooth, never_observed, max_gap, where, calibrate, keep_attrs, std: about what is filled, as in `FieldModel.fill`
    return_model: also return the fitted model, for `predict`, `sample`, `validate` and `save`
    """
    field = load_field(field)
    mask = as_mask(where, field) if where is not None else None
    check(field, space=space, time=time, factors=factors, max_gap=max_gap)
    model = fit(
        field,
        space=space,
        time=time,
        factors=factors,
        kernels=kernels,
        smoothness=smoothness,
        seed=seed,
        progress=progress,
        max_memory=max_memory,
        on_preview=on_preview,
    )
    result = model.fill(
        field,
        smooth=smooth,
        never_observed=never_observed,
        max_gap=max_gap,
        where=mask,
        calibrate=calibrate,
        keep_attrs=keep_attrs,
        std=std,
    )
    return (result, model) if return_model else result


def fill_dataset(
    dataset: xr.Dataset,
    variables: Sequence[str] | None = None,
    *,
    space: Dims | None = None,
    time: str | None = None,
    factors: Sequence[Dims] | None = None,
    kernels: Sequence[Kernel] | None = None,
    smoothness: float | None = None,
    seed: int = 0,
    progress: bool | Callable[[int, float], None] = False,
    max_memory: float | None = None,
    on_preview: Callable[[Preview], None] | None = None,
    smooth: bool = False,
    never_observed: bool = False,
    max_gap: MaxGap | None = None,
    where: xr.DataArray | np.ndarray | None = None,
    calibrate: bool | Validation = False,
    keep_attrs: bool | None = None,
    std: bool = True,
) -> xr.Dataset:
    """A dataset with the gaps of some variables filled, each by a model of its own; everything else stays as it is.

    variables: by default all that hold numbers and have gaps; if any of them vary in time, only those
    All other arguments are those of `fill`.
    """
    fields = [load_field(dataset[name]) for name in choose_variables(dataset, variables)]
    for field in fields:  # before the first fit, which may take long
        check(field, space=space, time=time, factors=factors, max_gap=max_gap)
    result = dataset
    for field in fields:
        filled = fill(
            field,
            space=space,
            time=time,
            factors=factors,
            kernels=kernels,
            smoothness=smoothness,
            seed=seed,
            progress=progress,
            max_memory=max_memory,
            on_preview=on_preview,
            smooth=smooth,
            never_observed=never_observed,
            max_gap=max_gap,
            where=where,
            calibrate=calibrate,
            keep_attrs=keep_attrs,
            std=std,
        )
        result = insert_filled(result, filled)
    return result


def check(
    field: xr.DataArray,
    *,
    space: Dims | None = None,
    time: str | None = None,
    factors: Sequence[Dims] | None = None,
    max_gap: MaxGap | None = None,
) -> None:
    """Refuse a field that cannot be fitted, or a `max_gap` that its times cannot be compared with; nothing is fitted.

    space, time, factors, max_gap: as in `fill`
    """
    found, _ = choose_factors(field, space=space, time=time, factors=factors)
    layout = Layout.of(as_float_field(field), found)
    if max_gap is not None:
        parse_max_gap(max_gap, field[layout.time] if layout.time is not None else None)


def insert_filled(dataset: xr.Dataset, filled: xr.Dataset) -> xr.Dataset:
    """A dataset with a filled variable in its place, its new variables, and a new first line of history."""
    lines = [line for line in (filled.attrs["history"], dataset.attrs.get("history")) if line]
    return dataset.assign({key: filled[key] for key in filled.data_vars}).assign_attrs(history="\n".join(lines))


def choose_variables(dataset: xr.Dataset, variables: Sequence[str] | None) -> list[str]:
    """The named variables, or by default those with gaps; if any variable varies in time, only such variables."""
    for name in variables or ():
        if name not in dataset.data_vars:
            available = ", ".join(map(str, dataset.data_vars)) or "none"
            raise InputError(f"there is no variable {name!r}; available variables: {available}.")
    attrs = [variable.attrs for variable in dataset.variables.values()]
    describing = {name for found in attrs for key in DESCRIBING_ATTRS for name in str(found.get(key, "")).split()}
    fields = [
        str(name)
        for name, field in dataset.data_vars.items()
        if field.dtype.kind == "f" and field.ndim > 0 and name not in describing
    ]
    times = {name: CFCoordinates.of(dataset[name]).time for name in fields}
    fields = [name for name in fields if times[name] is not None] or fields
    found = list(variables) if variables else [name for name in fields if has_gaps(dataset[name], times[name])]
    if not found:
        available = ", ".join(fields) or "none"
        raise InputError(
            f"no variable has gaps; name one to smooth it and to get its error bars. Available variables: {available}."
        )
    for name in found:
        existing = [key for key in (f"{name}_std", f"{name}_filled") if key in dataset.variables]
        if existing:
            raise InputError(
                f"there is already a variable {existing[0]!r}, perhaps because {name} was filled before; rename or "
                "drop it first."
            )
    return found


def has_gaps(field: xr.DataArray, time: str | None) -> bool:
    """Whether a value is missing at a place that has others, or all values are missing; time: its dimension."""
    seen = field.notnull()
    if time is not None and field.sizes[time] > 1 and bool(seen.any()):
        return bool((seen.any(time) & ~seen.all(time)).any())
    return not bool(seen.all())
