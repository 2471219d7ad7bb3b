"""What a solver is, what it returns, and how it says that it failed."""

from dataclasses import dataclass
from enum import Enum
from typing import Any, Protocol

import torch
from torch import Tensor

from lkgp.errors import InputError


class Reason(Enum):
    """Why a solve stopped. The value is what a person is told."""

    CONVERGED = "converged"
    ITERATION_LIMIT = (
        "the iteration limit was reached; raise max_iterations, loosen rtol, or use a stronger preconditioner"
    )
    STAGNATED = "rounding stopped the progress; use float64, loosen rtol, or raise the noise"
    NOT_POSITIVE_DEFINITE = "the matrix is not positive definite; raise the noise, or mend the kernels"
    NON_FINITE = "a value that is not finite appeared; look for infinite or NaN hyperparameters"


@dataclass(frozen=True, eq=False)
class Solution:
    """The solution of A X = B.

    values: X, (n, c)
    residuals: (c,), |b - A x| / |b| of every column, recomputed from X at exit (0 where b = 0 and x = 0)
    iterations: of the column that took longest
    products: how many products of A with one column were spent, those that checked the residuals included
    reason: why it stopped; the worst of all columns
    rtol: the relative residual that was asked for
    """

    values: Tensor
    residuals: Tensor
    iterations: int
    products: int
    reason: Reason
    rtol: float

    @property
    def converged(self) -> bool:
        return self.reason is Reason.CONVERGED

    def __str__(self) -> str:
        worst = float(self.residuals.max()) if len(self.residuals) else 0.0
        return (
            f"{self.reason.value} ({self.iterations} iterations, {self.products} products, "
            f"worst relative residual {worst:.1e}, asked {self.rtol:.1e})"
        )


class Solver(Protocol):
    """A record of settings with one `solve`.

    operator: anything symmetric positive definite with `@` on (n, c); some solvers also want `rows(index)` (b, n),
        `diagonal()` (n,) or `to_dense()` (n, n)
    rhs: B, (n, c)
    preconditioner: anything with `solve(R)`, an approximation of A^-1 R for R (n, c); not every solver uses one
    x0: where to start, (n, c); zero if not given
    """

    @property
    def rtol(self) -> float: ...

    def solve(
        self, operator: Any, rhs: Tensor, *, preconditioner: Any = None, x0: Tensor | None = None
    ) -> Solution: ...


def solve(
    operator: Any, rhs: Tensor, solver: Solver, *, preconditioner: Any = None, x0: Tensor | None = None
) -> Solution:
    """Solve A X = B with any solver; B may be (n,) or (n, c), and X has its shape."""
    columns = rhs[:, None] if rhs.ndim == 1 else rhs
    if columns.ndim != 2 or len(columns) != operator.shape[-1]:
        raise InputError(f"the right-hand side has shape {tuple(rhs.shape)}; it must have {operator.shape[-1]} rows.")
    if x0 is not None:
        x0 = x0.reshape(columns.shape)
    with torch.no_grad():
        solution = solver.solve(operator, columns, preconditioner=preconditioner, x0=x0)
    if rhs.ndim == 2:
        return solution
    values = solution.values[:, 0]
    return Solution(values, solution.residuals, solution.iterations, solution.products, solution.reason, solution.rtol)


def column_norms(rhs: Tensor) -> Tensor:
    """The norms (c,) of the columns of (n, c), and one for columns of zeros.

    Dividing by the largest entry first keeps the squares of tiny and huge data from under- and overflowing.
    """
    largest = rhs.abs().amax(dim=0)
    largest = torch.where(largest > 0, largest, torch.ones_like(largest))
    norms = torch.linalg.vector_norm(rhs / largest, dim=0)
    return torch.where(norms > 0, norms, torch.ones_like(norms)) * largest


def scaled_residual(operator: Any, values: Tensor, rhs: Tensor, norms: Tensor) -> Tensor:
    """B / norms - A X, (n, c)."""
    return (operator @ values).neg_().addcdiv_(rhs, norms)


def reason_at_exit(residuals: Tensor, rtol: float, otherwise: Reason) -> Reason:
    """Converged if every true residual is small enough; else non-finite, or `otherwise`."""
    if bool((residuals <= rtol).all()):
        return Reason.CONVERGED
    return otherwise if bool(torch.isfinite(residuals).all()) else Reason.NON_FINITE


def not_solved(rhs: Tensor, reason: Reason, rtol: float) -> Solution:
    """The solution of a solver that could not begin: zero, whose residual is that of the right-hand side."""
    residuals = torch.where(torch.isfinite(rhs).all(dim=0), (rhs != 0).any(dim=0).to(rhs.dtype), torch.nan)
    return Solution(torch.zeros_like(rhs), residuals, 0, 0, reason, rtol)
