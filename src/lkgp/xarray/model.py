"""A field with gaps and the Gaussian process that was fitted to it."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch

import xarray as xr
from lkgp.errors import FileError, InputError
from lkgp.gp import LKGP
from lkgp.persistence import ModelContents
from lkgp.xarray.cf_metadata import error_attrs
from lkgp.xarray.filling import fill_field
from lkgp.xarray.layout import Layout
from lkgp.xarray.layout_file import add_layout, read_layout
from lkgp.xarray.max_gap import MaxGap
from lkgp.xarray.requested_coords import resolve_coords
from lkgp.xarray.validation import Validation, validate

Coords: TypeAlias = Mapping[str, Any] | xr.Dataset | xr.DataArray


class FieldModel:
    """A fitted model of a field; `lkgp.xarray.fit` makes one.

    gp: the model itself; its `report_` says what was done
    layout: how the field lies on the grid of factors
    notes: choices that were made automatically
    tried: the kernels that were compared for each factor, and what each was worth (`lkgp.xarray.smoothness`); a saved
        model keeps only the notes about them
    """

    def __init__(
        self, gp: LKGP, layout: Layout, notes: Sequence[str] = (), tried: Sequence[dict[str, Any]] = ()
    ) -> None:
        self.gp, self.layout, self.notes, self.tried = gp, layout, list(notes), list(tried)

    @property
    def name(self) -> str:
        """The name of the field, or "field" if it has none."""
        return str(self.layout.field.name) if self.layout.field.name is not None else "field"

    @property
    def observed(self) -> xr.DataArray:
        """The values that the model was fitted to, NaN elsewhere, with the dimensions of the field."""
        data = self.gp.observations_
        values = data.grid.scatter(data.values, fill=torch.nan).view(data.grid.shape).numpy()
        return self.layout.label(values).rename(self.name)

    def predict(self, coords: Coords | None = None, *, observation_noise: bool = True, std: bool = True) -> xr.Dataset:
        """Mean and standard deviation, NAME and NAME_std, on the grid of the field or at other places and times.

        coords: a dictionary with new values of some coordinates, such as {"time": [...]}, while the others stay as they
            are; or an xarray object that has them. Places that form no grid are given as DataArrays that share a
            dimension.
        observation_noise: whether the standard deviation is that of a measurement or of the underlying field
        std: False leaves out NAME_std, which takes most of the time if there are many observations or cells
        """
        points, new = resolve_coords(self.layout, coords)
        attrs = dict(self.layout.field.attrs)
        if not std:
            mean = self.gp.predict(points, std=False)
            return xr.Dataset({self.name: self.layout.label(mean, new).assign_attrs(attrs)})
        mean, errors = self.gp.predict(points, observation_noise=observation_noise)
        return xr.Dataset(
            {
                self.name: self.layout.label(mean, new).assign_attrs(attrs),
                f"{self.name}_std": self.layout.label(errors, new).assign_attrs(error_attrs(attrs, self.name)),
            }
        )

    def sample(
        self,
        num_samples: int,
        coords: Coords | None = None,
        *,
        seed: int | None = None,
        observation_noise: bool = False,
    ) -> xr.DataArray:
        """Joint samples of the field, with `sample` as the first dimension.

        coords, observation_noise: as in `predict`
        seed: random seed; by default that of the model
        """
        points, new = resolve_coords(self.layout, coords)
        draws = self.gp.sample(num_samples, points, seed=seed, observation_noise=observation_noise)
        return self.layout.label(draws, new).rename(self.name).assign_attrs(self.layout.field.attrs)

    def fill(
        self,
        field: xr.DataArray | None = None,
        *,
        smooth: bool = False,
        never_observed: bool = False,
        max_gap: MaxGap | None = None,
        where: xr.DataArray | np.ndarray | None = None,
        calibrate: bool | Validation = False,
        keep_attrs: bool | None = None,
        std: bool = True,
    ) -> xr.Dataset:
        """The field with its gaps filled: NAME, NAME_std and NAME_filled, and the coordinates of the field.

        field: the fitted field or a part of it, for its attributes and encoding; by default what the model knows of it
        smooth: also replace observed values by the underlying field; NAME_std then excludes measurement noise
        never_observed: also fill places without any observation
        max_gap: fill only gaps no longer than this in time, such as "6h"; measured as in xarray's `interpolate_na`
        where: fill only where this is True
        calibrate: multiply the error bars by the factor found with withheld cells; a Validation already contains it
        keep_attrs: whether to keep the attributes of the field; by default xarray's own option decides
        std: False leaves out NAME_std, which takes most of the time if there are many observations or cells
        """
        if calibrate is not False and not std:
            raise InputError("calibrate rescales the error bars, which std=False leaves out; give only one of the two.")
        given = field if field is not None else self.observed.assign_attrs(self.layout.field.attrs)
        validation = self.validate() if calibrate is True else calibrate
        return fill_field(
            self,
            given,
            smooth=smooth,
            never_observed=never_observed,
            max_gap=max_gap,
            where=where,
            error_factor=validation.factor if isinstance(validation, Validation) else 1.0,
            keep_attrs=keep_attrs,
            std=std,
        )

    def validate(self, *, share: float = 0.1, seed: int = 0) -> Validation:
        """How well withheld cells, in the pattern of the gaps, are predicted from the others, compared with baselines.

        The hyperparameters stay as they are.

        share: the share of the observed cells to withhold
        seed: random seed of the choice of cells
        """
        return validate(self, share=share, seed=seed)

    def save(self, path: str | Path) -> None:
        """Write the model, its data and all labels to one file, which `load` and `LKGP.load` can read."""
        add_layout(self.gp.to_contents(), self.layout, self.name, self.notes).write(path)

    @classmethod
    def load(cls, path: str | Path) -> "FieldModel":
        """Read a model that `save` wrote."""
        contents = ModelContents.read(path)
        if "field" not in contents.header:
            raise FileError(f"{path} is a model of arrays without labels; read it with lkgp.LKGP.load.")
        gp = LKGP.from_contents(contents)
        return cls(gp, *read_layout(contents, gp.grid_))
