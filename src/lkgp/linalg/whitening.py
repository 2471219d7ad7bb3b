"""Coordinates in which H = I + S F^T P^T D^-1 P F S is nearly the identity.

If cells are missing at random, H is nearly diagonal, and scaling by its diagonal is enough. For other gaps, the block
of H over the leading modes is factorised as well; the remainder is bounded by the first omitted mode, whatever the
gaps. `whitening_choice` decides between them.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from lkgp.linalg.transform import Transform


@dataclass(frozen=True, eq=False)
class Whitening:
    """C with C C^T ~ H: triangular over the modes of the block, diagonal over the others.

    modes: (k,); block: lower triangular, (k, k); diagonal: (R,), unused for modes in the block
    why: why there is a block, or none, in words
    """

    modes: Tensor
    block: Tensor
    diagonal: Tensor
    why: str = ""

    def __str__(self) -> str:
        modes, all_modes = len(self.modes), len(self.diagonal)
        which = f"all {all_modes} modes" if modes == all_modes else f"the {modes} leading ones of {all_modes} modes"
        used = f"by a dense block over {which}" if modes else f"by the diagonal alone, for {all_modes} modes"
        return f"solves are preconditioned {used}" + (f": {self.why}" if self.why else "")

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
        return Whitening(self.modes, self.block.to(dtype), self.diagonal.to(dtype), self.why)


@dataclass(frozen=True, eq=False)
class WhitenedSystem:
    """C^-1 H C^-T in one precision, the matrix for conjugate gradients.

    scale: S, (R,); precisions: D^-1 on the whole grid, zero in unobserved cells, (N,)
    """

    transform: Transform
    whitening: Whitening
    scale: Tensor
    precisions: Tensor

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.scale), len(self.scale)

    def latent(self, weights: Tensor) -> Tensor:
        """H W for W (R, c)."""
        cells = self.transform.up(weights * self.scale[:, None]).mul_(self.precisions)
        return self.transform.down(cells).mul_(self.scale[:, None]).add_(weights)

    def __matmul__(self, weights: Tensor) -> Tensor:
        return self.whitening.solve(self.latent(self.whitening.solve_t(weights)))

    def to(self, dtype: torch.dtype) -> "WhitenedSystem":
        transform, whitening = self.transform.to(dtype), self.whitening.to(dtype)
        return WhitenedSystem(transform, whitening, self.scale.to(dtype), self.precisions.to(dtype))
