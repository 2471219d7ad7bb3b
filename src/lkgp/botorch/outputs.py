"""Some outputs of a model as a model of their own."""

from typing import Any

import torch
from botorch.acquisition.objective import PosteriorTransform
from botorch.models.model import FantasizeMixin, Model
from botorch.posteriors import Posterior as BotorchPosterior
from torch import Tensor

from lkgp.errors import InputError


def check_outputs(indices: list[int] | None, count: int) -> list[int]:
    """Output indices without negative ones; None means all `count` outputs."""
    if indices is None:
        return list(range(count))
    if not indices or any(not -count <= i < count for i in indices):
        raise InputError(
            f"output_indices must name some of the {count} outputs, which are numbered from 0, but they are {indices}."
        )
    return [i % count for i in indices]


class SomeOutputs(Model, FantasizeMixin):
    """Some outputs of a LatentKroneckerGP as a model of their own.

    outputs: their indices
    """

    def __init__(self, model: Model, outputs: list[int]) -> None:
        super().__init__()
        self.model, self.outputs = model, check_outputs(outputs, model.num_outputs)

    @property
    def num_outputs(self) -> int:
        return len(self.outputs)

    @property
    def batch_shape(self) -> torch.Size:
        return self.model.batch_shape

    @property
    def likelihood(self) -> Any:
        return self.model.likelihood

    def posterior(
        self,
        X: Tensor,
        output_indices: list[int] | None = None,
        observation_noise: bool | Tensor = False,
        posterior_transform: PosteriorTransform | None = None,
    ) -> BotorchPosterior:
        """As in LatentKroneckerGP, for these outputs; X: (*batch, q, d)."""
        chosen = [self.outputs[i] for i in check_outputs(output_indices, len(self.outputs))]
        return self.model.posterior(X, chosen, observation_noise, posterior_transform)

    def condition_on_observations(self, X: Tensor, Y: Tensor, noise: Tensor | None = None) -> "SomeOutputs":
        """As in LatentKroneckerGP; X: (*batch, q, d), Y: (*fantasies, *batch, q, outputs)."""
        conditioned = self.model.condition_on_observations(X, Y, noise=noise, output_indices=self.outputs)
        return SomeOutputs(conditioned, self.outputs)


class LastStep(SomeOutputs):
    """One output of a LatentKroneckerGP, by default the value at the last step, as a model with a single output.

    Acquisition functions that know nothing about steps can use it as it is.
    """

    def __init__(self, model: Model, output: int = -1) -> None:
        super().__init__(model, [output])
