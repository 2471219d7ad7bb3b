"""Alternating projections: exact solves of one block of unknowns after another."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from lkgp.solvers.base import (
    Reason,
    Solution,
    check_settings,
    column_norms,
    not_solved,
    reason_at_exit,
    scaled_residual,
)


@dataclass(frozen=True)
class AlternatingProjections:
    """Greedy block Gauss-Seidel: each iteration solves the block of cells with the largest residual.

    rtol: relative residual that every column must reach, by the true residual
    block_size: cells a block; its rows are formed, (block_size, n)
    max_iterations: blocks at the most
    """

    rtol: float = 1e-6
    block_size: int = 256
    max_iterations: int = 20000

    def __post_init__(self) -> None:
        check_settings(self, rtol=self.rtol, block_size=self.block_size, max_iterations=self.max_iterations)

    def solve(self, operator: Any, rhs: Tensor, *, preconditioner: Any = None, x0: Tensor | None = None) -> Solution:
        norms = column_norms(rhs)
        if not bool(torch.isfinite(norms).all()):
            return not_solved(rhs, Reason.NON_FINITE, self.rtol)
        n, columns = rhs.shape
        x = torch.zeros_like(rhs) if x0 is None else x0 / norms
        residual = scaled_residual(operator, x, rhs, norms)
        products, iterations, failure = columns, 0, Reason.ITERATION_LIMIT
        blocks = torch.arange(n, device=rhs.device).split(self.block_size)
        label = torch.arange(n, device=rhs.device) // self.block_size
        factors: dict[int, Tensor] = {}
        norm = torch.linalg.vector_norm(residual, dim=0)
        checked = norm
        while iterations < self.max_iterations and bool((norm > self.rtol).any()):
            # The block with the largest residual, each column counted in units of what it still has to gain.
            weight = torch.where(norm > self.rtol, 1 / norm, torch.zeros_like(norm))
            gain = torch.zeros(len(blocks), dtype=rhs.dtype, device=rhs.device)
            gain.index_add_(0, label, (residual * weight).square().sum(dim=1))
            chosen = int(gain.argmax())
            cells = blocks[chosen]
            rows = operator.rows(cells)
            if chosen not in factors:
                factor, info = torch.linalg.cholesky_ex(rows[:, cells])
                if int(info) != 0:
                    failure = Reason.NOT_POSITIVE_DEFINITE
                    break
                factors[chosen] = factor
            # x_B += A_BB^-1 r_B, and the residual changes by A[:, B] times that.
            change = torch.cholesky_solve(residual[cells], factors[chosen])
            x[cells] += change
            residual -= rows.mT @ change
            iterations += 1
            # The work of one block is its share of a product.
            products += -(-columns * len(cells) // n)
            norm = torch.linalg.vector_norm(residual, dim=0)
            if not bool(torch.isfinite(norm).all()):
                break
            if bool((norm <= self.rtol).all()):
                residual = scaled_residual(operator, x, rhs, norms)
                norm = torch.linalg.vector_norm(residual, dim=0)
                products += columns
                if bool((norm > self.rtol).any()) and bool((norm > 0.5 * checked).any()):
                    failure = Reason.STAGNATED
                    break
                checked = norm
        residuals = torch.linalg.vector_norm(scaled_residual(operator, x, rhs, norms), dim=0)
        products += columns
        return Solution(
            x.mul_(norms), residuals, iterations, products, reason_at_exit(residuals, self.rtol, failure), self.rtol
        )
