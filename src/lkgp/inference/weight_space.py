"""The weights of the modes of a truncated Kronecker eigenbasis, and the equations for them.

With the spectrum of each factor truncated far below the noise, K_k = Q_k diag(l_k) Q_k^T, F = Q_1 (x) ... (x) Q_d and
S^2 = l_1 (x) ... (x) l_d,

    A  =  P F S^2 F^T P^T + D,      H = I + S F^T P^T D^-1 P F S,      R x R, R = r_1 ... r_d
    A^-1 y  =  D^-1 (y - P F S h),  H h = S F^T P^T D^-1 y,            log det A = log det H + log det D.

A product with H takes two transforms and a multiplication by the precisions of the cells, which are zero in unobserved
cells. Systems with H are solved in coordinates whitened by C C^T ~ H: the diagonal of H, which is a good approximation
if cells are missing at random, and for other gaps also a dense block of H over the leading modes.

A residual r = b - H h in weights bounds the error of x = A^-1 y: |e|_A^2 = r^T (I - H^-1) r <= |r|^2. This norm has
the units of the log-likelihood: an error e changes y^T A^-1 y by |e|_A^2, and a prediction by at most |e|_A prior
standard deviations.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from lkgp.data.grid import PartialGrid
from lkgp.inference.mixed_precision import ASTRAY, MixedPrecisionEquations
from lkgp.linalg.eigenbasis import FactorBasis, product_roots
from lkgp.linalg.transform import Transform, cheapest_order
from lkgp.linalg.whitening import WhitenedSystem
from lkgp.linalg.whitening_choice import make_whitening
from lkgp.solvers.cg import descend
from lkgp.solvers.refinement import Correction

# Modes whose variance is below this fraction of the noise variance are damped in an initial guess: dividing by their
# small scale would magnify errors.
DROWNED = 0.01


class WeightSpace:
    """The modes of the factors, in the order of the axes that makes transforms cheapest.

    spectra: the eigenbasis of each factor, in the order of the grid
    noise: the diagonal of D, (n,)
    max_block: maximum number of leading modes in the dense block
    columns: approximate number of right-hand sides to be solved; with more of them, a larger block pays
    rtol: the relative error that solves aim at; the more accurate they are, the larger a block pays
    precision: precision of the products inside the solves; residuals are always checked in float64
    """

    def __init__(
        self,
        spectra: Sequence[FactorBasis],
        noise: Tensor,
        grid: PartialGrid,
        max_block: int,
        columns: int,
        rtol: float,
        precision: torch.dtype,
    ) -> None:
        self.grid, self.noise = grid, noise
        self.order = cheapest_order([(len(s.vectors), s.rank) for s in spectra])
        self.spectra = [spectra[k] for k in self.order]
        self.shape = tuple(grid.shape[k] for k in self.order)
        moved = torch.arange(grid.num_cells, device=noise.device).view(grid.shape).permute(self.order).flatten()
        place = torch.empty_like(moved).index_copy_(0, moved, torch.arange(len(moved), device=noise.device))
        self.index = place[grid.index]  # of the observed cells, in this order of the axes
        scale = product_roots(self.spectra)
        transform = Transform([spectrum.vectors.contiguous() for spectrum in self.spectra])
        precisions = scale.new_zeros(grid.num_cells).index_copy_(0, self.index, 1 / self.noise)
        self.whitening = make_whitening(transform, scale, precisions, self.shape, max_block, columns, rtol, precision)
        self.exact = WhitenedSystem(transform, self.whitening, scale, precisions)
        self.fast = self.exact if precision == torch.float64 else self.exact.to(precision)

    @property
    def size(self) -> int:
        """R, the number of weights."""
        return len(self.exact.scale)

    @property
    def lowest_eigenvalue(self) -> float:
        """A lower bound of the eigenvalues of C^-1 H C^-T, from H >= I.

        Over the modes of the block, C^-1 H C^-T is the identity. Over the others, with the block eliminated, it is at
        least s, the smallest 1 / H_ii, and without at most b = max_i (1 + S_i^2 max D^-1) / H_ii. If its off-diagonal
        part is X, |X|^2 <= b, the largest eigenvalue of the inverse is at most 1 + (1 + |X|^2) / s.
        """
        modes, diagonal = self.whitening.modes, self.whitening.diagonal.square()
        if len(modes) == self.size:
            return 1.0
        s = 1 / float(diagonal.index_fill(0, modes, 1.0).max())
        if not len(modes):
            return s
        most = (1 + self.exact.scale.square() * float(self.exact.precisions.max())) / diagonal
        b = float(most.index_fill(0, modes, 1.0).max())
        return s / (s + 1 + b)

    def scatter(self, values: Tensor) -> Tensor:
        """P^T X for X (n, c), as (c, N)."""
        return values.new_zeros(values.shape[1], self.grid.num_cells).index_copy_(1, self.index, values.mT)

    def to_weights(self, values: Tensor) -> Tensor:
        """S F^T P^T X for X (n, c), as (R, c)."""
        return self.exact.transform.down(self.scatter(values)).mul_(self.exact.scale[:, None])

    def to_cells(self, weights: Tensor) -> Tensor:
        """F S W for W (R, c), as (c, N)."""
        return self.exact.transform.up(weights * self.exact.scale[:, None])

    def to_observations(self, weights: Tensor) -> Tensor:
        """P F S W for W (R, c), as (n, c)."""
        return self.to_cells(weights).index_select(1, self.index).mT

    def weights_of(self, cells: Tensor) -> Tensor:
        """The weights (R, c) of functions (c, N) on the grid, with modes far below the noise damped."""
        moved = self.own_order(cells.double())
        scale = self.exact.scale[:, None]
        return self.exact.transform.down(moved).mul_(scale / (scale.square() + DROWNED * self.noise.mean()))

    def own_order(self, cells: Tensor) -> Tensor:
        """Permute functions (c, N) to the order of axes of this space."""
        if self.order == tuple(range(len(self.order))):
            return cells
        return cells.view(-1, *self.grid.shape).permute(0, *(k + 1 for k in self.order)).reshape(len(cells), -1)

    def grid_order(self, cells: Tensor) -> Tensor:
        """Permute functions (c, N) back to the order of axes of the grid."""
        if self.order == tuple(range(len(self.order))):
            return cells
        back = (self.order.index(k) + 1 for k in range(len(self.order)))
        return cells.view(-1, *self.shape).permute(0, *back).reshape(len(cells), -1)


class WeightEquations(MixedPrecisionEquations):
    """H h = S F^T P^T D^-1 B for B (n, c)."""

    def __init__(self, space: WeightSpace, rhs: Tensor) -> None:
        super().__init__(rhs, space.noise, space.exact, space.fast)
        self.space = space
        self.target = space.to_weights(rhs / self.noise)

    def begin(self, start: Tensor | None) -> Tensor:
        return torch.zeros_like(self.target) if start is None else self.space.weights_of(start)

    def residual(self, unknowns: Tensor) -> Tensor:
        residual, whitening = self.target - self.exact.latent(unknowns), self.exact.whitening
        if not len(whitening.modes):
            return residual
        # The residual of A^-1 B weights modes by their scale, which conjugate gradients do not. Given the others, the
        # leading modes can be solved for exactly with the block.
        step = torch.cholesky_solve(residual[whitening.modes], whitening.block)
        unknowns.index_add_(0, whitening.modes, step)
        return self.target - self.exact.latent(unknowns)

    def size(self, residual: Tensor) -> Tensor:
        return torch.linalg.vector_norm(residual, dim=0)

    def true_residual(self, residual: Tensor) -> Tensor:
        # b - A x = -P F S (residual in weights)
        return torch.linalg.vector_norm(self.space.to_observations(residual), dim=0) / self.norms

    def solved(self, unknowns: Tensor, residual: Tensor) -> tuple[Tensor, Tensor]:
        values = (self.rhs - self.space.to_observations(unknowns)) / self.noise
        return values, self.space.to_observations(residual).neg_()

    def energy(self, unknowns: Tensor, residual: Tensor) -> Tensor:
        # an upper bound, with an error of second order in the residual
        return (self.plain - (unknowns * (self.target + residual)).sum(dim=0)).clamp(min=1e-300)

    def correction(self, residual: Tensor, excess: Tensor, budget: int) -> Correction:
        system, whitening = self.fast, self.exact.whitening
        whitened = whitening.solve(residual)
        sizes = torch.linalg.vector_norm(whitened, dim=0).clamp(min=1e-300)
        carried = (whitened / sizes).to(system.scale.dtype)
        step = torch.zeros_like(carried)
        columns = torch.arange(residual.shape[1], device=residual.device)
        goal, rounds = self.wanted(excess), self.rounds(budget)
        products, iterations, _ = descend(system, None, step, carried, columns, goal, rounds, astray=ASTRAY)
        return Correction(whitening.solve_t(step.double() * sizes), iterations, products)

    def answer(self, unknowns: Tensor) -> tuple[Tensor, Tensor]:
        cells = self.space.to_cells(unknowns)
        observed = cells.index_select(1, self.space.index).mT
        return (self.rhs - observed) / self.noise, self.space.grid_order(cells)
