"""A prior on the ratio of signal to noise that keeps a fit where the posterior can still be computed.

Smooth, nearly noise-free data (a plane, say) are fitted ever better by ever longer length scales and larger output
scales, until a posterior variance, of the size of the noise, is lost in the rounding errors of the prior variance. With
c = log(prior variance / limit), the log density is -1/2 (c / WIDTH)^2 for c > 0, and 0 for all other hyperparameters.
"""

from functools import cached_property

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


class Contrast:
    """The prior for a model of some data. What depends on the data only is computed once: they may be many.

    data: values (n,) on their grid
    """

    def __init__(self, data: Observations) -> None:
        self.data = data

    def log_prior(self, model: LatentKroneckerGP) -> Tensor:
        """The log density of the model's own priors and of this one at the current hyperparameters, a scalar."""
        excess = self._excess(model)
        # Where the prior is flat it has no derivative, not even one of zero.
        if float(excess.detach()) <= 0:
            return model.log_prior()
        return model.log_prior() - 0.5 * (excess / WIDTH).square()

    @torch.no_grad()
    def notes(self, model: LatentKroneckerGP) -> list[str]:
        """A note if the prior holds the fit."""
        if float(self._excess(model)) <= 0:
            return []
        ratio = float(self._limit(model) / self._median_noise(model))
        return [
            f"the prior variance was held near {ratio:.1g} times the noise variance: beyond it, posterior variances "
            "are lost in rounding errors"
        ]

    def _excess(self, model: LatentKroneckerGP) -> Tensor:
        """log(prior variance / limit), a scalar, with the largest prior variance on the grid."""
        return torch.log(model.largest_variance(self.data.grid.coords) / self._limit(model))

    def _limit(self, model: LatentKroneckerGP) -> Tensor:
        """The largest prior variance whose rounding error is small compared with the smallest variance to expect."""
        noise = self._median_noise(model)
        by_noise = ROUNDING_ERROR * SMALLEST_SHARE * noise / variance_floor(torch.ones_like(noise))
        return torch.maximum(by_noise, self._always_allowed)

    def _median_noise(self, model: LatentKroneckerGP) -> Tensor:
        """The median of the diagonal of D, a scalar; the lower one of two."""
        if self.data.noise_variance is not None:
            return self._median_known_noise
        variance = model.noise.measurement_variance(self.data)
        # Division keeps the order of the counts, turned round.
        return variance / self._middle_count if variance.ndim == 0 else (variance / self.data.counts).median()

    @cached_property
    def _always_allowed(self) -> Tensor:
        return ALWAYS_ALLOWED * self.data.values.var(correction=0)

    @cached_property
    def _median_known_noise(self) -> Tensor:
        assert self.data.noise_variance is not None
        return self.data.noise_variance.median()

    @cached_property
    def _middle_count(self) -> Tensor:
        """The median of the numbers of measurements, a scalar; the higher one of two."""
        return -(-self.data.counts).median()
