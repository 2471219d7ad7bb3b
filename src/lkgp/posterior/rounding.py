"""Posterior variances beside their rounding errors.

A variance k_** - c^T A^-1 c is a difference of numbers of the size of the prior variance k_**. Where it is smaller than
their rounding error, it is not known; that error then takes its place, an upper bound, and the caller is told.
"""

import torch
from torch import Tensor

from lkgp.errors import complain
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
