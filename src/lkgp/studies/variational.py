"""Two approximations from GPyTorch, on rows instead of grids: inducing points (SVGP) and nearest neighbours (VNNGP).

They know nothing of the grid: a row of their inputs is a cell, the coordinates of all factors side by side.
"""

import copy
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

from lkgp.model.model import is_discrete

PREDICTED_ROWS = 1000


def rows_of(coords: list[Tensor], cells: Tensor) -> Tensor:
    """The coordinates of some cells of a grid, by their flat index (n,), side by side, (n, d_1 + ... + d_f)."""
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


class ApproximateModel(gpytorch.models.ApproximateGP):
    """A variational GP over rows with a constant mean."""

    def __init__(
        self, strategy: str, points: Tensor, kernel: Kernel, learn_points: bool, neighbours: int, batch: int
    ) -> None:
        if strategy == "inducing points":
            chosen: Any = VariationalStrategy(self, points, CholeskyVariationalDistribution(len(points)), learn_points)
        else:
            chosen = NNVariationalStrategy(
                self, points, MeanFieldVariationalDistribution(len(points)), neighbours, batch
            )
        super().__init__(chosen)
        self.mean_module = gpytorch.means.ConstantMean()
        self.covar_module = kernel

    def forward(self, x: Tensor) -> Any:
        return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))


class RowGP:
    """What SVGP and VNNGP have in common: rows, minibatches, Adam on the evidence lower bound, predictions.

    coords: one tensor a factor, (n_k, d_k)
    observed: flat indices of the observed cells, (n,); y: their values, (n,)
    """

    def __init__(self, coords: list[Tensor], observed: Tensor, y: Tensor, batch: int, seed: int) -> None:
        torch.manual_seed(seed)  # GPyTorch draws from the global generator
        self.coords, self.y, self.batch = coords, y, batch
        self.x = rows_of(coords, observed)
        self.likelihood = gpytorch.likelihoods.GaussianLikelihood().to(y.dtype)
        self.model: ApproximateModel

    def batches(self) -> Iterator[tuple[Tensor | None, Tensor]]:
        """Every observation once, in random order: rows and values."""
        for chosen in torch.randperm(len(self.y)).split(self.batch):
            yield self.x[chosen], self.y[chosen]

    def fit(self, epochs: int, rate: float) -> list[float]:
        """Returns the mean bound an observation of every epoch."""
        self.model.train()
        optimizer = torch.optim.Adam([*self.model.parameters(), *self.likelihood.parameters()], lr=rate)
        bound = gpytorch.mlls.VariationalELBO(self.likelihood, self.model, num_data=len(self.y))
        bounds = []
        for _ in range(epochs):
            found = []
            with quiet():
                for x, y in self.batches():
                    optimizer.zero_grad()
                    output = self.model(x)
                    # Nearest neighbours choose their own batches.
                    loss = -bound(
                        output, self.y[self.model.variational_strategy.current_training_indices] if x is None else y
                    )
                    loss.backward()
                    optimizer.step()
                    found.append(-loss.item())
            bounds.append(sum(found) / len(found))
        return bounds

    @torch.no_grad()
    def predict(self) -> tuple[Tensor, Tensor]:
        """Mean and variance, with noise, of every cell of the grid, each (N,)."""
        self.model.eval()
        size = 1
        for x in self.coords:
            size *= len(x)
        means, variances = [], []
        with quiet():
            for cells in torch.arange(size).split(PREDICTED_ROWS):
                found = self.likelihood(self.model(rows_of(self.coords, cells)))
                means.append(found.mean)
                variances.append(found.variance)
        return torch.cat(means), torch.cat(variances)


class SVGP(RowGP):
    """Inducing points, chosen among the observed rows and then moved (Hensman et al., 2013)."""

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
        # A task's number cannot be moved.
        movable = not any(is_discrete(kernel) for kernel in kernels)
        kernel = product_kernel(kernels, coords).to(y.dtype)
        self.model = ApproximateModel("inducing points", points, kernel, movable, 0, batch).to(y.dtype)


class VNNGP(RowGP):
    """Every observed row is an inducing point and depends on its nearest neighbours only (Wu et al., 2022)."""

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
        # Neighbours are sought among the rows before, so these are shuffled: in the order of the grid they would be far away.
        order = torch.randperm(len(self.x))
        self.x, self.y = self.x[order], self.y[order]
        self.complete = inducing >= len(self.x)
        points = self.x[:inducing]
        kernel = product_kernel(kernels, coords).to(y.dtype)
        with quiet():
            self.model = ApproximateModel(
                "neighbours", points, kernel, False, min(neighbours, len(points) - 1), batch
            ).to(y.dtype)
        # The values at the inducing points begin at the data; from GPyTorch's zeros they are slow to leave "all is noise".
        strategy = self.model.variational_strategy
        strategy._variational_distribution.variational_mean.data.copy_(self.y[: len(points)])
        strategy._variational_distribution._variational_stddev.data.fill_(0.1)
        strategy.variational_params_initialized.fill_(1)

    def batches(self) -> Iterator[tuple[Tensor | None, Tensor]]:
        if not self.complete:
            yield from super().batches()
            return
        for _ in range(self.model.variational_strategy._total_training_batches):
            yield None, self.y


@contextmanager
def quiet() -> Iterator[None]:
    """Without GPyTorch's warnings about jitter."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
