"""What rounding errors leave of a posterior: variances beside them, and factorisations that fail.

A variance k_** - c^T A^-1 c is a difference of numbers of the size of the prior variance k_**. Where it is smaller than
their rounding error, it is not known; that error then takes its place, an upper bound, and the caller is told.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor

from lkgp.errors import InputError, complain
from lkgp.inference.predictions import ROUNDING_ERROR, variance_floor


def above_rounding(variance: Tensor, prior: Tensor, strict: bool = False) -> Tensor:
    """The variances, raised to their rounding errors where they are smaller; warns where rounding matters.

    variance, prior: the variances of any cells a posteriori and a priori, of the same shape
    strict: raise an error instead of a warning
    """
    floor = variance_floor(prior)
    doubtful = int((floor > ROUNDING_ERROR * variance).sum())
    if doubtful:
        advice = "raise the noise, or lower the kernels' output scales"
        if prior.dtype != torch.float64:
            advice = "use float64"
        complain(
            f"the variances of {doubtful} of {variance.numel()} cells are so small, compared with the prior variance, "
            f"that rounding errors matter; they are given as upper bounds; {advice}.",
            strict,
        )
    return torch.maximum(variance, floor)


@contextmanager
def factorisations_explained(dtype: torch.dtype) -> Iterator[None]:
    """Turn the failure of a factorisation into an error that says what to do.

    It fails if the noise is smaller than the rounding errors of the kernels in `dtype`.
    """
    try:
        yield
    except (np.linalg.LinAlgError, torch.linalg.LinAlgError) as error:
        # torch's own message is about minors
        reason = "rounding errors exceed the noise" if str(error).startswith("linalg.") else str(error)
        advice = "use dtype=torch.float64, or raise the noise" if dtype == torch.float32 else "raise the noise"
        name = str(dtype).removeprefix("torch.")
        raise InputError(
            f"the covariance of the observations cannot be factorised in {name} because {reason}; {advice}."
        ) from None
