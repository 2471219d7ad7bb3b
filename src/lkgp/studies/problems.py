"""A problem: a grid of values with some cells withheld."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from gpytorch.kernels import Kernel

from lkgp.data.scaling import Scaling
from lkgp.studies.units import Plain, Units

# GPyTorch's default noise variance, about softplus(0) = log 2, from which every comparator starts.
FIRST_NOISE = 0.693


@dataclass(frozen=True, eq=False)
class Problem:
    """Standardised data with withheld cells.

    coords: one array per factor, (n_k, d_k)
    values: all values, (n_1, n_2)
    observed: which of them a comparator may see, (n_1, n_2)
    make_kernels: makes new kernels as in the paper, one per factor, with GPyTorch's default hyperparameters
    make_own_kernels, own_coords, own_units: the kernels, coordinates and units that we would choose; the units are
        determined from the observed values only
    truth: the hyperparameters that the data were drawn with, if they were simulated
    fitted_truth: the same hyperparameters of a fitted model, from its kernels and its noise variance
    time: which factor is time, if one is; distances along it cannot be compared with those along the others
    scored: which cells are scored, (n_1, n_2), if these are not all that are withheld; values of others may be NaN
    make_field: the observed values as a labelled field (xarray.DataArray) whose dimensions are the factors in turn,
        which `lkgp fill` could be given
    """

    name: str
    coords: list[np.ndarray]
    values: np.ndarray
    observed: np.ndarray
    make_kernels: Callable[[], list[Kernel]]
    make_own_kernels: Callable[[], list[Kernel] | None] = lambda: None
    own_coords: list[np.ndarray] | None = None
    own_units: Units = field(default_factory=Plain)
    truth: dict[str, float] = field(default_factory=dict)
    fitted_truth: Callable[[Sequence[Kernel], float], dict[str, float]] | None = None
    time: int | None = None
    scored: np.ndarray | None = None
    make_field: Callable[[], Any] | None = None

    @property
    def seen(self) -> np.ndarray:
        """The values, with NaN where they are withheld, (n_1, n_2)."""
        return np.where(self.observed, self.values, np.nan)

    @property
    def tested(self) -> np.ndarray:
        """The cells on which predictions are scored, (n_1, n_2)."""
        return ~self.observed if self.scored is None else self.scored


def standardised(values: np.ndarray, over: np.ndarray | None = None) -> np.ndarray:
    """Shift and scale the columns of an array to mean zero and standard deviation one.

    over: the values whose mean and deviation are used, if they are not all of them
    """
    scaling = Scaling.standard(torch.as_tensor(values if over is None else over, dtype=torch.float64))
    return scaling.apply(torch.as_tensor(values, dtype=torch.float64)).numpy()
