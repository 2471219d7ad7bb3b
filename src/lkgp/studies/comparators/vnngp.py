"""VNNGP: a variational nearest-neighbour Gaussian process (Wu et al., 2022), from GPyTorch."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from lkgp.studies.models.row_gp import (
    NearestNeighbourModel,
    RowGP,
    fit_predict_rows,
    observed_rows,
    product_kernel,
    without_warnings,
)
from lkgp.studies.predictions import Prediction
from lkgp.studies.problems import Problem
from lkgp.studies.registry import COMPARATORS, PRESETS, Comparator

# The first standard deviation of the values at inducing points: small next to the standardised data, because these
# values start at the data.
FIRST_STD = 0.1


class VNNGP(RowGP):
    """Every observed row is an inducing point and depends on its nearest neighbours only.

    coords, observed, y, batch: as in `RowGP`
    kernels: one per factor
    neighbours: how many of them
    inducing: largest number of inducing points
    """

    def __init__(
        self,
        coords: list[Tensor],
        observed: Tensor,
        y: Tensor,
        kernels: list[Kernel],
        *,
        neighbours: int,
        inducing: int = 500_000,
        batch: int = 1000,
        seed: int = 0,
    ) -> None:
        super().__init__(coords, observed, y, batch, seed)
        # Neighbours are sought among earlier rows only. In the order of the grid these would be far away, so we
        # shuffle.
        order = torch.randperm(len(self.x))
        self.x, self.y = self.x[order], self.y[order]
        self.complete = inducing >= len(self.x)
        points = self.x[:inducing]
        kernel = product_kernel(kernels, coords).to(y.dtype)
        with without_warnings():
            model = NearestNeighbourModel(points, kernel, min(neighbours, len(points) - 1), batch)
            self.model = model.to(y.dtype)
        # The values at the inducing points start at the data: from GPyTorch's zeros, "all is noise" is slow to leave.
        strategy = self.model.variational_strategy
        strategy._variational_distribution.variational_mean.data.copy_(self.y[: len(points)])
        strategy._variational_distribution._variational_stddev.data.fill_(FIRST_STD)
        strategy.variational_params_initialized.fill_(1)

    def batches(self) -> Iterator[tuple[Tensor | None, Tensor]]:
        if not self.complete:
            yield from super().batches()
            return
        for _ in range(self.model.variational_strategy._total_training_batches):
            yield None, self.y


@dataclass(frozen=True)
class FitVNNGP:
    """The settings of a fit.

    rate: learning rate of Adam
    batch: rows per minibatch
    inducing: largest number of inducing points
    """

    neighbours: int
    epochs: int
    rate: float
    batch: int = 1000
    inducing: int = 500_000

    def __str__(self) -> str:
        return f"{self.neighbours} neighbours, {self.epochs} epochs at a learning rate of {self.rate:g}"

    def fit_predict(self, problem: Problem, seed: int) -> Prediction:
        coords, observed, y = observed_rows(problem)
        gp = VNNGP(
            coords,
            observed,
            y,
            problem.make_kernels(),
            neighbours=self.neighbours,
            inducing=self.inducing,
            batch=self.batch,
            seed=seed,
        )
        return fit_predict_rows(problem, gp, self.epochs, self.rate)


def settings(preset: str, experiment: str) -> FitVNNGP:
    if preset == "paper":
        return FitVNNGP(256, 50, 0.001) if experiment == "climate" else FitVNNGP(256, 1000, 0.01)
    # Fewer steps than the paper's, and therefore longer ones: the parameters start far from where they end.
    return FitVNNGP(32, 20 if experiment == "climate" else 100, 0.05)


COMPARATORS.register(Comparator("VNNGP", settings, presets=PRESETS, needs=("sklearn",), order=6))
