"""Preconditioned conjugate gradients for many right-hand sides at once."""

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from lkgp.settings import Settings, check_positive
from lkgp.solvers.base import Reason, Solution, column_norms, not_solved
from lkgp.solvers.refinement import Correction, LinearEquations, refine

# Inner products work on this many entries at a time (8 MB in float64), so that no array as large as the unknowns is
# created.
DOT_ENTRIES = 2**20
# Each descent aims at this fraction of the target, so that the true residual, which rounds differently, meets it too.
AIM = 0.9


@dataclass(frozen=True)
class ConjugateGradients(Settings):
    """Preconditioned conjugate gradients; each column stops when its own residual is small enough.

    rtol: true relative residual that every column must reach
    max_iterations: maximum number of iterations over all restarts
    """

    rtol: float = 1e-6
    max_iterations: int = 2000

    def __post_init__(self) -> None:
        check_positive(self, rtol=self.rtol, max_iterations=self.max_iterations)

    def solve(self, operator: Any, rhs: Tensor, *, preconditioner: Any = None, x0: Tensor | None = None) -> Solution:
        norms = column_norms(rhs)
        if not bool(torch.isfinite(norms).all()):
            return not_solved(rhs, Reason.NON_FINITE, self.rtol)
        equations = DescentEquations(operator, rhs, norms, self.rtol, preconditioner)
        return equations.solution(refine(equations, equations.begin(x0), self.max_iterations))


class DescentEquations(LinearEquations):
    """A X = B, corrected by conjugate gradients started at the true residual."""

    def __init__(self, operator: Any, rhs: Tensor, norms: Tensor, rtol: float, preconditioner: Any) -> None:
        super().__init__(operator, rhs, norms, rtol)
        self.preconditioner = preconditioner

    def correct(self, unknowns: Tensor, active: Tensor, residual: Tensor, excess: Tensor, budget: int) -> Correction:
        # The residual that conjugate gradients update recursively drifts from the true one; `refine` restarts them
        # from the latter. They update the unknowns in place: a separate step would be one more array of that size.
        goal = AIM * self.rtol
        products, iterations, failure = descend(
            self.operator, self.preconditioner, unknowns, residual, active, goal, budget
        )
        return Correction(None, iterations, products, failure)

    def correction(self, residual: Tensor, excess: Tensor, budget: int) -> Correction:
        step = torch.zeros_like(residual)
        columns = torch.arange(residual.shape[1], device=residual.device)
        found = self.correct(step, columns, residual, excess, budget)
        return Correction(step, found.iterations, found.products, found.failure)


def descend(
    operator: Any,
    preconditioner: Any,
    x: Tensor,
    r: Tensor,
    active: Tensor,
    goal: float,
    budget: int,
    energy: bool = False,
    astray: float = math.inf,
    history: "CoefficientHistory | None" = None,
    begun: Tensor | None = None,
) -> tuple[int, int, Reason | None]:
    """Iterate until the recursive residuals of the `active` columns are below `goal`; changes x and r in place.

    Finished columns leave the working arrays, so they cost nothing more and 0 / 0 cannot arise.
    Returns the number of products, the number of iterations, and what went wrong, if anything.

    x: (n, c); r: (n, a); active: the columns of x that r belongs to, (a,)
    energy: whether residuals are measured by the preconditioner, r^T M^-1 r, instead of r^T r
    astray: give up if a residual exceeds this, because rounding errors have taken over
    history: collects what the iterations tell about the spectrum
    begun: M^-1 r, (n, a), if it is known; it is overwritten
    """
    p = begun
    if p is None:
        p = r.clone() if preconditioner is None else preconditioner.solve(r)
    rz = column_dots(r, p)
    products = 0
    for step in range(1, budget + 1):
        ap = operator @ p
        products += p.shape[1]
        curvature = column_dots(p, ap)
        if not bool((curvature > 0).all()) or not bool((rz > 0).all()):
            finite = bool(torch.isfinite(curvature).all()) and bool(torch.isfinite(rz).all())
            return products, step, Reason.NOT_POSITIVE_DEFINITE if finite else Reason.NON_FINITE
        alpha = rz / curvature
        if len(active) == x.shape[1]:
            x.addcmul_(p, alpha)
        else:
            x.index_add_(1, active, p * alpha)
        r.sub_(ap.mul_(alpha))
        del ap
        z = r if preconditioner is None else preconditioner.solve(r)
        rz_next = column_dots(r, z)
        sizes = rz_next.clamp(min=0).sqrt() if energy else torch.linalg.vector_norm(r, dim=0)
        if bool((sizes > astray).any()):
            return products, step, Reason.STAGNATED
        if history is not None:
            history.append((active, alpha, rz_next / rz))
        keep = sizes > goal
        if not bool(keep.all()):
            active, rz, rz_next = active[keep], rz[keep], rz_next[keep]
            if len(active) == 0:
                return products, step, None
            p, r = p[:, keep], r[:, keep]
            z = r if preconditioner is None else z[:, keep]
        p.mul_(rz_next / rz).add_(z)
        rz = rz_next
        del z
    return products, budget, None


# The active columns of every iteration, (a,), with the lengths of their steps and the ratios of their residuals, (a,).
CoefficientHistory = list[tuple[Tensor, Tensor, Tensor]]


def smallest_ritz_value(history: CoefficientHistory) -> float:
    """The smallest eigenvalue of M^-1 A that conjugate gradients have seen, from the columns that took longest.

    Infinite if rounding errors have taken over.
    Their coefficients are those of the Lanczos matrix T: T_kk = 1 / a_k + b_k-1 / a_k-1, T_k,k+1 = sqrt(b_k) / a_k.
    """
    last = history[-1][0]
    picked = [(alpha, ratio, torch.isin(active, last)) for active, alpha, ratio in history]
    alphas, ratios = (torch.stack([row[i][row[2]] for row in picked], dim=1).double() for i in (0, 1))  # (a, steps)
    diagonal = 1 / alphas
    diagonal[:, 1:] += ratios[:, :-1] / alphas[:, :-1]
    beside = ratios[:, :-1].clamp(min=0).sqrt() / alphas[:, :-1]
    tridiagonal = torch.diag_embed(diagonal) + torch.diag_embed(beside, 1) + torch.diag_embed(beside, -1)
    return float(torch.linalg.eigvalsh(tridiagonal).min()) if bool(torch.isfinite(tridiagonal).all()) else math.inf


def column_dots(a: Tensor, b: Tensor) -> Tensor:
    """The inner products (c,) of the columns of two arrays (n, c), block by block to save memory."""
    rows = max(1, DOT_ENTRIES // a.shape[1])
    return torch.stack([(x * y).sum(dim=0) for x, y in zip(a.split(rows), b.split(rows), strict=True)]).sum(dim=0)
