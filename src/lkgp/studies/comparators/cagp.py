"""CaGP, computation-aware Gaussian processes (Wenger et al., 2024): conditioning on a few combinations of the data.

With actions S (n, i), the model sees only S^T y, and its variance accounts for that:

    mean(x) = m + k(x, X) S v,           v = H^-1 S^T (y - m),     H = S^T (K + s^2 I) S
    var(x)  = k(x, x) - |L^-1 S^T k(X, x)|^2,                      H = L L^T

which is never below the variance given all of y. Actions are sparse: each is nonzero on one block of the observations,
and their entries are learned together with the hyperparameters by maximising the evidence lower bound

    E_q[log p(y | f)] - KL(q || p)
    E_q  = -1/2 [ (|y - mean|^2 + sum of variances) / s^2 + n log(2 pi s^2) ]
    KL   =  1/2 [ v^T G v + log det H - log det(s^2 S^T S) - tr(H^-1 G) ],     G = S^T K S

Products with K use the grid, so that a step costs i products and needs no n x n matrix.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from lkgp import LatentKroneckerGP, Observations
from lkgp.studies.models.grids import observations, on_grid
from lkgp.studies.predictions import Prediction
from lkgp.studies.problems import FIRST_NOISE, Problem
from lkgp.studies.registry import COMPARATORS, PRESETS, Comparator


class ComputationAwareGP(torch.nn.Module):
    """The posterior given S^T y, with S learned.

    model: kernels, mean and noise, which are learned too
    num_actions: i, the number of blocks into which the observations are divided, in the order of their cells
    """

    def __init__(self, model: LatentKroneckerGP, data: Observations, num_actions: int) -> None:
        super().__init__()
        n = data.grid.num_observed
        self.model, self.data, self.num_actions = model, data, min(num_actions, n)
        self.block = torch.arange(n) * self.num_actions // n
        # At first, the action of every block is its mean, up to a factor.
        self.entries = torch.nn.Parameter(torch.bincount(self.block)[self.block].to(data.values.dtype).rsqrt())

    def actions(self) -> Tensor:
        """S, (n, i)."""
        empty = self.entries.new_zeros(len(self.entries), self.num_actions)
        return empty.index_put((torch.arange(len(self.entries)), self.block), self.entries)

    def seen(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """S, K S, the Cholesky factor of H, and v: (n, i), (n, i), (i, i), (i, 1)."""
        s, noise = self.actions(), self.model.noise_variance()
        operator = self.model.covariance(self.data, structures=["dense"] * len(self.model.kernels))
        covered = operator.product(s) - noise * s
        h = s.mT @ covered + torch.diag(noise * s.square().sum(dim=0))
        triangle = torch.linalg.cholesky(h)
        return s, covered, triangle, torch.cholesky_solve(s.mT @ self.model.residuals(self.data)[:, None], triangle)

    def elbo(self) -> Tensor:
        """The evidence lower bound, a scalar."""
        s, covered, triangle, v = self.seen()
        noise, r = self.model.noise_variance(), self.model.residuals(self.data)
        squares = s.square().sum(dim=0)
        prior = self.model.prior_variance(self.data.grid.coords).flatten()[self.data.grid.index]
        variances = prior - torch.linalg.solve_triangular(triangle, covered.mT, upper=False).square().sum(dim=0)
        misfit = (r - (covered @ v)[:, 0]).square().sum() + variances.sum()
        likelihood = -0.5 * (misfit / noise + len(r) * torch.log(2 * math.pi * noise))
        # tr(H^-1 G) = i - s^2 tr(H^-1 S^T S)
        shrunk = torch.linalg.solve_triangular(triangle, torch.diag(squares.sqrt()), upper=False).square().sum()
        divergence = 0.5 * (
            (v.mT @ (s.mT @ covered) @ v).squeeze()
            + 2 * triangle.diagonal().log().sum()
            - torch.log(noise * squares).sum()
            - (self.num_actions - noise * shrunk)
        )
        return (likelihood - divergence).squeeze()

    @torch.no_grad()
    def predict(self, coords: list[Tensor]) -> tuple[Tensor, Tensor]:
        """Mean and variance of the latent function at every cell of the product of `coords`, each (N',)."""
        s, _, triangle, v = self.seen()
        cross = self.model.cross_covariance(self.data.grid, coords) @ s  # k(x, X) S, (N', i)
        reduced = torch.linalg.solve_triangular(triangle, cross.mT, upper=False)
        prior = self.model.prior_variance(coords).flatten()
        return self.model.mean.constant + (cross @ v)[:, 0], prior - reduced.square().sum(dim=0)


def fit(gp: ComputationAwareGP, steps: int, rate: float) -> list[float]:
    """Maximise the bound over hyperparameters and actions by Adam. Returns the bound per observation at every step."""
    optimizer = torch.optim.Adam([p for p in gp.parameters() if p.requires_grad], lr=rate)
    bounds = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = -gp.elbo() / gp.data.grid.num_observed
        loss.backward()
        optimizer.step()
        bounds.append(-loss.item())
    return bounds


@dataclass(frozen=True)
class FitCaGP:
    """The settings of a fit. actions: how many; rate: learning rate of Adam"""

    actions: int
    steps: int
    rate: float

    def __str__(self) -> str:
        return f"{self.actions} actions, {self.steps} steps of Adam"

    def fit_predict(self, problem: Problem, seed: int) -> Prediction:
        data, coords = observations(problem)
        model = LatentKroneckerGP(problem.make_kernels(), noise=FIRST_NOISE).double()
        gp = ComputationAwareGP(model, data, self.actions)
        bounds = fit(gp, self.steps, self.rate)
        mean, variance = gp.predict(coords)
        std = (variance + model.noise_variance().detach()).sqrt()
        return Prediction(on_grid(problem, mean), on_grid(problem, std), {"bounds": bounds})


def settings(preset: str, experiment: str) -> FitCaGP:
    if preset == "paper":
        return FitCaGP(256, 50, 0.1) if experiment == "climate" else FitCaGP(512, 1000, 0.1)
    return FitCaGP(64, 100, 0.1)


COMPARATORS.register(Comparator("CaGP", settings, presets=PRESETS, order=7))
