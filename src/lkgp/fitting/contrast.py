"""A prior on the ratio of signal to noise that keeps a fit where the posterior can still be computed.

Smooth, nearly noise-free data (a plane, say) are fitted ever better by ever longer length scales and larger output
scales, until a posterior variance, of the size of the noise, is lost in the rounding errors of the prior variance. With
c = log(prior variance / limit), the log density is -1/2 (c / WIDTH)^2 for c > 0, and 0 for all other hyperparameters.
"""

import torch
from torch import Tensor

from lkgp.data.readers import Observations
from lkgp.inference.predictions import ROUNDING_ERROR, variance_floor
from lkgp.model import LatentKroneckerGP

# Posterior variances are rarely smaller than this share of the noise variance: a thousandth, as if there were one
# effective parameter for a thousand observations.
SMALLEST_SHARE = 1e-3
# Whatever the noise, no limit is set below this many times the variance of the data.
ALWAYS_ALLOWED = 100.0
# The width of the prior beyond the limit, in units of the log of the ratio. Where the likelihood still gains g nats for
# a factor e in scale, a fit ends a factor exp(g WIDTH^2) above the limit.
WIDTH = 0.3


def log_prior(model: LatentKroneckerGP, data: Observations) -> Tensor:
    """The log density of the model's own priors and of this one at the current hyperparameters, a scalar."""
    with torch.no_grad():
        allowed = float(_excess(model, data)) <= 0
    return model.log_prior() if allowed else model.log_prior() - 0.5 * (_excess(model, data) / WIDTH).square()


@torch.no_grad()
def contrast_notes(model: LatentKroneckerGP, data: Observations) -> list[str]:
    """A note if the prior holds the fit."""
    if float(_excess(model, data)) <= 0:
        return []
    ratio = float(_limit(model, data) / model.noise_diagonal(data).median())
    return [
        f"the prior variance was held near {ratio:.1g} times the noise variance: beyond it, posterior variances are "
        "lost in rounding errors"
    ]


def _excess(model: LatentKroneckerGP, data: Observations) -> Tensor:
    """log(prior variance / limit), a scalar, with the largest prior variance on the grid."""
    return torch.log(model.largest_variance(data.grid.coords) / _limit(model, data))


def _limit(model: LatentKroneckerGP, data: Observations) -> Tensor:
    """The largest prior variance whose rounding error is small compared with the smallest variance to be expected."""
    noise = model.noise_diagonal(data).median()
    by_noise = ROUNDING_ERROR * SMALLEST_SHARE * noise / variance_floor(torch.ones_like(noise))
    return torch.maximum(by_noise, ALWAYS_ALLOWED * data.values.var(correction=0))
