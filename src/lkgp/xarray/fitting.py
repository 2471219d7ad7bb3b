"""Fitting a Gaussian process to a labelled field, and the preview of such a fit."""

import logging
import sys
import warnings
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from gpytorch.kernels import Kernel

import xarray as xr
from lkgp.errors import InputError
from lkgp.fitting import BFGS
from lkgp.gp import LKGP
from lkgp.model import learned_noise
from lkgp.xarray.factors import Dims, choose_factors
from lkgp.xarray.field_values import as_float_field, load_field, undecoded_fill_value
from lkgp.xarray.kernels import default_kernels
from lkgp.xarray.layout import Layout
from lkgp.xarray.model import FieldModel
from lkgp.xarray.preview import Preview, make_preview

log = logging.getLogger("lkgp")

# The noise variance at the start of a fit and its lower bound, for values of variance one: a field without any noise
# would give a linear system too ill-conditioned to solve.
FIRST_NOISE, MIN_NOISE = 0.05, 1e-5
# Hyperparameters on which this many observations agree are known well enough to fill a field of millions of cells; the
# fit may end on a part of the data of that size.
SUFFICIENT_OBSERVATIONS = 100_000
OPTIMIZER = BFGS(improvement=1e-4, sufficient_observations=SUFFICIENT_OBSERVATIONS)


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
    on_preview: Callable[[Preview], None] | None = None,
) -> FieldModel:
    """Fit a Gaussian process to a field in which NaN means missing.

    space: the dimensions of one factor over places; by default found from CF attributes and names
    time: the dimension of time; by default found likewise
    factors: the dimensions of every factor, instead of `space` and `time`, such as [("latitude", "longitude"), "time"]
        or ["latitude", "time"]
    kernels: one GPyTorch kernel per factor; by default chosen by the kind of each factor. They see the points that
        `CoordinateScaling.to_points` returns.
    seed: random seed
    progress: True writes a line to standard error at each step; a function is called with (step, objective per
        observation)
    max_memory: bytes that large arrays may take at once
    on_preview: called with the preview of the fit before it begins; by default the preview is written to standard error
        if progress is True
    """
    prepared = prepare(field, space, time, factors, kernels)
    gp = build_gp(prepared.kernels, seed=seed, progress=progress, max_memory=max_memory)
    preview = prepared.preview(gp)
    log.info("%s", preview)
    if on_preview is not None:
        on_preview(preview)
    elif progress is True:
        print(preview, file=sys.stderr)
    return FieldModel(gp.fit(prepared.points, prepared.values), prepared.layout, prepared.notes)


def inspect(
    field: xr.DataArray,
    *,
    space: Dims | None = None,
    time: str | None = None,
    factors: Sequence[Dims] | None = None,
    kernels: Sequence[Kernel] | None = None,
    max_memory: float | None = None,
) -> Preview:
    """What is missing, which factors would be used, and what filling would cost; nothing is fitted.

    space, time, factors, kernels, max_memory: as in `fit`
    """
    prepared = prepare(field, space, time, factors, kernels)
    return prepared.preview(build_gp(prepared.kernels, max_memory=max_memory))


def build_gp(
    kernels: Sequence[Kernel],
    *,
    seed: int = 0,
    progress: bool | Callable[[int, float], None] = False,
    max_memory: float | None = None,
) -> LKGP:
    """The model of a field before it is fitted."""
    return LKGP(
        kernels,
        noise=learned_noise(FIRST_NOISE, MIN_NOISE),
        # Coordinates have unit spread already; to scale each column again would distort the sphere.
        standardize="values",
        optimizer=OPTIMIZER,
        seed=seed,
        progress=progress,
        max_memory=max_memory,
    )


class PreparedField(NamedTuple):
    """A field as the model takes it.

    points: one array (n_k, d_k) per factor
    values: (n_1, ..., n_d), NaN where missing
    kernels: one per factor
    notes: choices that were made automatically
    """

    layout: Layout
    points: list[np.ndarray]
    values: np.ndarray
    kernels: Sequence[Kernel]
    notes: list[str]

    def preview(self, gp: LKGP) -> Preview:
        return make_preview(
            gp,
            self.layout,
            self.points,
            self.values,
            sufficient_observations=SUFFICIENT_OBSERVATIONS,
            notes=self.notes,
        )


def prepare(
    field: xr.DataArray,
    space: Dims | None,
    time: str | None,
    factors: Sequence[Dims] | None,
    kernels: Sequence[Kernel] | None,
) -> PreparedField:
    """Read a field, and choose its factors and kernels; arguments as in `fit`."""
    field = load_field(field)
    found, notes = choose_factors(field, space=space, time=time, factors=factors)
    field = as_float_field(field)
    suspect = undecoded_fill_value(field.values)
    if suspect is not None:
        warnings.warn(
            f"{field.name} repeatedly equals {suspect:g}, far from all other values; if that marks missing data, "
            "replace it with NaN.",
            stacklevel=3,
        )
    layout = Layout.of(field, found)
    points, values = layout.points(), layout.to_grid(field)
    if kernels is not None and (isinstance(kernels, Kernel) or len(kernels) != len(found)):
        raise InputError(
            f"there are {len(found)} factors ({'; '.join(map(str, found))}); give a list with one kernel for each."
        )
    if kernels is None:
        kernels, cycles = default_kernels(list(layout.scalings), observed_points(points, values))
        notes += cycles
    return PreparedField(layout, points, values, kernels, notes)


def observed_points(points: Sequence[np.ndarray], values: np.ndarray) -> list[np.ndarray]:
    """The points of each factor that have observations, or all if there are none.

    points: one array (n_k, d_k) per factor
    values: (n_1, ..., n_d), NaN where missing
    """
    observed = np.isfinite(values)
    if not observed.any():
        return list(points)
    axes = range(observed.ndim)
    return [x[observed.any(axis=tuple(axis for axis in axes if axis != k))] for k, x in enumerate(points)]
