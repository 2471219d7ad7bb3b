"""A fitted model as one record: what a file keeps of it, beside the settings that it was made with."""

from dataclasses import dataclass

from torch import Tensor

from lkgp.data.readers import ArrayKind, Observations
from lkgp.data.standardization import Standardization
from lkgp.model import LatentKroneckerGP
from lkgp.posterior import Posterior


@dataclass(frozen=True, eq=False)
class FittedState:
    """What a fit leaves behind.

    observations: in the caller's units; kind: of the caller's arrays
    noise_everywhere: the known noise of all cells, (n_1, ..., n_d), where it was given
    standardization: between the caller's units and the model's
    """

    observations: Observations
    kind: ArrayKind
    noise_everywhere: Tensor | None
    standardization: Standardization
    posterior: Posterior

    @property
    def model(self) -> LatentKroneckerGP:
        return self.posterior.model
