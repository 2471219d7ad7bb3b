"""A field with gaps and the Gaussian process that was fitted to it."""

import logging
import sys
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from gpytorch.kernels import Kernel

import xarray as xr
from lkgp.errors import FileError, InputError
from lkgp.fitting.search import BFGS
from lkgp.gp import LKGP
from lkgp.model.model import learned_noise
from lkgp.persistence import model_file as files
from lkgp.persistence.fitted import describe
from lkgp.xarray.factors import Dims, Factor, choose_factors
from lkgp.xarray.field import Layout, fill_value_in, in_memory, read_values
from lkgp.xarray.filling import fill_with
from lkgp.xarray.formats.encoding import known_encoding
from lkgp.xarray.formats.netcdf import NETCDF
from lkgp.xarray.kernels import default_kernels
from lkgp.xarray.manners import error_attrs
from lkgp.xarray.outlook import Outlook, look_ahead
from lkgp.xarray.points import Ruler
from lkgp.xarray.validation import Validation, validate

log = logging.getLogger("lkgp")

# Hyperparameters that a hundred thousand observations agree on are known well enough to fill a field of millions.
# Noise variance at first, and at the least, for values of variance one: a field without any noise would be an equation that no computer
# solves.
FIRST_NOISE, NOISE_FLOOR = 0.05, 1e-5
SEARCH = BFGS(improvement=1e-4, enough=100_000)


