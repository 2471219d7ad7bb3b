"""`da.lkgp` and `ds.lkgp`: the functions of this package as methods of xarray objects. They hold no state."""

from collections.abc import Callable, Sequence

import numpy as np
from gpytorch.kernels import Kernel

import xarray as xr
from lkgp.xarray.datasets import fill, fill_dataset
from lkgp.xarray.factors import Dims
from lkgp.xarray.fitting import fit, inspect
from lkgp.xarray.max_gap import MaxGap
from lkgp.xarray.model import FieldModel
from lkgp.xarray.preview import Preview
from lkgp.xarray.validation import Validation


@xr.register_dataarray_accessor("lkgp")
class FieldAccessor:
    """Methods to fill the gaps of a DataArray."""

    def __init__(self, field: xr.DataArray) -> None:
        self._field = field

    def fill(
        self,
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
        """The field with its gaps filled; see `lkgp.xarray.fill`."""
        return fill(
            self._field,
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
            return_model=return_model,
        )

    def fit(
        self,
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
    ) -> FieldModel:
        """A model fitted to the field; see `lkgp.xarray.fit`."""
        return fit(
            self._field,
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

    def inspect(
        self,
        *,
        space: Dims | None = None,
        time: str | None = None,
        factors: Sequence[Dims] | None = None,
        kernels: Sequence[Kernel] | None = None,
        smoothness: float | None = None,
        max_memory: float | None = None,
    ) -> Preview:
        """What is missing, and what filling it would cost; see `lkgp.xarray.inspect`."""
        return inspect(
            self._field,
            space=space,
            time=time,
            factors=factors,
            kernels=kernels,
            smoothness=smoothness,
            max_memory=max_memory,
        )


@xr.register_dataset_accessor("lkgp")
class DatasetAccessor:
    """A method to fill the gaps of the variables of a Dataset."""

    def __init__(self, dataset: xr.Dataset) -> None:
        self._dataset = dataset

    def fill(
        self,
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
        """The dataset with the gaps of some variables filled; see `lkgp.xarray.fill_dataset`."""
        return fill_dataset(
            self._dataset,
            variables,
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
