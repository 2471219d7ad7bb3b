"""The older Kronecker method for grids with holes: imaginary observations (Saatci, 2012; Wilson et al., 2014).

Every missing cell gets an imaginary observation with so much noise that it carries no information. The covariance of
the complete grid is a Kronecker product, and

    (K + D) a = y,        D = s^2 where observed, s^2 / IMAGINED where not

is solved over all N cells by conjugate gradients, preconditioned by D^-1/2. The log-determinant over the n observed
cells is not available, and is approximated by the n largest eigenvalues of the complete covariance, rescaled:

    log det(K_nn + s^2 I)  ~  sum_i log(n / N lambda_i + s^2)

so that its hyperparameters are not those of the exact model. The cost grows with N and with the noise of imaginary
cells.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from lkgp import ConjugateGradients, LatentKroneckerGP, Observations
from lkgp.linalg import kronecker_matmul
from lkgp.studies.models.grids import observations, on_grid
from lkgp.studies.models.paper_recipe import paper_steps
from lkgp.studies.predictions import SAMPLES, Prediction
from lkgp.studies.problems import FIRST_NOISE, Problem
from lkgp.studies.registry import COMPARATORS, PRESETS, Comparator

# The noise variance of a real cell over that of an imaginary one. Smaller values bias the mean less, and make the
# system harder for conjugate gradients.
IMAGINED = 1e-6


@dataclass(frozen=True, eq=False)
class ScaledKronecker:
    """D^-1/2 K D^-1/2 + I over all cells.

    factors: of K, (n_k, n_k); roots: D^-1/2 of every cell, (N, 1)
    """

    factors: tuple[Tensor, ...]
    roots: Tensor

    def __matmul__(self, rhs: Tensor) -> Tensor:
        return self.roots * kronecker_matmul(self.factors, self.roots * rhs).mT + rhs


class ImaginaryObservationsGP:
    """The model of the complete grid.

    model: kernels, mean and noise, which are learned
    data: the observed cells
    rtol, max_iterations: of conjugate gradients
    """

    def __init__(
        self, model: LatentKroneckerGP, data: Observations, rtol: float = 0.01, max_iterations: int = 1000
    ) -> None:
        self.model, self.data, self.solver = model, data, ConjugateGradients(rtol, max_iterations)
        self.iterations = 0

    def factors(self) -> list[Tensor]:
        return [factor.dense() for factor in self.model.terms[0].factors(self.data.grid.coords)]

    def precision_roots(self) -> Tensor:
        """D^-1/2 of every cell, (N, 1)."""
        grid = self.data.grid
        roots = math.sqrt(IMAGINED) * torch.ones(grid.num_cells, dtype=self.data.values.dtype)
        roots[grid.index] = 1.0
        return roots[:, None] / self.model.noise_variance().sqrt()

    @torch.no_grad()
    def solve(self, rhs: Tensor) -> Tensor:
        """(K + D)^-1 of (N, c), by conjugate gradients on D^-1/2 K D^-1/2 + I."""
        roots = self.precision_roots()
        solution = self.solver.solve(ScaledKronecker(tuple(self.factors()), roots), roots * rhs)
        self.iterations += solution.iterations
        return roots * solution.values

    def targets(self) -> Tensor:
        """y - m, with zeros for imaginary cells, (N, 1)."""
        return self.data.grid.scatter(self.model.residuals(self.data)[:, None])

    def objective(self) -> Tensor:
        """The approximate log-likelihood per observation, with the gradient of both terms at the current solution."""
        n, size, noise = self.data.grid.num_observed, self.data.grid.num_cells, self.model.noise_variance()
        factors, y = self.factors(), self.targets()
        a = self.solve(y.detach())
        # y^T A^-1 y = 2 a^T y - a^T A a, which has the right value and gradient while a = A^-1 y is held fixed.
        roots = self.precision_roots()
        quadratic = 2 * (a * y).sum() - (a * kronecker_matmul(tuple(factors), a).mT).sum() - (a / roots).square().sum()
        spectrum = torch.ones(1, dtype=y.dtype)
        for factor in factors:
            spectrum = (spectrum[:, None] * torch.linalg.eigvalsh(factor).clamp(min=0)).flatten()
        leading = spectrum.topk(n).values * (n / size)
        determinant = torch.log(leading + noise).sum()
        return -0.5 * (quadratic + determinant + n * math.log(2 * math.pi)) / n

    def fit(self, steps: int, rate: float) -> list[float]:
        """Maximise the approximate log-likelihood by Adam. Returns its value per observation at every step."""
        optimizer = torch.optim.Adam([p for p in self.model.parameters() if p.requires_grad], lr=rate)
        found = []
        for _ in range(steps):
            optimizer.zero_grad()
            loss = -self.objective()
            loss.backward()
            optimizer.step()
            found.append(-loss.item())
        return found

    @torch.no_grad()
    def predict(self, num_samples: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Mean of the latent function at every cell, and its variance from pathwise samples, each (N,)."""
        factors, roots = tuple(self.factors()), self.precision_roots()
        grid, y = self.data.grid, self.targets()
        triangles = []
        for factor in factors:
            values, vectors = torch.linalg.eigh(factor)
            triangles.append(vectors * values.clamp(min=0).sqrt())
        normals = torch.randn(grid.num_cells, num_samples, dtype=y.dtype, generator=generator)
        prior = kronecker_matmul(tuple(triangles), normals).mT
        noise = torch.randn(grid.num_cells, num_samples, dtype=y.dtype, generator=generator) / roots
        # A draw minus the mean: prior + K A^-1 (0 - prior - noise).
        solved = self.solve(torch.cat([y, -(prior + noise)], dim=1))
        moved = kronecker_matmul(factors, solved).mT
        return self.model.mean.constant + moved[:, 0], (prior + moved[:, 1:]).square().mean(dim=1)


@dataclass(frozen=True)
class FitImaginaryObservations:
    """The settings of a fit. rate: learning rate of Adam"""

    steps: int
    rate: float

    def __str__(self) -> str:
        return f"{self.steps} steps of Adam"

    def fit_predict(self, problem: Problem, seed: int) -> Prediction:
        data, _ = observations(problem)
        model = LatentKroneckerGP(problem.make_kernels(), noise=FIRST_NOISE).double()
        gp = ImaginaryObservationsGP(model, data)
        losses = gp.fit(self.steps, self.rate)
        mean, variance = gp.predict(SAMPLES, torch.Generator().manual_seed(seed))
        std = (variance + model.noise_variance().detach()).sqrt()
        report = {"losses": losses, "iterations": gp.iterations}
        return Prediction(on_grid(problem, mean), on_grid(problem, std), report)


def settings(_preset: str, experiment: str) -> FitImaginaryObservations:
    return FitImaginaryObservations(paper_steps(experiment), 0.1)


COMPARATORS.register(Comparator("imaginary observations", settings, presets=PRESETS, order=8))