class FieldModel:
    """A fitted model of a field; `fit` makes it.

    gp: the model itself; its `report_` says what was done
    layout: how the field lies on the grid of factors
    notes: what was decided for the caller
    """

    def __init__(self, gp: LKGP, layout: Layout, notes: Sequence[str] = ()) -> None:
        self.gp, self.layout, self.notes = gp, layout, list(notes)

    @property
    def name(self) -> str:
        return str(self.layout.field.name) if self.layout.field.name is not None else "field"

    @property
    def observed(self) -> xr.DataArray:
        """The values that the model has seen, NaN elsewhere, with the dimensions of the field."""
        data = self.gp.observations_
        values = data.grid.scatter(data.values, fill=torch.nan).view(data.grid.shape).numpy()
        return self.layout.label(values).rename(self.name)

    def predict(self, coords: Any = None, *, observation_noise: bool = True) -> xr.Dataset:
        """Mean and standard deviation, NAME and NAME_std, on the grid of the field or at other places and times.

        coords: a dictionary with new values of some coordinates, the others staying as they are: {"time": [...]}; or an xarray object
            that has them. Lists of places that form no grid are DataArrays with a dimension of their own.
        observation_noise: whether the standard deviation is that of a measurement, or of the field behind it
        """
        points, new = self.layout.asked(coords)
        mean, std = self.gp.predict(points, observation_noise=observation_noise)
        attrs = dict(self.layout.field.attrs)
        return xr.Dataset(
            {
                self.name: self.layout.label(mean, new).assign_attrs(attrs),
                f"{self.name}_std": self.layout.label(std, new).assign_attrs(error_attrs(attrs, self.name)),
            }
        )

    def sample(
        self, num_samples: int, coords: Any = None, *, seed: int | None = None, observation_noise: bool = False
    ) -> xr.DataArray:
        """Joint draws of the field, with a first dimension `sample`; coords and observation_noise as in `predict`."""
        points, new = self.layout.asked(coords)
        draws = self.gp.sample(num_samples, points, seed=seed, observation_noise=observation_noise)
        return self.layout.label(draws, new).rename(self.name).assign_attrs(self.layout.field.attrs)

    def fill(
        self,
        field: xr.DataArray | None = None,
        *,
        smooth: bool = False,
        never_observed: bool = False,
        max_gap: Any = None,
        where: xr.DataArray | None = None,
        calibrate: bool | Validation = False,
        keep_attrs: bool | None = None,
    ) -> xr.Dataset:
        """The field with its gaps filled: NAME, NAME_std and NAME_filled, and the coordinates of the field.

        field: the one that was fitted, or a part of it, for its attributes and encoding; what the model knows of it by default
        smooth: whether observed values, too, are replaced, by the field behind them; NAME_std is then without the noise of a measurement
        never_observed: whether to fill places at which nothing was ever observed
        max_gap: fill only gaps no longer than this in time, such as "6h"; counted as in xarray's interpolate_na
        where: fill only where this is True
        calibrate: whether to multiply the error bars by the factor that withheld cells ask for; a Validation that was made has it already
        keep_attrs: whether to keep the attributes of the field; by default what xarray's option says
        """
        given = field if field is not None else self.observed.assign_attrs(self.layout.field.attrs)
        words: dict[str, Any] = {"smooth": smooth, "never_observed": never_observed, "max_gap": max_gap, "where": where}
        if calibrate is True:
            calibrate = self.validate()
        factor = calibrate.factor if isinstance(calibrate, Validation) else 1.0
        return fill_with(self, given, **words, factor=factor, keep_attrs=keep_attrs)

    def validate(self, *, share: float = 0.1, seed: int = 0) -> Validation:
        """How well cells that are withheld, the way the gaps look, are predicted from the others; beside simpler ways.

        share: of the observed cells, to withhold; seed: of their choice. The hyperparameters stay as they are.
        """
        return validate(self, share=share, seed=seed)

    # Keeping

    def save(self, path: str | Path) -> None:
        """Write the model, its data and all labels to one file, which `load` and `LKGP.load` read."""
        header, tensors = describe(self.gp, self.gp._fitted())
        labels = self.layout.field.to_dataset(name="labels").drop_vars("labels")
        attrs = {
            "name": self.name,
            "dims": list(map(str, self.layout.field.dims)),
            "attrs": plain(self.layout.field.attrs),
        }
        header["field"] = {**attrs, "rulers": [asdict(ruler) for ruler in self.layout.rulers], "notes": self.notes}
        tensors["field.labels"] = torch.frombuffer(
            bytearray(known_encoding(labels, NETCDF).to_netcdf()), dtype=torch.uint8
        )
        tensors |= {f"field.kept.{k}": torch.from_numpy(kept) for k, kept in enumerate(self.layout.kept)}
        files.write(path, header, tensors)

    @classmethod
    def load(cls, path: str | Path) -> "FieldModel":
        """Read a model that `save` wrote."""
        header, tensors = files.read(path)
        if "field" not in header:
            raise FileError(f"{path} is a model of arrays without labels; read it with lkgp.LKGP.load.")
        spec = header["field"]
        labels = xr.load_dataset(bytes(tensors["field.labels"].numpy()))
        sizes = [labels.sizes[dim] for dim in spec["dims"]]
        # Values are not kept twice: a field of the right shape that takes no memory stands for them.
        nothing = np.broadcast_to(np.float32(np.nan), sizes)
        field = xr.DataArray(nothing, dims=spec["dims"], coords=labels.coords, name=spec["name"], attrs=spec["attrs"])
        rulers = tuple(build_ruler(ruler) for ruler in spec["rulers"])
        kept = tuple(tensors[f"field.kept.{k}"].numpy() for k in range(len(rulers)))
        return cls(LKGP.load(path), Layout(field, rulers, kept), spec["notes"])


