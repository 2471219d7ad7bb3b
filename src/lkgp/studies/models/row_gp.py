"""Variational Gaussian processes from GPyTorch over rows instead of grids, which SVGP and VNNGP have in common.

A row of their inputs is a cell: the coordinates of all factors side by side. They know nothing of the grid.
"""

import copy
import math
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import gpytorch
import torch
from gpytorch.kernels import Kernel, ProductKernel
from gpytorch.variational import (
    CholeskyVariationalDistribution,
    MeanFieldVariationalDistribution,
    NNVariationalStrategy,
    VariationalStrategy,
)
from torch import Tensor

from lkgp.studies.models.grids import on_grid
from lkgp.studies.predictions import Prediction
from lkgp.studies.problems import Problem

# Rows that are predicted at once, as in the minibatches of the fits; more need more memory and save little time.
PREDICTED_ROWS = 1000


def observed_rows(problem: Problem) -> tuple[list[Tensor], Tensor, Tensor]:
    """Coordinates (n_k, d_k), and flat indices (n,) and values (n,) of observed cells, in float32 as in the paper."""
    coords = [torch.as_tensor(x, dtype=torch.float32) for x in problem.coords]
    observed = torch.as_tensor(problem.observed).flatten().nonzero().flatten()
    return coords, observed, torch.as_tensor(problem.values, dtype=torch.float32).flatten()[observed]


def rows_of(coords: list[Tensor], cells: Tensor) -> Tensor:
    """The coordinates of cells given by their flat index (n,), side by side, (n, d_1 + ... + d_f)."""
    axes = torch.unravel_index(cells, tuple(len(x) for x in coords))
    return torch.cat([x[axis] for x, axis in zip(coords, axes, strict=True)], dim=1)


def product_kernel(kernels: list[Kernel], coords: list[Tensor]) -> Kernel:
    """One kernel over rows: the product of the factors' kernels, each over its own columns."""
    start, parts = 0, []
    for kernel, x in zip(kernels, coords, strict=True):
        part = copy.deepcopy(kernel)
        part.active_dims = torch.arange(start, start + x.shape[1])
        parts.append(part)
        start += x.shape[1]
    return ProductKernel(*parts)


class InducingPointModel(gpytorch.models.ApproximateGP):
    """A Gaussian over the values at inducing points with a full covariance. points: (m, d)"""

    def __init__(self, points: Tensor, kernel: Kernel, learn_points: bool) -> None:
        distribution = CholeskyVariationalDistribution(len(points))
        super().__init__(VariationalStrategy(self, points, distribution, learn_points))
        self.mean_module = gpytorch.means.ConstantMean()
        self.covar_module = kernel

    def forward(self, x: Tensor) -> Any:
        return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))


class NearestNeighbourModel(gpytorch.models.ApproximateGP):
    """Independent Gaussians over the values at inducing points, with a prior over nearest neighbours. points: (m, d)"""

    def __init__(self, points: Tensor, kernel: Kernel, neighbours: int, batch: int) -> None:
        distribution = MeanFieldVariationalDistribution(len(points))
        super().__init__(NNVariationalStrategy(self, points, distribution, neighbours, batch))
        self.mean_module = gpytorch.means.ConstantMean()
        self.covar_module = kernel

    def forward(self, x: Tensor) -> Any:
        return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))


class RowGP:
    """Rows, minibatches, Adam on the evidence lower bound, and predictions. A subclass sets `model`.

    coords: one tensor per factor, (n_k, d_k)
    observed: flat indices of the observed cells, (n,)
    y: their values, (n,)
    batch: rows per minibatch
    """

    def __init__(self, coords: list[Tensor], observed: Tensor, y: Tensor, batch: int, seed: int) -> None:
        torch.manual_seed(seed)  # GPyTorch draws from the global generator
        self.coords, self.y, self.batch = coords, y, batch
        self.x = rows_of(coords, observed)
        self.likelihood = gpytorch.likelihoods.GaussianLikelihood().to(y.dtype)
        self.model: Any

    def batches(self) -> Iterator[tuple[Tensor | None, Tensor]]:
        """Rows and values of every observation once, in random order."""
        for chosen in torch.randperm(len(self.y)).split(self.batch):
            yield self.x[chosen], self.y[chosen]

    def fit(self, epochs: int, rate: float) -> list[float]:
        """Fit by Adam with the learning rate `rate`. Returns the mean bound per observation of every epoch."""
        self.model.train()
        optimizer = torch.optim.Adam([*self.model.parameters(), *self.likelihood.parameters()], lr=rate)
        bound = gpytorch.mlls.VariationalELBO(self.likelihood, self.model, num_data=len(self.y))
        bounds = []
        for _ in range(epochs):
            found = []
            with without_warnings():
                for x, y in self.batches():
                    optimizer.zero_grad()
                    output = self.model(x)
                    # Without rows, the nearest-neighbour strategy chooses the minibatch itself.
                    chosen = self.y[self.model.variational_strategy.current_training_indices] if x is None else y
                    loss = -bound(output, chosen)
                    loss.backward()
                    optimizer.step()
                    found.append(-loss.item())
            bounds.append(sum(found) / len(found))
        return bounds

    @torch.no_grad()
    def predict(self) -> tuple[Tensor, Tensor]:
        """Mean and variance of an observation at every cell of the grid, each (N,)."""
        self.model.eval()
        size = math.prod(len(x) for x in self.coords)
        means, variances = [], []
        with without_warnings():
            for cells in torch.arange(size).split(PREDICTED_ROWS):
                found = self.likelihood(self.model(rows_of(self.coords, cells)))
                means.append(found.mean)
                variances.append(found.variance)
        return torch.cat(means), torch.cat(variances)


def fit_predict_rows(problem: Problem, gp: RowGP, epochs: int, rate: float) -> Prediction:
    """Fit a model over rows and predict every cell of the grid."""
    bounds = gp.fit(epochs, rate)
    mean, variance = gp.predict()
    return Prediction(on_grid(problem, mean), on_grid(problem, variance.sqrt()), {"bounds": bounds})


@contextmanager
def without_warnings() -> Iterator[None]:
    """Silence GPyTorch's warnings about jitter."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
