"""Solve to a given accuracy: rough corrections in float32, each checked by its residual in float64."""

import math
from abc import abstractmethod
from typing import Any

import torch
from torch import Tensor

from lkgp.inference.predictions import SampleAccuracy
from lkgp.solvers import Reason
from lkgp.solvers.base import column_norms
from lkgp.solvers.refinement import Refinable, refine

# The smallest relative residual required of one correction: products in float32 have rounding errors of about 6e-8 of
# their norm.
FLOAT32_RTOL = 1e-4
# A correction is abandoned if its residual has grown by this factor: rounding errors have taken over.
ASTRAY = 1e6
# Maximum number of iterations before a correction in float32 is checked: if it stagnates, float64 takes over.
MOST_ROUGH_ITERATIONS = 100


class MixedPrecisionEquations(Refinable):
    """Symmetric positive definite equations for unknowns u (m, c), from which A^-1 B follows for B (n, c).

    exact, fast: the matrix in float64, and in the precision of the corrections
    noise: the diagonal of D, (n,)
    """

    def __init__(self, rhs: Tensor, noise: Tensor, exact: Any, fast: Any) -> None:
        self.rhs, self.noise, self.exact, self.fast = rhs, noise[:, None], exact, fast
        self.norms, self.residual_products = column_norms(rhs), rhs.shape[1]
        self.plain = (rhs.square() / self.noise).sum(dim=0)  # b^T D^-1 b

    def solve(
        self,
        rtol: float,
        goal: float,
        start: Tensor | None,
        max_iterations: int,
        accuracy: SampleAccuracy | None = None,
    ) -> tuple[Tensor, Tensor, int, int, Reason]:
        """Solve for the unknowns.

        Returns the unknowns (m, c), bounds on the relative errors |e|_A / |x|_A, (c,), the numbers of iterations and
        products, and why it stopped.

        rtol: the required relative error; goal: the relative residual |b - A x| / |b| that is also required
        start: initial guess of the latent function that B observes, at every cell, (c, N)
        accuracy: what samples require as well
        """
        self.rtol, self.goal, self.started, self.accuracy = rtol, goal, start is not None, accuracy
        refined = refine(self, self.begin(start), max_iterations)
        self.quadratic = self.energy(refined.unknowns, refined.residual)
        self.quadratic_error = refined.size.square() / self.lowest
        products = refined.products + (self.rhs.shape[1] if self.started else 0)
        return refined.unknowns, self.errors, refined.iterations, products, refined.reason

    def excess(self, unknowns: Tensor, residual: Tensor, size: Tensor, first: bool) -> Tensor:
        if first:
            # Data from the model have b^T A^-1 b ~ n, which sets the scale for the first solve.
            energy = self.plain.clamp(max=float(len(self.rhs)))
            if self.started:
                energy = torch.minimum(energy, self.energy(unknowns, residual))
        else:
            energy = self.energy(unknowns, residual)
        self.errors = size / (self.lowest * energy).sqrt().clamp(min=1e-300)
        excess = self.errors / self.rtol
        if first and not self.started:
            # Without an initial guess, every column with a nonzero residual needs at least one correction.
            return torch.where(size > 0, excess.clamp(min=1 + 1e-9), excess)
        if math.isfinite(self.goal):
            excess = torch.maximum(excess, self.true_residual(residual) / self.goal)
        if self.accuracy is not None and bool((excess <= 1).all()):
            values, left = self.solved(unknowns, residual)
            errors = self.accuracy.errors(values, left, torch.ones_like(self.norms))
            excess = torch.maximum(excess, self.accuracy.excess(errors))
        return excess

    def sharpen(self) -> bool:
        was_rough = self.fast is not self.exact
        self.fast = self.exact
        return was_rough

    def rounds(self, budget: int) -> int:
        """Maximum number of iterations of one correction."""
        return min(budget, MOST_ROUGH_ITERATIONS) if self.fast is not self.exact else budget

    @property
    def lowest(self) -> float:
        """|e|_A^2 is at most the squared size of a residual over this number."""
        return 1.0

    @staticmethod
    def wanted(excess: Tensor) -> float:
        """The fraction of the residual that a correction may leave: a bit less than required, and at most half."""
        return max(min(0.7 / float(excess.max()), 0.5), FLOAT32_RTOL)

    @abstractmethod
    def begin(self, start: Tensor | None) -> Tensor:
        """The initial unknowns for latent functions (c, N), or zeros."""

    @abstractmethod
    def answer(self, unknowns: Tensor) -> tuple[Tensor, Tensor]:
        """A^-1 B, (n, c), and the function that it says was observed, (c, N), zero where it is not known."""

    @abstractmethod
    def solved(self, unknowns: Tensor, residual: Tensor) -> tuple[Tensor, Tensor]:
        """A^-1 B and its residual B - A A^-1 B, both (n, c)."""

    @abstractmethod
    def true_residual(self, residual: Tensor) -> Tensor:
        """|b - A x| / |b|, (c,)."""

    @abstractmethod
    def energy(self, unknowns: Tensor, residual: Tensor) -> Tensor:
        """b^T A^-1 b, (c,), with an error of second order."""