def fit(
    field: xr.DataArray,
    *,
    space: Dims | None = None,
    time: str | None = None,
    factors: Sequence[Dims] | None = None,
    kernels: Sequence[Kernel] | None = None,
    seed: int = 0,
    progress: bool | Callable[[int, float], None] = False,
    max_memory: float | None = None,
    tell: Callable[[Outlook], None] | None = None,
) -> FieldModel:
    """Fit a Gaussian process to a field in which NaN means missing.

    space: the dimensions of one factor over places; time: the dimension of time. What is not given is found from CF attributes.
    factors: instead of both, the dimensions of every factor, such as [("latitude", "longitude"), "time"] or ["latitude", "time"]
    kernels: one GPyTorch kernel a factor; by default from what the factors are. They see the coordinates as `Ruler.measure` gives them.
    seed, progress, max_memory: as in LKGP
    tell: is called, before the fit begins, with what it will take; with progress=True that is written to standard error, too
    """
    prepared = prepare(field, space, time, factors, kernels)
    # Coordinates are in units of their spread already; the engine need not scale them again, which would bend the sphere.
    noise = learned_noise(FIRST_NOISE, NOISE_FLOOR)
    gp = LKGP(
        prepared.kernels,
        noise=noise,
        standardize="values",
        optimizer=SEARCH,
        seed=seed,
        progress=progress,
        max_memory=max_memory,
    )
    outlook = look_ahead(gp, prepared.layout, prepared.points, prepared.values, prepared.notes)
    log.info("%s", outlook)
    if tell is not None:
        tell(outlook)
    elif progress is True:
        print(outlook, file=sys.stderr)
    return FieldModel(gp.fit(prepared.points, prepared.values), prepared.layout, prepared.notes)


def inspect(
    field: xr.DataArray,
    *,
    space: Dims | None = None,
    time: str | None = None,
    factors: Sequence[Dims] | None = None,
    kernels: Sequence[Kernel] | None = None,
    max_memory: float | None = None,
) -> Outlook:
    """What is missing, which factors would be used, and what filling would take; nothing is fitted. Words as in `fit`."""
    prepared = prepare(field, space, time, factors, kernels)
    gp = LKGP(prepared.kernels, standardize="values", optimizer=SEARCH, max_memory=max_memory)
    return look_ahead(gp, prepared.layout, prepared.points, prepared.values, prepared.notes)


class Prepared(NamedTuple):
    """A field as the engine takes it: points (n_k, d_k) of each factor, values (n_1, ..., n_d), and a kernel a factor."""

    layout: Layout
    points: list[np.ndarray]
    values: np.ndarray
    kernels: Sequence[Kernel]
    notes: list[str]


def prepare(
    field: xr.DataArray,
    space: Dims | None,
    time: str | None,
    factors: Sequence[Dims] | None,
    kernels: Sequence[Kernel] | None,
) -> Prepared:
    field = in_memory(field)
    found, notes = choose_factors(field, space=space, time=time, factors=factors)
    field = read_values(field)
    suspect = fill_value_in(field.values)
    if suspect is not None:
        warnings.warn(
            f"{field.name} is {suspect:g} again and again, far from all else; if that means missing, make it NaN.",
            stacklevel=3,
        )
    layout = Layout.of(field, found)
    points, values = layout.points(), layout.to_grid(field)
    if kernels is not None and (isinstance(kernels, Kernel) or len(kernels) != len(found)):
        raise InputError(
            f"there are {len(found)} factors ({'; '.join(map(str, found))}); give a list with one kernel for each."
        )
    if kernels is None:
        kernels, cycles = default_kernels(list(layout.rulers), points)
        notes += cycles
    return Prepared(layout, points, values, kernels, notes)


def build_ruler(spec: dict[str, Any]) -> Ruler:
    """The inverse of `asdict`."""
    factor = Factor(tuple(spec["factor"]["dims"]), spec["factor"]["kind"], tuple(spec["factor"]["coords"]))
    return Ruler(
        factor, tuple(spec["shift"]), tuple(spec["scale"]), spec["origin"], spec["calendar"], tuple(spec["categories"])
    )


def plain(attrs: dict[Any, Any]) -> dict[str, Any]:
    """Attributes as JSON knows them; what it does not know becomes text."""
    simple = {
        name: value.tolist() if isinstance(value, (np.ndarray, np.generic)) else value for name, value in attrs.items()
    }
    return {
        str(name): value if isinstance(value, (bool, int, float, str, list)) else str(value)
        for name, value in simple.items()
    }
