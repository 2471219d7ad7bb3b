"""Fields and datasets in, filled datasets out."""

from collections.abc import Sequence
from typing import Any

import xarray as xr

from lkgp.errors import InputError
from lkgp.xarray.model import fit

# Words of `fill` about what is filled; the others are about the model.
FILLING = ("smooth", "never_observed", "max_gap", "where", "keep_attrs")


def fill(field: xr.DataArray, *, return_model: bool = False, **words: Any) -> Any:
    """A field with its gaps filled, as a Dataset: NAME, NAME_std (in the same units) and NAME_filled (1 where a cell was filled).

    Words for the model: space, time, factors, kernels, seed, progress, max_memory, tell; see `fit`.
    Words for what is filled: smooth, never_observed, max_gap, where, keep_attrs; see `FieldModel.fill`.
    return_model: whether to return the fitted model, too: for `predict`, `sample`, `validate` and `save`
    """
    about_filling = {word: words.pop(word) for word in FILLING if word in words}
    model = fit(field, **words)
    result = model.fill(field, **about_filling)
    return (result, model) if return_model else result


def fill_dataset(dataset: xr.Dataset, variables: Sequence[str] | None = None, **words: Any) -> xr.Dataset:
    """A dataset with the gaps of some variables filled, each by a model of its own; everything else in it stays as it is.

    variables: by default all that hold numbers, have as many dimensions as any, and have gaps; words as in `fill`
    """
    result = dataset
    for name in choose_variables(dataset, variables):
        result = put(result, fill(dataset[name], **words))
    return result


def put(dataset: xr.Dataset, filled: xr.Dataset) -> xr.Dataset:
    """A dataset with a filled variable in its place, its companions beside it, and one more line of history."""
    lines = [line for line in (filled.attrs["history"], dataset.attrs.get("history")) if line]
    return dataset.assign({key: filled[key] for key in filled.data_vars}).assign_attrs(history="\n".join(lines))


def choose_variables(dataset: xr.Dataset, variables: Sequence[str] | None) -> list[str]:
    """The variables to fill."""
    for name in variables or ():
        if name not in dataset.data_vars:
            there = ", ".join(map(str, dataset.data_vars)) or "none"
            raise InputError(f"there is no variable {name!r}; there are {there}.")
    if variables:
        return list(variables)
    fields = [str(name) for name, field in dataset.data_vars.items() if field.dtype.kind == "f" and field.ndim > 0]
    most = max((dataset[name].ndim for name in fields), default=0)
    found = [name for name in fields if dataset[name].ndim == most and bool(dataset[name].isnull().any())]
    if not found:
        raise InputError(f"no variable has gaps; name one to smooth it and get its error bars. There are {', '.join(fields) or 'none'}.")
    return found
