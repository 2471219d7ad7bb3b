"""The interface of a solver, its return value, and how it reports failure."""

from dataclasses import dataclass
from enum import Enum
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor

from lkgp.errors import InputError


class Reason(Enum):
    """Why a solve stopped. The value is the message for users."""

    CONVERGED = "converged"
    ITERATION_LIMIT = (
        "the iteration limit was reached; raise max_iterations, loosen rtol, or use a stronger preconditioner"
    )
    STAGNATED = "rounding errors stopped the progress; raise the noise, or lower the kernels' output scales"
    NOT_POSITIVE_DEFINITE = "the matrix is not positive definite; raise the noise, or fix the kernels"
    NON_FINITE = "a NaN or infinite value appeared; check the hyperparameters"


@dataclass(frozen=True, eq=False)
class Solution:
    """The solution of A X = B.

    values: X, (n, c)
    residuals: (c,), |b - A x| / |b| of every column, recomputed from X at exit (0 where b = 0 and x = 0)
    iterations: number of iterations of the slowest column
    products: number of products of A with one column, including those that check the residuals
    reason: why the worst column stopped
    rtol: the requested relative residual
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

    @property
    def why(self) -> str:
        """Why the worst column stopped, with advice that fits the precision."""
        if self.reason is Reason.STAGNATED and self.values.dtype != torch.float64:
            return "rounding errors stopped the progress; use float64"
        return self.reason.value

    def __str__(self) -> str:
        worst = float(self.residuals.max()) if len(self.residuals) else 0.0
        return (
            f"{self.why} ({self.iterations} iterations, {self.products} products, "
            f"worst relative residual {worst:.1e}, target {self.rtol:.1e})"
        )


@runtime_checkable
class Solver(Protocol):
    """A settings record with one method, `solve`.

    operator: anything symmetric positive definite with `@` on (n, c); some solvers also need `rows(index)` (b, n),
        `diagonal()` (n,) or `to_dense()` (n, n)
    rhs: B, (n, c)
    preconditioner: anything with `solve(R)`, an approximation of A^-1 R for R (n, c); not every solver uses one
    x0: initial guess, (n, c); zero by default
    """

    @property
    def rtol(self) -> float: ...

    def solve(
        self, operator: Any, rhs: Tensor, *, preconditioner: Any = None, x0: Tensor | None = None
    ) -> Solution: ...


def solve(
    operator: Any, rhs: Tensor, solver: Solver, *, preconditioner: Any = None, x0: Tensor | None = None
) -> Solution:
    """Solve A X = B with any solver; B may be (n,) or (n, c), and X has the same shape."""
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
    """The norms (c,) of the columns of (n, c), with 1 for columns of zeros.

    Dividing by the largest entry first keeps the squares of tiny or huge data from underflowing or overflowing.
    """
    largest = rhs.abs().amax(dim=0)
    largest = torch.where(largest > 0, largest, torch.ones_like(largest))
    norms = torch.linalg.vector_norm(rhs / largest, dim=0)
    return torch.where(norms > 0, norms, torch.ones_like(norms)) * largest


def scaled_residual(operator: Any, values: Tensor, rhs: Tensor, norms: Tensor) -> Tensor:
    """B / norms - A X, (n, c)."""
    return (operator @ values).neg_().addcdiv_(rhs, norms)


def reason_at_exit(residuals: Tensor, rtol: float, otherwise: Reason) -> Reason:
    """Converged if every true residual is small enough; otherwise non-finite, or `otherwise`."""
    if bool((residuals <= rtol).all()):
        return Reason.CONVERGED
    return otherwise if bool(torch.isfinite(residuals).all()) else Reason.NON_FINITE


def not_solved(rhs: Tensor, reason: Reason, rtol: float) -> Solution:
    """The result of a solver that could not start: zero, with the right-hand side as its residual."""
    residuals = torch.where(torch.isfinite(rhs).all(dim=0), (rhs != 0).any(dim=0).to(rhs.dtype), torch.nan)
    return Solution(torch.zeros_like(rhs), residuals, 0, 0, reason, rtol)
