"""Gaps of xarray's fields, filled by an exact Gaussian process, with an error bar for every cell.

Importing this module adds `.lkgp` to DataArrays and Datasets: `da.lkgp.fill()`.
"""

import xarray as xr
from lkgp.xarray.accessor import DatasetAccessor, FieldAccessor
from lkgp.xarray.datasets import fill, fill_dataset
from lkgp.xarray.model import FieldModel, fit, inspect
from lkgp.xarray.outlook import Outlook
from lkgp.xarray.validation import Validation

__all__ = ["FieldModel", "Outlook", "Validation", "fill", "fill_dataset", "fit", "inspect"]

xr.register_dataarray_accessor("lkgp")(FieldAccessor)
xr.register_dataset_accessor("lkgp")(DatasetAccessor)
