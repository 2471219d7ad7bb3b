"""SVGP: stochastic variational inference with inducing points (Hensman et al., 2013), from GPyTorch."""

from dataclasses import dataclass

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from lkgp.model import is_discrete
from lkgp.studies.models.row_gp import InducingPointModel, RowGP, fit_predict_rows, observed_rows, product_kernel
from lkgp.studies.predictions import Prediction
from lkgp.studies.problems import Problem
from lkgp.studies.registry import COMPARATORS, PRESETS, Comparator


class SVGP(RowGP):
    """Inducing points that are chosen among the observed rows and then moved.

    coords, observed, y, batch: as in `RowGP`
    kernels: one per factor
    inducing: how many inducing points
    """

    def __init__(
        self,
        coords: list[Tensor],
        observed: Tensor,
        y: Tensor,
        kernels: list[Kernel],
        *,
        inducing: int,
        batch: int = 1000,
        seed: int = 0,
    ) -> None:
        super().__init__(coords, observed, y, batch, seed)
        points = self.x[torch.randperm(len(self.x))[:inducing]]
        # The number of a task cannot be moved.
        movable = not any(is_discrete(kernel) for kernel in kernels)
        kernel = product_kernel(kernels, coords).to(y.dtype)
        self.model = InducingPointModel(points, kernel, movable).to(y.dtype)


@dataclass(frozen=True)
class FitSVGP:
    """The settings of a fit. inducing: points; rate: learning rate of Adam; batch: rows per minibatch"""

    inducing: int
    epochs: int
    rate: float
    batch: int = 1000

    def __str__(self) -> str:
        return f"{self.inducing} inducing points, {self.epochs} epochs at a learning rate of {self.rate:g}"

    def fit_predict(self, problem: Problem, seed: int) -> Prediction:
        coords, observed, y = observed_rows(problem)
        kernels = problem.make_kernels()
        gp = SVGP(coords, observed, y, kernels, inducing=self.inducing, batch=self.batch, seed=seed)
        return fit_predict_rows(problem, gp, self.epochs, self.rate)


def settings(preset: str, experiment: str) -> FitSVGP:
    if preset == "paper":
        return FitSVGP(10_000, 5, 0.001) if experiment == "climate" else FitSVGP(10_000, 30, 0.01)
    # Fewer steps than the paper's, and therefore longer ones: the parameters start far from where they end.
    return FitSVGP(500, 30, 0.05)


COMPARATORS.register(Comparator("SVGP", settings, presets=PRESETS, order=5))
