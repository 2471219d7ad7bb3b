"""Stochastic gradient descent on the quadratic function whose minimum is the solution."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from lkgp.settings import Settings, check_positive
from lkgp.solvers.base import (
    Reason,
    Solution,
    column_norms,
    not_solved,
    reason_at_exit,
    scaled_residual,
)


@dataclass(frozen=True)
class StochasticGradientDescent(Settings):
    """Stochastic gradient descent on x^T A x / 2 - x^T b, with momentum and iterate averaging.

    Each step uses only `batch_size` random rows. It takes many cheap steps where conjugate gradients take a few
    expensive ones, and is meant for rough solutions (rtol of 0.01) of systems too large for full products.

    rtol: true relative residual that every column must reach
    batch_size: rows per step
    step_size: in units of 1 / (largest eigenvalue of the diagonally scaled matrix), which is estimated
    momentum: fraction of the previous step that is repeated
    averaging: weight of the new iterate in the running average
    max_iterations: maximum number of steps
    check_every: number of steps between two checks of the true residual
    seed: random seed of the rows
    """

    rtol: float = 1e-2
    batch_size: int = 128
    step_size: float = 0.5
    momentum: float = 0.9
    averaging: float = 0.02
    max_iterations: int = 50000
    check_every: int = 200
    seed: int = 0

    def __post_init__(self) -> None:
        check_positive(
            self,
            rtol=self.rtol,
            batch_size=self.batch_size,
            step_size=self.step_size,
            averaging=self.averaging,
            max_iterations=self.max_iterations,
            check_every=self.check_every,
        )

    def solve(self, operator: Any, rhs: Tensor, *, preconditioner: Any = None, x0: Tensor | None = None) -> Solution:
        norms = column_norms(rhs)
        n, columns = rhs.shape
        generator = torch.Generator(rhs.device).manual_seed(self.seed)
        diagonal = operator.diagonal()
        if not bool(torch.isfinite(norms).all() and torch.isfinite(diagonal).all()):
            return not_solved(rhs, Reason.NON_FINITE, self.rtol)
        if not bool((diagonal > 0).all()):
            return not_solved(rhs, Reason.NOT_POSITIVE_DEFINITE, self.rtol)
        batch = min(self.batch_size, n)
        largest, products = self._largest_eigenvalue(operator, diagonal, generator)
        step = self.step_size / largest

        x = torch.zeros_like(rhs) if x0 is None else x0 / norms
        average, velocity = x.clone(), torch.zeros_like(x)
        norm = torch.linalg.vector_norm(scaled_residual(operator, average, rhs, norms), dim=0)
        products += columns
        # A start that is worse than zero is no start.
        worse = ~(norm < 1)
        if x0 is not None and bool(worse.any()):
            x[:, worse], average[:, worse], norm[worse] = 0.0, 0.0, 1.0
        best, best_norm = average.clone(), norm
        iterations = 0
        while iterations < self.max_iterations and bool((best_norm > self.rtol).any()):
            for _ in range(self.check_every):
                ahead = x + self.momentum * velocity
                cells = torch.randperm(n, generator=generator, device=rhs.device)[:batch]
                gradient = operator.rows(cells) @ ahead - rhs[cells] / norms
                velocity.mul_(self.momentum)
                velocity[cells] -= step * gradient / diagonal[cells, None]
                x += velocity
                average.lerp_(x, self.averaging)
            iterations += self.check_every
            products += -(-self.check_every * columns * batch // n) + columns
            norm = torch.linalg.vector_norm(scaled_residual(operator, average, rhs, norms), dim=0)
            if not bool(torch.isfinite(norm).all()) or bool((norm > 1e3).any()):
                # Diverged: restart from the best point with half the step size.
                step = step / 2
                x, average = best.clone(), best.clone()
                velocity.zero_()
                continue
            better = norm < best_norm
            best[:, better], best_norm = average[:, better], torch.minimum(norm, best_norm)
        reason = reason_at_exit(best_norm, self.rtol, Reason.ITERATION_LIMIT)
        return Solution(best.mul_(norms), best_norm, iterations, products, reason, self.rtol)

    def _largest_eigenvalue(self, operator: Any, diagonal: Tensor, generator: torch.Generator) -> tuple[Tensor, int]:
        """Estimate the largest eigenvalue of D^-1/2 A D^-1/2, D = diag A, by power iteration; count its products."""
        root = diagonal.sqrt()[:, None]
        vector = torch.randn(len(diagonal), 1, generator=generator, dtype=diagonal.dtype, device=diagonal.device)
        for _ in range(20):
            vector = (operator @ (vector / torch.linalg.vector_norm(vector) / root)) / root
        return torch.linalg.vector_norm(vector), 20
