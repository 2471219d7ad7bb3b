"""Check requests to a fitted model and convert them to its units, and the answers back to those of the caller."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lkgp.data.grid import as_factor_coords
from lkgp.data.readers import as_real_tensor, check_factors, known_noise
from lkgp.errors import InputError
from lkgp.model import check_kernel
from lkgp.persistence.state import FittedState


def requested_points(state: FittedState, coords: Sequence[Any] | None) -> tuple[list[Tensor], bool]:
    """The requested coordinates, scaled, (n'_k, d_k) for each factor, and whether they are the fitted grid.

    coords: one array per factor, None for a factor's own points; None altogether for the fitted grid
    """
    own = state.posterior.data.grid.coords
    if coords is None:
        return list(own), True
    check_factors(coords)
    if len(coords) != len(own):
        raise InputError(
            f"{len(coords)} coordinate array(s) were given for {len(own)} factor(s); give one array per factor, or "
            "None for the factor's own points."
        )
    points = []
    for k, (x, fitted, scaling) in enumerate(zip(coords, own, state.standardization.coords, strict=True)):
        if x is None:
            points.append(fitted)
            continue
        place = f"the coordinates of factor {k}"
        asked = as_factor_coords(as_real_tensor(x, place).double().to(scaling.shift.device), place)
        if asked.shape[1] != fitted.shape[1]:
            raise InputError(
                f"{place} have {asked.shape[1]} column(s), but the model was fitted to {fitted.shape[1]}; give as many."
            )
        check_kernel(state.model.kernels[k], asked, k)
        points.append(scaling.apply(asked).to(fitted))
    return points, all(x is None for x in coords)


def noise_at(state: FittedState, wanted: Any, points: Sequence[Tensor], like: Tensor, on_grid: bool) -> Tensor:
    """The noise variance to add at `points`, in the model's units, broadcast to `like` (n'_1, ..., n'_d).

    wanted: True for the noise of the model, or the noise given with the data; a number or an array; False for none
    on_grid: whether the points are the fitted grid
    """
    if wanted is False:
        return torch.zeros_like(like)
    if wanted is True and state.observations.noise_variance is None:
        return state.model.noise.at(points).detach().to(like).expand(like.shape)
    known = wanted
    if wanted is True:
        known = state.noise_everywhere
        if not on_grid or known is None or not bool(torch.isfinite(known).all()):
            raise InputError(
                "the noise is known for observed cells only; pass observation_noise as an array with the noise "
                "variance of every cell."
            )
    everywhere = torch.ones_like(like, dtype=torch.bool)
    return state.standardization.variance(known_noise(known, like, everywhere))


def noise_everywhere(noise_variance: Any, values: Any) -> Tensor | None:
    """The known noise variance of every cell, in the shape of the values; None if it was not given."""
    if noise_variance is None:
        return None
    cells = as_real_tensor(values, "the array of values")
    return known_noise(noise_variance, cells, ~torch.isnan(cells))


def in_units(state: FittedState, values: Tensor) -> Any:
    """Values of the model in the caller's units and kind of array."""
    return state.kind.make(state.standardization.values.undo(values.double()))


def std_in_units(state: FittedState, variance: Tensor) -> Any:
    """The square roots of variances of the model in the caller's units and kind of array."""
    return state.kind.make(variance.sqrt() * state.standardization.values.scale)


def as_seed(seed: Any) -> int:
    """Check that a seed is a whole number."""
    if isinstance(seed, bool) or not isinstance(seed, (int, np.integer)):
        raise InputError(f"seed must be a whole number, not {seed!r}.")
    return int(seed)
