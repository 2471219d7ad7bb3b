"""`da.lkgp` and `ds.lkgp`: the same functions as methods of xarray's objects. No state is kept in them."""

from collections.abc import Sequence
from typing import Any

import xarray as xr
from lkgp.xarray.datasets import fill, fill_dataset
from lkgp.xarray.model import FieldModel, fit, inspect
from lkgp.xarray.outlook import Outlook


class FieldAccessor:
    """The gaps of a DataArray."""

    def __init__(self, field: xr.DataArray) -> None:
        self._field = field

    def fill(self, **words: Any) -> Any:
        """The field with its gaps filled, as in `lkgp.xarray.fill`."""
        return fill(self._field, **words)

    def fit(self, **words: Any) -> FieldModel:
        """A fitted model, as in `lkgp.xarray.fit`."""
        return fit(self._field, **words)

    def inspect(self, **words: Any) -> Outlook:
        """What is missing, and what filling it would take, as in `lkgp.xarray.inspect`."""
        return inspect(self._field, **words)


class DatasetAccessor:
    """The gaps of the variables of a Dataset."""

    def __init__(self, dataset: xr.Dataset) -> None:
        self._dataset = dataset

    def fill(self, variables: Sequence[str] | None = None, **words: Any) -> xr.Dataset:
        """The dataset with the gaps of some variables filled, as in `lkgp.xarray.fill_dataset`."""
        return fill_dataset(self._dataset, variables, **words)
