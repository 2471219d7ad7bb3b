"""Fitting a Gaussian process to a labelled field, and the preview of such a fit."""

import logging
import sys
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from gpytorch.kernels import Kernel

import xarray as xr
from lkgp.errors import InputError
from lkgp.fitting import BFGS
from lkgp.fitting.parts import part_sizes
from lkgp.fitting.smoothness import Form, comparison_cost
from lkgp.gp import LKGP
from lkgp.model import Mean, Noise, learned_noise
from lkgp.report import print_progress
from lkgp.xarray.factors import Dims, choose_factors
from lkgp.xarray.field_values import as_float_field, load_field, undecoded_fill_value
from lkgp.xarray.kernels import default_forms, default_kernels
from lkgp.xarray.layout import Layout
from lkgp.xarray.model import FieldModel
from lkgp.xarray.preview import Preview, make_preview
from lkgp.xarray.smoothness import choose_kernels

log = logging.getLogger("lkgp")

# The noise variance at the start of a fit and its lower bound, for values of variance one: a field without any noise
# would give a linear system too ill-conditioned to solve.
FIRST_NOISE, MIN_NOISE = 0.05, 1e-5
# Hyperparameters on which this many observations agree are known well enough to fill a field of millions of cells; the
# fit may end on a part of the data of that size.
SUFFICIENT_OBSERVATIONS = 100_000
# With so many times as many observations as there are in the parts that chose the kernels, the optimum on the parts is
# kept. The parts weigh near and far pairs of cells alike, but nearest pairs dominate the likelihood of all the data,
# and no kernel is right at every distance: on a satellite's map of 105,569 cells, errors under clouds were 6 % larger
# after a fit to all of them, which took minutes.
MANY_TIMES = 20
OPTIMIZER = BFGS(improvement=1e-4, sufficient_observations=SUFFICIENT_OBSERVATIONS)


