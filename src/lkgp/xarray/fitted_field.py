"""What filling and validation need to know of a field and the model that was fitted to it."""

from typing import Any, Protocol

import xarray as xr
from lkgp.gp import LKGP
from lkgp.xarray.layout import Layout


class FittedField(Protocol):
    """A field and the model that was fitted to it; `FieldModel` is one."""

    gp: LKGP
    layout: Layout

    @property
    def name(self) -> str: ...

    @property
    def observed(self) -> xr.DataArray: ...

    def predict(self, coords: Any = None, *, observation_noise: bool = True, std: bool = True) -> xr.Dataset: ...
