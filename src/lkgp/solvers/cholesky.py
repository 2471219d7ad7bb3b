"""Dense Cholesky, for small systems and as a reference for the other solvers."""

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
class Cholesky(Settings):
    """Dense Cholesky factorisation, followed by one step of iterative refinement.

    rtol: the relative residual that counts as converged
    """

    rtol: float = 1e-6

    def __post_init__(self) -> None:
        check_positive(self, rtol=self.rtol)

    def solve(self, operator: Any, rhs: Tensor, *, preconditioner: Any = None, x0: Tensor | None = None) -> Solution:
        norms = column_norms(rhs)
        dense = operator.to_dense()
        if not (bool(torch.isfinite(dense).all()) and bool(torch.isfinite(norms).all())):
            return not_solved(rhs, Reason.NON_FINITE, self.rtol)
        factor, info = torch.linalg.cholesky_ex(dense)
        if int(info) != 0:
            return not_solved(rhs, Reason.NOT_POSITIVE_DEFINITE, self.rtol)
        x = torch.cholesky_solve(rhs / norms, factor)
        x += torch.cholesky_solve(scaled_residual(operator, x, rhs, norms), factor)
        residuals = torch.linalg.vector_norm(scaled_residual(operator, x, rhs, norms), dim=0)
        reason = reason_at_exit(residuals, self.rtol, Reason.STAGNATED)
        return Solution(x.mul_(norms), residuals, 1, 2 * rhs.shape[1], reason, self.rtol)
