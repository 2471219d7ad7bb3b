"""Make a model with the given hyperparameters, and the scaling of its data."""

import copy
from collections.abc import Sequence
from typing import Literal

import torch
from gpytorch.kernels import Kernel
from gpytorch.likelihoods import GaussianLikelihood

from lkgp.data.readers import Observations
from lkgp.data.standardization import Standardization
from lkgp.errors import InputError
from lkgp.model import LatentKroneckerGP, Mean, Noise, check_kernel, default_kernels, discrete_columns


def new_model(
    observations: Observations,
    kernels: Sequence[Kernel] | None,
    mean: float | Mean | None,
    noise: float | GaussianLikelihood | Noise,
    standardize: bool | Literal["values", "coordinates"],
) -> tuple[LatentKroneckerGP, Standardization]:
    """Make a model and the scaling of its data; arguments as in `LKGP`, with kernels and noise copied."""
    coords = [x.double() for x in observations.grid.coords]
    given = kernels if kernels is not None else default_kernels([x.shape[1] for x in coords])
    if isinstance(given, Kernel) or len(given) != len(coords):
        count = 1 if isinstance(given, Kernel) else len(given)
        raise InputError(
            f"{count} kernel(s) were given for {len(coords)} factor(s); give a list with one kernel per factor."
        )
    for k, (kernel, x) in enumerate(zip(given, coords, strict=True)):
        check_kernel(kernel, x, k)
    standardization = Standardization.of(
        observations,
        values=standardize in (True, "values"),
        coords=standardize in (True, "coordinates"),
        unscaled=[discrete_columns(kernel, x) for kernel, x in zip(given, coords, strict=True)],
    )
    scaled: float | Mean | None = copy.deepcopy(mean) if isinstance(mean, Mean) else None
    if mean is not None and not isinstance(mean, Mean):
        number = torch.tensor(float(mean), dtype=torch.float64, device=coords[0].device)
        scaled = float(standardization.values.apply(number))
    copies = [copy.deepcopy(kernel) for kernel in given]
    return LatentKroneckerGP(copies, mean=scaled, noise=copy.deepcopy(noise)), standardization
