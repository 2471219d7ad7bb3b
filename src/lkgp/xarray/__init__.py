"""Fill the gaps of xarray fields by an exact Gaussian process, with an error bar for every cell.

Importing this package adds `.lkgp` to DataArrays and Datasets, as in `da.lkgp.fill()`.
"""

from lkgp.xarray import accessor as _accessor  # noqa: F401  (registers `.lkgp`)
from lkgp.xarray.datasets import fill, fill_dataset
from lkgp.xarray.fitting import fit, inspect
from lkgp.xarray.model import FieldModel
from lkgp.xarray.preview import Preview
from lkgp.xarray.validation import Validation

# The name of `Preview` in earlier versions.
Outlook = Preview

__all__ = ["FieldModel", "Outlook", "Preview", "Validation", "fill", "fill_dataset", "fit", "inspect"]
