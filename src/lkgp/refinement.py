"""Solving to a stated accuracy: rough corrections in float32, each judged by its residual in float64."""

import math
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from lkgp.solvers import Reason, Solution

# float32 rounds each product by about 6e-8 of its norm, so one correction cannot be asked for more than this.
FLOAT32_RTOL = 1e-4


@dataclass(frozen=True, eq=False)
class LatentSolution(Solution):
    """A solution of A X = B, with the function that it says was observed.

    residuals: bounds of the errors |e|_A / |x|_A, (c,)
    latent: K_cells P^T X at every cell of the grid, (c, N), or zero where nothing was observed if the system does not know it there
    """

    latent: Tensor


class Equations(Protocol):
    """Symmetric positive definite equations for some unknowns u (m, c), from which A^-1 B follows."""

    def polished(self, unknowns: Tensor) -> Tensor:
        """What is left of the right-hand side, (m, c), in float64, after the unknowns have been mended in place where that is cheap."""

    def error_bound(self, residual: Tensor) -> Tensor:
        """A bound of |e|_A, (c,), e the error of A^-1 B."""

    def true_residual(self, residual: Tensor) -> Tensor:
        """|b - A x| / |b|, (c,)."""

    def energy(self, unknowns: Tensor, residual: Tensor) -> Tensor:
        """b^T A^-1 b, (c,), with an error of second order."""

    def correction(self, residual: Tensor, rtol: float, budget: int) -> tuple[Tensor, int, int]:
        """An approximate solution for the right-hand side `residual` (m, a), its iterations and its products."""

    def refine_precision(self) -> bool:
        """Compute corrections in float64 from now on; False if they are already."""


@dataclass(frozen=True, eq=False)
class Refined:
    """Unknowns (m, c), bounds of their relative errors (c,), and what they cost."""

    unknowns: Tensor
    errors: Tensor
    iterations: int
    products: int
    reason: Reason


def refine(
    equations: Equations, unknowns: Tensor, energy: Tensor, *, started: bool, rtol: float, residual_rtol: float, max_iterations: int
) -> Refined:
    """Correct `unknowns` (m, c) in place until they are accurate.

    energy: b^T A^-1 b, (c,), as expected at first
    started: whether the unknowns are more than zeros
    rtol: the error that is allowed, |e|_A <= rtol |x|_A
    residual_rtol: the relative residual |b - A x| / |b| that is allowed besides
    """
    columns = unknowns.shape[1]
    residual = equations.polished(unknowns)
    iterations, products, reason = 0, columns if started else 0, Reason.ITERATION_LIMIT
    if started:
        energy = torch.minimum(energy, equations.energy(unknowns, residual))
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
        step, spent, used = equations.correction(residual[:, active], wanted, max_iterations - iterations)
        unknowns[:, active] += step
        iterations, products = iterations + spent, products + used + columns
        residual = equations.polished(unknowns)
        energy = equations.energy(unknowns, residual)
    return Refined(unknowns, errors, iterations, products, reason)
