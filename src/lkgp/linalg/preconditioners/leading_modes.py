"""The leading modes of the complete grid, with their exact Gram matrix over the observed cells.

    M  =  P F S^2 F^T P^T + D,      M^-1 = D^-1 - D^-1 P F S H^-1 S F^T P^T D^-1,      H = I + S F^T P^T D^-1 P F S.

M omits only positive semidefinite parts of A, so M <= A. The omitted part of K is bounded by the first omitted
eigenvalue, so all eigenvalues of M^-1 A lie between 1 and 1 + (that eigenvalue) / (smallest noise), whatever the gaps.
"""

from dataclasses import dataclass
from math import prod

import torch
from torch import Tensor

from lkgp.data.grid import PartialGrid
from lkgp.linalg.eigenbasis import FactorBasis, product_roots
from lkgp.linalg.kronecker import LatentKronecker
from lkgp.linalg.leading_modes import cheapest_block, masked_gram
from lkgp.linalg.preconditioners.base import Preconditioner, PreconditionerSettings
from lkgp.linalg.transform import Transform
from lkgp.settings import check_positive

# Maximum number of modes per factor: with more, the transforms cost more than the iterations that they save.
MOST_MODES = 1500


class LeadingModesInverse(Preconditioner):
    """M^-1, in float64: in float32 the rounding of the leading modes would swamp the others.

    bases: the leading eigenpairs of each factor; size: number of modes of their product to use
    roughly: the diagonal of H, (R,), as if the gaps were spread evenly; the largest entries are the leading modes
    """

    def __init__(self, bases: list[FactorBasis], noise: Tensor, grid: PartialGrid, size: int, roughly: Tensor) -> None:
        self.grid, self.noise = grid, noise
        self.transform = Transform([basis.vectors.contiguous() for basis in bases])
        self.scale = product_roots(bases)
        self.mode_variances = self.scale.square()
        precisions = noise.new_zeros(grid.num_cells).index_copy_(0, grid.index, 1 / noise)
        self.modes = torch.topk(roughly, size).indices.sort().values
        gram = masked_gram(self.transform.bases, self.scale, precisions, grid.shape, self.modes)
        self.block = torch.linalg.cholesky(gram)
        self.logdet = 2 * self.block.diagonal().log().sum() + self.noise.log().sum()
        self.widths = (len(self.modes), len(noise))

    def solve(self, rhs: Tensor) -> Tensor:
        z = rhs.double() / self.noise[:, None]
        weights = torch.cholesky_solve(self.to_modes(z), self.block)
        return z.sub_(self.from_modes(weights).div_(self.noise[:, None])).to(rhs.dtype)

    def root(self, weights: Tensor) -> Tensor:
        # G = [P F S, D^1/2]
        top, rest = weights.split(self.widths)
        return self.from_modes(top) + self.noise.sqrt()[:, None] * rest

    def to_modes(self, values: Tensor) -> Tensor:
        """S F^T P^T X for X (n, c), as (k, c)."""
        return self.transform.down(self.grid.scatter(values).mT)[self.modes].mul_(self.scale[self.modes, None])

    def from_modes(self, weights: Tensor) -> Tensor:
        """P F S W for W (k, c), as (n, c)."""
        whole = weights.new_zeros(len(self.scale), weights.shape[1])
        whole.index_copy_(0, self.modes, weights * self.scale[self.modes, None])
        return self.transform.up(whole).index_select(1, self.grid.index).mT


@dataclass(frozen=True)
class LeadingModes(PreconditionerSettings):
    """The leading eigenpairs of K on the complete grid, restricted to the observed cells.

    rank: how many to use; None chooses the number that minimises the total cost of building and solving
    max_rank: the maximum number if `rank` is None
    """

    rank: int | None = None
    max_rank: int = 8000

    def __post_init__(self) -> None:
        check_positive(self, max_rank=self.max_rank, **({} if self.rank is None else {"rank": self.rank}))

    def build(
        self, operator: LatentKronecker, *, columns: int = 20, product: float | None = None
    ) -> LeadingModesInverse:
        grid, noise = operator.grid, operator.noise_diagonal().double()
        # Only the first of several terms is used: the omitted part of A is still positive semidefinite.
        traces = [float(factor.entries_diagonal().double().sum()) for factor in operator.factors]
        bases = []
        for k, factor in enumerate(operator.factors):
            # Modes far below the noise, even when multiplied by the traces of the other factors, do not help.
            threshold = float(noise.min()) / max(prod(traces[:k] + traces[k + 1 :]), 1e-300)
            bases.append(factor.leading(MOST_MODES, threshold))
        precision = float((1 / noise).sum()) / grid.num_cells
        roughly = 1 + product_roots(bases).square() * precision
        size = min(self.rank, len(roughly)) if self.rank is not None else None
        if size is None:
            cost = float(grid.num_cells * sum(grid.shape)) if product is None else product
            descending = roughly.sort(descending=True).values
            ranks = [basis.rank for basis in bases]
            size = cheapest_block(descending, cost, grid.shape, ranks, self.max_rank, columns)
        return LeadingModesInverse(bases, noise, grid, size, roughly)
