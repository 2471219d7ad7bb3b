"""Fields and datasets in, filled datasets out."""

from collections.abc import Sequence
from typing import Any

import xarray as xr
from lkgp.errors import InputError
from lkgp.xarray.factors import Dims, Meanings, choose_factors
from lkgp.xarray.field import Layout, in_memory, read_values
from lkgp.xarray.filling import as_mask
from lkgp.xarray.manners import longest_gap
from lkgp.xarray.model import fit

# Words of `fill` about what is filled; the others are about the model. And those that can be checked before a fit.
FILLING = ("smooth", "never_observed", "max_gap", "where", "calibrate", "keep_attrs")
CHECKED = ("space", "time", "factors", "max_gap")
# Attributes that name variables which only tell something about another one.
COMPANIONS = ("ancillary_variables", "bounds", "climatology")


def fill(field: xr.DataArray, *, return_model: bool = False, **words: Any) -> Any:
    """A field with its gaps filled, as a Dataset: NAME, NAME_std (in the same units) and NAME_filled (1 where a cell was filled).

    Words for the model: space, time, factors, kernels, seed, progress, max_memory, tell; see `fit`.
    Words for what is filled: smooth, never_observed, max_gap, where, calibrate, keep_attrs; see `FieldModel.fill`.
    return_model: whether to return the fitted model, too: for `predict`, `sample`, `validate` and `save`
    """
    field = in_memory(field)
    if words.get("where") is not None:
        words["where"] = as_mask(words["where"], field)
    check(field, **{word: words[word] for word in CHECKED if word in words})
    about_filling = {word: words.pop(word) for word in FILLING if word in words}
    model = fit(field, **words)
    result = model.fill(field, **about_filling)
    return (result, model) if return_model else result


def fill_dataset(dataset: xr.Dataset, variables: Sequence[str] | None = None, **words: Any) -> xr.Dataset:
    """A dataset with the gaps of some variables filled, each by a model of its own; everything else in it stays as it is.

    variables: by default all that hold numbers and have gaps, and of them those over time, if there are any; words as in `fill`
    """
    if words.get("return_model"):
        raise InputError("return_model is for one field; take a variable of the dataset by its name.")
    fields = [in_memory(dataset[name]) for name in choose_variables(dataset, variables)]
    for field in fields:
        check(field, **{word: words[word] for word in CHECKED if word in words})
    result = dataset
    for field in fields:
        result = put(result, fill(field, **words))
    return result


def check(
    field: xr.DataArray,
    *,
    space: Dims | None = None,
    time: str | None = None,
    factors: Sequence[Dims] | None = None,
    max_gap: Any = None,
) -> None:
    """Refuse, before any fit, a field that cannot be fitted, or a gap that its times cannot be measured with; words as in `fill`."""
    found, _ = choose_factors(field, space=space, time=time, factors=factors)
    layout = Layout.of(read_values(field), found)
    if max_gap is not None:
        longest_gap(max_gap, field[layout.time] if layout.time is not None else None)


def put(dataset: xr.Dataset, filled: xr.Dataset) -> xr.Dataset:
    """A dataset with a filled variable in its place, its companions beside it, and one more line of history, the newest first."""
    lines = [line for line in (filled.attrs["history"], dataset.attrs.get("history")) if line]
    return dataset.assign({key: filled[key] for key in filled.data_vars}).assign_attrs(history="\n".join(lines))


def choose_variables(dataset: xr.Dataset, variables: Sequence[str] | None) -> list[str]:
    """The variables to fill: those that are named, or those with gaps; what does not vary in time is left alone where others do."""
    for name in variables or ():
        if name not in dataset.data_vars:
            there = ", ".join(map(str, dataset.data_vars)) or "none"
            raise InputError(f"there is no variable {name!r}; there are {there}.")
    attrs = [variable.attrs for variable in dataset.variables.values()]
    companions = {name for found in attrs for key in COMPANIONS for name in str(found.get(key, "")).split()}
    fields = [
        str(n)
        for n, field in dataset.data_vars.items()
        if field.dtype.kind == "f" and field.ndim > 0 and n not in companions
    ]
    fields = [name for name in fields if Meanings.of(dataset[name]).time is not None] or fields
    found = list(variables) if variables else [name for name in fields if has_gaps(dataset[name])]
    if not found:
        raise InputError(
            f"no variable has gaps; name one to smooth it and get its error bars. There are {', '.join(fields) or 'none'}."
        )
    for name in found:
        taken = [key for key in (f"{name}_std", f"{name}_filled") if key in dataset.variables]
        if taken:
            raise InputError(
                f"there is a variable {taken[0]!r} already, perhaps because {name} was filled before; rename or drop it first."
            )
    return found


def has_gaps(field: xr.DataArray) -> bool:
    """Whether a value is missing at a place where there are others, or everywhere."""
    missing, time = field.isnull(), Meanings.of(field).time
    if time is not None and field.sizes[time] > 1 and not bool(missing.all()):
        missing = missing & ~missing.all(time)
    return bool(missing.any())
