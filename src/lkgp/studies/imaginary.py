"""The older Kronecker method for grids with holes: imaginary observations (Saatci 2012; Wilson et al. 2014).

Every missing cell gets a made-up observation with so much noise that it tells nothing. The covariance of the complete grid is a
Kronecker product, and

    (K + D) a = y,        D = s^2 where observed, s^2 / IMAGINED where not

is solved over all N cells by conjugate gradients, preconditioned by D^-1/2. The log-determinant over the n observed cells is not at
hand, and is approximated by the largest n eigenvalues of the complete one, shrunk:

    log det(K_nn + s^2 I)  ~  sum_i log(n / N lambda_i + s^2)

so its hyperparameters are not those of the exact model. The cost grows with N and with the noise of the imagined cells.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from lkgp.data.readers import Observations
from lkgp.linalg.factors import kronecker_matmul
from lkgp.model.model import LatentKroneckerGP
from lkgp.solvers import ConjugateGradients

# The noise variance of a real cell over that of an imagined one.
IMAGINED = 1e-6


@dataclass(frozen=True, eq=False)
class ScaledKronecker:
    """D^-1/2 K D^-1/2 + I over all cells. factors: of K; roots: D^-1/2 of every cell, (N, 1)"""

    factors: tuple[Tensor, ...]
    roots: Tensor

    def __matmul__(self, rhs: Tensor) -> Tensor:
        return self.roots * kronecker_matmul(self.factors, self.roots * rhs).mT + rhs


class ImaginaryObservationsGP:
    """model: kernels, mean and noise, which are learned; data: the observed cells; rtol, max_iterations: of conjugate gradients"""

    def __init__(
        self, model: LatentKroneckerGP, data: Observations, rtol: float = 0.01, max_iterations: int = 1000
    ) -> None:
        self.model, self.data, self.solver = model, data, ConjugateGradients(rtol, max_iterations)
        self.iterations = 0

    def factors(self) -> list[Tensor]:
        return [self.model.factor(k, x) for k, x in enumerate(self.data.grid.coords)]

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
        """y - m with zeros for the imagined, (N, 1)."""
        return self.data.grid.scatter(self.model.residuals(self.data)[:, None])

    def objective(self) -> Tensor:
        """The approximate log-likelihood an observation, whose gradient is that of both terms at the current solution."""
        n, size, noise = self.data.grid.num_observed, self.data.grid.num_cells, self.model.noise_variance()
        factors, y = self.factors(), self.targets()
        a = self.solve(y.detach())
        # y^T A^-1 y = 2 a^T y - a^T A a has the right value and gradient where a = A^-1 y is held fixed.
        roots = self.precision_roots()
        quadratic = 2 * (a * y).sum() - (a * kronecker_matmul(tuple(factors), a).mT).sum() - (a / roots).square().sum()
        spectrum = torch.ones(1, dtype=y.dtype)
        for factor in factors:
            spectrum = (spectrum[:, None] * torch.linalg.eigvalsh(factor).clamp(min=0)).flatten()
        leading = spectrum.topk(n).values * (n / size)
        determinant = torch.log(leading + noise).sum()
        return -0.5 * (quadratic + determinant + n * math.log(2 * math.pi)) / n

    def fit(self, steps: int, rate: float) -> list[float]:
        """Adam on the approximate log-likelihood. Returns it at every step."""
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
        """Mean of every cell, and its variance from pathwise samples, each (N,)."""
        factors, roots = tuple(self.factors()), self.precision_roots()
        grid, y = self.data.grid, self.targets()
        triangles = []
        for factor in factors:
            values, vectors = torch.linalg.eigh(factor)
            triangles.append(vectors * values.clamp(min=0).sqrt())
        normals = torch.randn(grid.num_cells, num_samples, dtype=y.dtype, generator=generator)
        prior = kronecker_matmul(tuple(triangles), normals).mT
        noise = torch.randn(grid.num_cells, num_samples, dtype=y.dtype, generator=generator) / roots
        # Centred: each draw about the mean is prior + K A^-1 (0 - prior - noise).
        solved = self.solve(torch.cat([y, -(prior + noise)], dim=1))
        moved = kronecker_matmul(factors, solved).mT
        return self.model.mean.constant + moved[:, 0], (prior + moved[:, 1:]).square().mean(dim=1)
