"""Alternating projections: exact solves of one block of unknowns after another."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from lkgp.settings import Settings, check_positive
from lkgp.solvers.base import Reason, Solution, column_norms, not_solved
from lkgp.solvers.refinement import Correction, LinearEquations, refine


@dataclass(frozen=True)
class AlternatingProjections(Settings):
    """Greedy block Gauss-Seidel: each iteration solves the block of cells with the largest residual.

    rtol: true relative residual that every column must reach
    block_size: cells per block; the rows of a block are formed, (block_size, n)
    max_iterations: maximum number of block solves
    """

    rtol: float = 1e-6
    block_size: int = 256
    max_iterations: int = 20000

    def __post_init__(self) -> None:
        check_positive(self, rtol=self.rtol, block_size=self.block_size, max_iterations=self.max_iterations)

    def solve(self, operator: Any, rhs: Tensor, *, preconditioner: Any = None, x0: Tensor | None = None) -> Solution:
        norms = column_norms(rhs)
        if not bool(torch.isfinite(norms).all()):
            return not_solved(rhs, Reason.NON_FINITE, self.rtol)
        equations = BlockEquations(operator, rhs, norms, self.rtol, self.block_size)
        return equations.solution(refine(equations, equations.begin(x0), self.max_iterations))


class BlockEquations(LinearEquations):
    """A X = B, corrected block by block; the Cholesky factors of the blocks are cached."""

    def __init__(self, operator: Any, rhs: Tensor, norms: Tensor, rtol: float, block_size: int) -> None:
        super().__init__(operator, rhs, norms, rtol)
        cells = torch.arange(len(rhs), device=rhs.device)
        self.blocks, self.label = cells.split(block_size), cells // block_size
        self.factors: dict[int, Tensor] = {}

    def correction(self, residual: Tensor, excess: Tensor, budget: int) -> Correction:
        (n, columns), products, iterations = residual.shape, 0, 0
        step = torch.zeros_like(residual)
        norm = torch.linalg.vector_norm(residual, dim=0)
        while iterations < budget and bool((norm > self.rtol).any()) and bool(torch.isfinite(norm).all()):
            # The block with the largest residual, each unfinished column weighted by the inverse of its norm.
            weight = torch.where(norm > self.rtol, 1 / norm, torch.zeros_like(norm))
            gain = torch.zeros(len(self.blocks), dtype=residual.dtype, device=residual.device)
            gain.index_add_(0, self.label, (residual * weight).square().sum(dim=1))
            chosen = int(gain.argmax())
            cells = self.blocks[chosen]
            rows = self.operator.rows(cells)
            if chosen not in self.factors:
                factor, info = torch.linalg.cholesky_ex(rows[:, cells])
                if int(info) != 0:
                    return Correction(step, iterations, products, Reason.NOT_POSITIVE_DEFINITE)
                self.factors[chosen] = factor
            # x_B += A_BB^-1 r_B, and the residual changes by -A[:, B] times that.
            change = torch.cholesky_solve(residual[cells], self.factors[chosen])
            step[cells] += change
            residual -= rows.mT @ change
            iterations += 1
            # The work for one block is counted as a fraction of a product.
            products += -(-columns * len(cells) // n)
            norm = torch.linalg.vector_norm(residual, dim=0)
        return Correction(step, iterations, products)
