"""Solving to a stated accuracy: rough corrections in float32, each judged by its residual in float64."""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from lkgp.solvers import Reason, Solution
from lkgp.solvers.base import column_norms

# float32 rounds each product by about 6e-8 of its norm, so one correction cannot be asked for more than this.
FLOAT32_RTOL = 1e-4
# A correction whose residual has grown by this factor is given up.
ASTRAY = 1e6
# Iterations after which a correction in float32 is judged at the latest: where rounding leads nowhere, float64 follows.
MOST_ROUGH_ITERATIONS = 100


@dataclass(frozen=True, eq=False)
class LatentSolution(Solution):
    """A solution of A X = B, with the function that it says was observed.

    residuals: bounds of the errors |e|_A / |x|_A, (c,)
    latent: K_cells P^T X at every cell of the grid, (c, N), or zero where nothing was observed if the system does not know it there
    """

    latent: Tensor


class Equations(ABC):
    """Symmetric positive definite equations for some unknowns u (m, c), from which A^-1 B follows for B (n, c).

    exact, fast: their matrix in float64, and in the precision of the corrections
    noise: the diagonal of D, (n,)
    """

    def __init__(self, rhs: Tensor, noise: Tensor, exact: Any, fast: Any) -> None:
        self.rhs, self.noise, self.exact, self.fast = rhs, noise[:, None], exact, fast
        self.norms = column_norms(rhs)
        self.plain = (rhs.square() / self.noise).sum(dim=0)  # b^T D^-1 b

    @abstractmethod
    def begin(self, start: Tensor | None) -> Tensor:
        """The unknowns of functions (c, N), or zeros."""

    @abstractmethod
    def polished(self, unknowns: Tensor) -> Tensor:
        """What is left of the right-hand side, (m, c), in float64, after the unknowns have been mended in place where that is cheap."""

    @abstractmethod
    def error_bound(self, residual: Tensor) -> Tensor:
        """A bound of |e|_A, (c,), e the error of A^-1 B."""

    @abstractmethod
    def true_residual(self, residual: Tensor) -> Tensor:
        """|b - A x| / |b|, (c,)."""

    @abstractmethod
    def energy(self, unknowns: Tensor, residual: Tensor) -> Tensor:
        """b^T A^-1 b, (c,), with an error of second order."""

    @abstractmethod
    def correction(self, residual: Tensor, rtol: float, budget: int) -> tuple[Tensor, int, int]:
        """An approximate solution for the right-hand side `residual` (m, a), its iterations and its products."""

    @abstractmethod
    def answer(self, unknowns: Tensor) -> tuple[Tensor, Tensor]:
        """A^-1 B, (n, c), and the function that it says was observed, (c, N)."""

    def refine_precision(self) -> bool:
        """Compute corrections in float64 from now on; False if they are already."""
        was_rough = self.fast is not self.exact
        self.fast = self.exact
        return was_rough


class LatentSystem(ABC):
    """A, for one set of hyperparameters, to be solved by some equations."""

    @abstractmethod
    def equations(self, rhs: Tensor) -> Equations:
        """Those of A X = B for B (n, c)."""

    def solve(
        self,
        rhs: Tensor,
        rtol: float,
        *,
        residual_rtol: float = math.inf,
        start: Tensor | None = None,
        max_iterations: int = 1000,
    ) -> LatentSolution:
        """A^-1 B for B (n, c), float64.

        rtol: the error that is allowed, relative: |e|_A <= rtol |x|_A. Its bound is computed in float64; the solution's `residuals`
            are those bounds.
        residual_rtol: the relative residual |b - A x| / |b| that is allowed besides, of A as the system has it
        start: the function that B is expected to be an observation of, at every cell, (c, N)
        """
        equations, columns, started = self.equations(rhs), rhs.shape[1], start is not None
        unknowns = equations.begin(start)
        residual = equations.polished(unknowns)
        # Data that come from the model have b^T A^-1 b ~ n: what a first solve aims at.
        energy = equations.plain.clamp(max=float(len(rhs)))
        if started:
            energy = torch.minimum(energy, equations.energy(unknowns, residual))
        iterations, products, reason = 0, columns if started else 0, Reason.ITERATION_LIMIT
        before = torch.full_like(energy, torch.inf)
        while True:
            size = equations.error_bound(residual)
            errors = size / energy.sqrt().clamp(min=1e-300)
            excess = errors / rtol  # above one where more must be done
            if math.isfinite(residual_rtol) and (iterations or started):
                excess = torch.maximum(excess, equations.true_residual(residual) / residual_rtol)
            missed = excess > 1 if iterations or started else size > 0
            if not bool(torch.isfinite(excess).all()):
                reason = Reason.NON_FINITE
                break
            if not bool(missed.any()):
                reason = Reason.CONVERGED
                break
            if iterations >= max_iterations:
                break
            if bool((missed & (size > 0.5 * before)).any()) and not equations.refine_precision():
                reason = Reason.STAGNATED
                break
            before, active = size, torch.nonzero(missed).flatten()
            wanted = min(0.7 / float(excess[active].max()), 0.5)
            budget = max_iterations - iterations
            budget = min(budget, MOST_ROUGH_ITERATIONS) if equations.fast is not equations.exact else budget
            step, spent, used = equations.correction(residual[:, active], wanted, budget)
            kept = unknowns[:, active]  # a copy
            unknowns[:, active] += step
            iterations, products = iterations + spent, products + used + columns
            residual = equations.polished(unknowns)
            worse = ~(equations.error_bound(residual)[active] <= size[active])
            if bool(worse.any()):
                # The rounded matrix was not positive definite, or rounding led astray: these columns stay as they were.
                unknowns[:, active[worse]] = kept[:, worse]
                residual, products = equations.polished(unknowns), products + columns
            energy = equations.energy(unknowns, residual)
        values, latent = equations.answer(unknowns)
        return LatentSolution(values, errors, iterations, products, reason, rtol, latent)