def fit(
    field: xr.DataArray,
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
    """Fit a Gaussian process to a field in which NaN means missing.

    space: the dimensions of one factor over places; by default found from CF attributes and names
    time: the dimension of time; by default found likewise
    factors: the dimensions of every factor, instead of `space` and `time`, such as [("latitude", "longitude"), "time"]
        or ["latitude", "time"]
    kernels: one GPyTorch kernel per factor; by default chosen by the kind of each factor. They see the points that
        `CoordinateScaling.to_points` returns.
    smoothness: 0.5, 1.5 or 2.5 for Matern kernels of that smoothness along all factors; by default, the likelihood of
        parts of the field chooses among several kernels (`lkgp.xarray.kernels.SHAPES`) for places, times and numbers
    seed: random seed
    progress: True writes a line to standard error at each step; a function is called with (step, objective per
        observation)
    max_memory: bytes that large arrays may take at once
    on_preview: called with the preview of the fit before it begins; by default the preview is written to standard error
        if progress is True
    """
    prepared = prepare(field, space, time, factors, kernels, smoothness)
    preview = prepared.preview(max_memory)
    log.info("%s", preview)
    if on_preview is not None:
        on_preview(preview)
    elif progress is True:
        print(preview, file=sys.stderr)
    gp = build_gp(prepared.kernels, seed=seed, progress=progress, max_memory=max_memory)
    chosen = choose_kernels(
        prepared.layout,
        prepared.points,
        prepared.values,
        prepared.kernels,
        prepared.forms,
        learned_noise(FIRST_NOISE, MIN_NOISE),
        seed=seed,
        progress=progress if callable(progress) else (print_progress if progress else None),
    )
    tried = []
    if chosen is not None:
        # The search begins at the optimum on parts of the field.
        optimizer = replace(OPTIMIZER, fitted_on=chosen.fitted_on)
        if np.isfinite(prepared.values).sum() >= MANY_TIMES * chosen.fitted_on:
            optimizer = replace(optimizer, sufficient_observations=chosen.fitted_on)
        gp = build_gp(
            chosen.kernels,
            mean=chosen.mean,
            noise=chosen.noise,
            optimizer=optimizer,
            seed=seed,
            progress=progress,
            max_memory=max_memory,
        )
        tried = chosen.tried
    notes = prepared.notes + ([] if chosen is None else chosen.notes)
    return FieldModel(gp.fit(prepared.points, prepared.values), prepared.layout, notes, tried)


def inspect(
    field: xr.DataArray,
    *,
    space: Dims | None = None,
    time: str | None = None,
    factors: Sequence[Dims] | None = None,
    kernels: Sequence[Kernel] | None = None,
    smoothness: float | None = None,
    max_memory: float | None = None,
) -> Preview:
    """What is missing, which factors would be used, and what filling would cost; nothing is fitted.

    space, time, factors, kernels, smoothness, max_memory: as in `fit`
    """
    prepared = prepare(field, space, time, factors, kernels, smoothness)
    return prepared.preview(max_memory)


def build_gp(
    kernels: Sequence[Kernel],
    *,
    mean: Mean | None = None,
    noise: Noise | None = None,
    optimizer: BFGS = OPTIMIZER,
    seed: int = 0,
    progress: bool | Callable[[int, float], None] = False,
    max_memory: float | None = None,
) -> LKGP:
    """The model of a field before it is fitted; arguments as in `LKGP`."""
    return LKGP(
        kernels,
        mean=mean,
        noise=learned_noise(FIRST_NOISE, MIN_NOISE) if noise is None else noise,
        # Coordinates have unit spread already; to scale each column again would distort the sphere.
        standardize="values",
        optimizer=optimizer,
        seed=seed,
        progress=progress,
        max_memory=max_memory,
    )


class PreparedField(NamedTuple):
    """A field as the model takes it.

    points: one array (n_k, d_k) per factor
    values: (n_1, ..., n_d), NaN where missing
    kernels: one per factor, with which nothing was fitted yet
    forms: the kernels among which the likelihood chooses, for each factor; none where there is no choice
    notes: choices that were made automatically
    """

    layout: Layout
    points: list[np.ndarray]
    values: np.ndarray
    kernels: Sequence[Kernel]
    forms: list[list[Form]]
    notes: list[str]

    @property
    def first_kernels(self) -> list[Kernel]:
        """One per factor: that with which the choice begins, where there is one."""
        return [some[0].kernel if some else kernel for kernel, some in zip(self.kernels, self.forms, strict=True)]

    def preview(self, max_memory: float | None) -> Preview:
        """What fitting would take, with the kernels with which their choice begins.

        These are neither the roughest nor the smoothest: of estimates with each of the five candidates, theirs was in
        the middle for a satellite's map, 30 stations by the hour, 1000 places over 100 days and a month of a
        reanalysis, and the longest for 200 stations by the hour.
        """
        free = [factor.name for factor, some in zip(self.layout.factors, self.forms, strict=True) if some]
        observed = int(np.isfinite(self.values).sum())
        first = next((some[0].name for some in self.forms if some), "")
        begins = (
            f"the fit begins with a choice of kernels along {' and '.join(free)}; method and estimate are for {first}"
        )
        choice = [begins] if free else []
        size, count = part_sizes(observed, len(self.forms))
        return make_preview(
            build_gp(self.first_kernels, max_memory=max_memory),
            self.layout,
            self.points,
            self.values,
            sufficient_observations=SUFFICIENT_OBSERVATIONS,
            fitted_on_all=not free or observed < MANY_TIMES * size * count,
            beforehand=comparison_cost(observed, self.forms),
            notes=self.notes + choice,
        )


def prepare(
    field: xr.DataArray,
    space: Dims | None,
    time: str | None,
    factors: Sequence[Dims] | None,
    kernels: Sequence[Kernel] | None,
    smoothness: float | None,
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
    if smoothness is not None and kernels is not None:
        raise InputError("give either `kernels` or `smoothness`, not both.")
    if smoothness not in (None, 0.5, 1.5, 2.5):
        raise InputError(f"smoothness must be 0.5, 1.5 or 2.5, not {smoothness!r}.")
    forms: list[list[Form]] = [[] for _ in found]
    if kernels is None:
        scalings, seen = list(layout.scalings), observed_points(points, values)
        kernels, cycles = default_kernels(scalings, seen, 2.5 if smoothness is None else smoothness)
        forms = default_forms(scalings, seen) if smoothness is None else forms
        notes += cycles
    return PreparedField(layout, points, values, kernels, forms, notes)


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
