"""Iterative refinement, the loop behind all solves: correct until the true residual is small or stagnates."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from lkgp.solvers.base import Reason, Solution, scaled_residual

# A correction must at least halve the error of a column; if it gains less, rounding errors dominate.
LEAST_PROGRESS = 0.5


@dataclass(frozen=True, eq=False)
class Correction:
    """The outcome of one correction.

    step: what was added to some columns of the unknowns, (m, a); None if it is unknown and cannot be undone
    failure: why no further correction is possible; None if one is
    """

    step: Tensor | None
    iterations: int
    products: int
    failure: Reason | None = None


class Refinable(ABC):
    """Linear equations for unknowns (m, c) with a computable residual and an approximate solver.

    residual_products: number of products needed to compute the true residual
    """

    residual_products: int

    @abstractmethod
    def residual(self, unknowns: Tensor) -> Tensor:
        """The residual, (m, c); the unknowns may be improved in place if that is cheap."""

    @abstractmethod
    def size(self, residual: Tensor) -> Tensor:
        """The size of the errors that the residuals correspond to, (c,)."""

    @abstractmethod
    def excess(self, unknowns: Tensor, residual: Tensor, size: Tensor, first: bool) -> Tensor:
        """The ratio of the errors to their targets, (c,), at most 1 for finished columns.

        first: whether no correction has been made yet
        """

    @abstractmethod
    def correction(self, residual: Tensor, excess: Tensor, budget: int) -> Correction:
        """Solve approximately for the right-hand side `residual` (m, a), with at most `budget` iterations.

        The residual may be overwritten.
        """

    def correct(self, unknowns: Tensor, active: Tensor, residual: Tensor, excess: Tensor, budget: int) -> Correction:
        """Add a correction to the `active` columns (a,) of the unknowns (m, c), whose residual is (m, a)."""
        found = self.correction(residual, excess, budget)
        assert found.step is not None
        # A column that overflowed is not changed at all: it could not be restored.
        found.step.masked_fill_(~torch.isfinite(found.step).all(dim=0), 0.0)
        if len(active) == unknowns.shape[1]:
            unknowns.add_(found.step)
        else:
            unknowns.index_add_(1, active, found.step)
        return found

    def sharpen(self) -> bool:
        """Compute corrections more accurately from now on; False if they are already as accurate as possible."""
        return False


class LinearEquations(Refinable):
    """A X = B for B (n, c), with columns scaled to norm 1, so that nothing depends on the units of the data."""

    def __init__(self, operator: Any, rhs: Tensor, norms: Tensor, rtol: float) -> None:
        self.operator, self.rhs, self.norms, self.rtol = operator, rhs, norms, rtol
        self.residual_products, self.first_products = rhs.shape[1], 0
        self._untouched, self._given = False, False

    def begin(self, x0: Tensor | None) -> Tensor:
        """The initial unknowns: x0 (n, c), or zero."""
        self._untouched, self._given = x0 is None, x0 is not None
        return torch.zeros_like(self.rhs) if x0 is None else x0 / self.norms

    def residual(self, unknowns: Tensor) -> Tensor:
        if self._untouched:  # the residual of zero needs no product
            self._untouched = False
            return self.rhs / self.norms
        residual = scaled_residual(self.operator, unknowns, self.rhs, self.norms)
        if self._given:
            self._given, self.first_products = False, self.rhs.shape[1]
            # Ignore an initial guess that is worse than zero.
            worse = ~(torch.linalg.vector_norm(residual, dim=0) < 1)
            unknowns[:, worse], residual[:, worse] = 0.0, self.rhs[:, worse] / self.norms[worse]
        return residual

    def size(self, residual: Tensor) -> Tensor:
        return torch.linalg.vector_norm(residual, dim=0)

    def excess(self, unknowns: Tensor, residual: Tensor, size: Tensor, first: bool) -> Tensor:
        return size / self.rtol

    def solution(self, refined: "Refined") -> Solution:
        """The solution in the units of B."""
        products = self.first_products + refined.products
        residuals = torch.linalg.vector_norm(refined.residual, dim=0)
        reason = self.judge(refined)
        return Solution(refined.unknowns.mul_(self.norms), residuals, refined.iterations, products, reason, self.rtol)

    def judge(self, refined: "Refined") -> Reason:
        """Why the refinement stopped; equations that are refined further than necessary may accept less."""
        return refined.reason


@dataclass(frozen=True, eq=False)
class Refined:
    """The outcome of a refinement.

    unknowns: (m, c); residual: the true residual, (m, c); size, excess: (c,), of the errors; reason: why it stopped
    """

    unknowns: Tensor
    residual: Tensor
    size: Tensor
    excess: Tensor
    iterations: int
    products: int
    reason: Reason


def refine(equations: Refinable, unknowns: Tensor, max_iterations: int) -> Refined:
    """Correct `unknowns` (m, c), in place, until every column has converged or stopped improving.

    Convergence is judged by the true residual only. A correction that makes a column worse is undone. If a correction
    fails to halve the error of a column, later corrections are made more accurate; if that is impossible, the column is
    left as it is while the others continue.
    """
    residual = equations.residual(unknowns)
    size = equations.size(residual)
    excess = equations.excess(unknowns, residual, size, True)
    iterations, products, failure = 0, 0, Reason.ITERATION_LIMIT
    stuck = torch.zeros_like(size, dtype=torch.bool)
    before = torch.full_like(size, torch.inf)
    while True:
        missed = ~(excess <= 1)
        if not bool(torch.isfinite(excess).all()):
            failure = Reason.NON_FINITE
            break
        if not bool(missed.any()):
            failure = Reason.CONVERGED
            break
        if iterations >= max_iterations:
            break
        stalled = missed & ~stuck & (size > LEAST_PROGRESS * before)
        if bool(stalled.any()) and not equations.sharpen():
            stuck |= stalled
            failure = Reason.STAGNATED
        active = torch.nonzero(missed & ~stuck).flatten()
        if not len(active):
            break
        before = size
        residual = residual if len(active) == len(size) else residual[:, active]
        found = equations.correct(unknowns, active, residual, excess[active], max_iterations - iterations)
        del residual
        iterations, products = iterations + found.iterations, products + found.products + equations.residual_products
        residual = equations.residual(unknowns)
        size = equations.size(residual)
        worse = ~(size[active] <= before[active])
        if bool(worse.any()) and found.step is not None:
            # Rounding errors dominated, or the matrix is not positive definite: undo these corrections.
            unknowns[:, active[worse]] -= found.step[:, worse]
            residual, products = equations.residual(unknowns), products + equations.residual_products
            size = equations.size(residual)
        excess = equations.excess(unknowns, residual, size, False)
        if found.failure is not None:
            failure = Reason.CONVERGED if bool((excess <= 1).all()) else found.failure
            break
        del found
    return Refined(unknowns, residual, size, excess, iterations, products, failure)
