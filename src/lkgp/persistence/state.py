"""A fitted model as one record: everything that a file keeps besides the constructor arguments."""

from dataclasses import dataclass

from torch import Tensor

from lkgp.data.readers import ArrayKind, Observations
from lkgp.data.standardization import Standardization
from lkgp.model import LatentKroneckerGP
from lkgp.posterior import Posterior


@dataclass(frozen=True, eq=False)
class FittedState:
    """The result of a fit.

    observations: the observations in the caller's units; kind: the kind of the caller's arrays
    noise_everywhere: the known noise of all cells, (n_1, ..., n_d), if it was given
    standardization: the scaling between the caller's units and the model's
    """

    observations: Observations
    kind: ArrayKind
    noise_everywhere: Tensor | None
    standardization: Standardization
    posterior: Posterior

    @property
    def model(self) -> LatentKroneckerGP:
        return self.posterior.model
