"""Coordinates in which H = I + S F^T P^T D^-1 P F S is nearly the identity.

If cells are missing at random, H is nearly diagonal, and scaling by its diagonal is enough. For other gaps, the block
of H over the leading modes is factorised as well; the remainder is bounded by the first omitted mode, whatever the
gaps.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from lkgp.linalg.leading_modes import cheapest_block, masked_gram
from lkgp.linalg.transform import Transform

# A block is used if TRIAL_MODES leading modes, whitened by the diagonal alone, have a condition number above
# TRIAL_CONDITION. With random gaps the condition number is about two; on learning curves a block pays from about ten.
TRIAL_MODES, TRIAL_CONDITION = 300, 10.0


@dataclass(frozen=True, eq=False)
class Whitening:
    """C with C C^T ~ H: triangular over the modes of the block, diagonal over the others.

    modes: (k,); block: lower triangular, (k, k); diagonal: (R,), unused for modes in the block
    """

    modes: Tensor
    block: Tensor
    diagonal: Tensor

    @property
    def logdet(self) -> float:
        """log det C C^T, computed from the rounded entries stored here."""
        rest = self.diagonal.double().log().index_fill(0, self.modes, 0.0).sum()
        return 2 * float(rest + self.block.diagonal().double().log().sum())

    def solve(self, weights: Tensor) -> Tensor:
        """C^-1 W for W (R, c)."""
        top = torch.linalg.solve_triangular(self.block, weights[self.modes], upper=False)
        return (weights / self.diagonal[:, None]).index_copy_(0, self.modes, top)

    def solve_t(self, weights: Tensor) -> Tensor:
        """C^-T W for W (R, c)."""
        top = torch.linalg.solve_triangular(self.block.mT, weights[self.modes], upper=True)
        return (weights / self.diagonal[:, None]).index_copy_(0, self.modes, top)

    def to(self, dtype: torch.dtype) -> "Whitening":
        return Whitening(self.modes, self.block.to(dtype), self.diagonal.to(dtype))


def make_whitening(
    transform: Transform, scale: Tensor, precisions: Tensor, shape: tuple[int, ...], max_block: int, columns: int
) -> Whitening:
    """Use the diagonal of H, and a dense block over the leading modes if the diagonal alone is a poor approximation.

    scale: S, (R,); precisions: D^-1 on the grid, (N,); columns: approximate number of right-hand sides to be solved
    """
    # diag H = 1 + S^2 (Q_1^2 (x) ... (x) Q_d^2)^T D^-1
    squares = Transform([q.square() for q in transform.bases])
    diagonal = 1 + scale.square() * squares.down(precisions[None])[:, 0]
    root = diagonal.sqrt()
    trial, ranks = leading_rectangle(transform.bases, scale.device), [q.shape[1] for q in transform.bases]
    whitened = masked_gram(transform.bases, scale, precisions, shape, trial) / root[trial][:, None] / root[trial]
    eigenvalues = torch.linalg.eigvalsh(whitened)
    size = 0
    if float(eigenvalues[-1] / eigenvalues[0].clamp(min=1e-300)) > TRIAL_CONDITION:
        descending = diagonal.sort(descending=True).values
        size = cheapest_block(descending, transform.multiplications, shape, ranks, max_block, columns)
    modes = torch.topk(diagonal, size).indices.sort().values
    block = torch.linalg.cholesky(masked_gram(transform.bases, scale, precisions, shape, modes))
    return Whitening(modes, block, root)


def leading_rectangle(bases: list[Tensor], device: torch.device) -> Tensor:
    """The indices of about TRIAL_MODES modes: all combinations of the leading modes of each factor."""
    each = max(1, int(TRIAL_MODES ** (1 / len(bases))))
    modes = torch.zeros(1, dtype=torch.long, device=device)
    for q in bases:
        rank = q.shape[1]  # eigenvalues ascend
        modes = (modes[:, None] * rank + torch.arange(max(0, rank - each), rank, device=device)).flatten()
    return modes
