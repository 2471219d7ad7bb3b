"""Inference in the space of the observations, where the factors have too many modes for an eigenbasis to pay.

A = P (K_1 (x) ... (x) K_d) P^T + D is used as it is: by Kronecker products on the whole grid, or, where so many cells are missing that
padding them costs more, as one dense matrix. Conjugate gradients are preconditioned with the leading modes F, S of the factors,

    M  =  P F S^2 F^T P^T + D,      M^-1 = D^-1 - D^-1 P F S H^-1 S F^T P^T D^-1,      H = I + S F^T P^T D^-1 P F S.

M leaves out positive semidefinite parts of A only, so M <= A, and a residual r = b - A x bounds the error: |e|_A^2 = r^T A^-1 r <=
r^T M^-1 r.
"""

import math
from math import prod

import torch
from torch import Tensor

from lkgp.data.grid import PartialGrid
from lkgp.linalg import Factor, LatentKronecker, factor_dense, kronecker_matmul
from lkgp.linalg.eigenbasis import FactorBasis, product_roots
from lkgp.linalg.quadrature import trace_of_log
from lkgp.linalg.whitening import Transform, cheapest_block, masked_gram
from lkgp.solvers.cg import column_dots, descend
from lkgp.solvers.refinement import ASTRAY, FLOAT32_RTOL, Equations, LatentSystem

# Modes of one factor in the preconditioner, at the most.
MOST_MODES = 1500
# What is added to the diagonal of a factor before its Cholesky factorisation, relative to what the noise allows.
JITTER = 1e-3


class LeadingModesInverse:
    """M^-1, in float64: in float32 the leading modes would drown what is left of the others."""

    def __init__(
        self, bases: list[FactorBasis], noise: Tensor, grid: PartialGrid, product: float, max_block: int, columns: int
    ) -> None:
        self.grid, self.noise = grid, noise
        self.transform = Transform([basis.vectors.contiguous() for basis in bases])
        self.scale = scale = product_roots(bases)
        precisions = noise.new_zeros(grid.num_cells).index_copy_(0, grid.index, 1 / noise)
        # As if the gaps were spread evenly: only the size of the block depends on it.
        roughly = 1 + scale.square() * float(precisions.mean())
        ranks = [basis.rank for basis in bases]
        size = cheapest_block(roughly.sort(descending=True).values, product, grid.shape, ranks, max_block, columns)
        self.modes = torch.topk(roughly, size).indices.sort().values
        self.block = torch.linalg.cholesky(masked_gram(self.transform.bases, scale, precisions, grid.shape, self.modes))

    @property
    def logdet(self) -> Tensor:
        """log det M."""
        return 2 * self.block.diagonal().log().sum() + self.noise.log().sum()

    def solve(self, rhs: Tensor) -> Tensor:
        """M^-1 R for R (n, c), in the dtype of R."""
        z = rhs.double() / self.noise[:, None]
        weights = torch.cholesky_solve(self.to_modes(z), self.block)
        return z.sub_(self.from_modes(weights).div_(self.noise[:, None])).to(rhs.dtype)

    def to_modes(self, values: Tensor) -> Tensor:
        """S F^T P^T X for X (n, c), as (k, c)."""
        return self.transform.down(self.grid.scatter(values).mT)[self.modes].mul_(self.scale[self.modes, None])

    def from_modes(self, weights: Tensor) -> Tensor:
        """P F S W for W (k, c), as (n, c)."""
        whole = weights.new_zeros(len(self.scale), weights.shape[1])
        whole.index_copy_(0, self.modes, weights * self.scale[self.modes, None])
        return self.transform.up(whole).index_select(1, self.grid.index).mT


class CellEquations(Equations):
    """A x = B for B (n, c)."""

    def __init__(self, system: "ObservedSystem", rhs: Tensor) -> None:
        super().__init__(rhs, system.noise, system.exact, system.fast)
        self.grid, self.inverse = system.grid, system.inverse

    def begin(self, start: Tensor | None) -> Tensor:
        # x = D^-1 (b - f) where f is observed
        return (
            torch.zeros_like(self.rhs)
            if start is None
            else (self.rhs - self.grid.gather(start.double().mT)) / self.noise
        )

    def polished(self, unknowns: Tensor) -> Tensor:
        return self.rhs - self.exact @ unknowns

    def error_bound(self, residual: Tensor) -> Tensor:
        return column_dots(residual, self.inverse.solve(residual)).clamp(min=0).sqrt()

    def true_residual(self, residual: Tensor) -> Tensor:
        return torch.linalg.vector_norm(residual, dim=0) / self.norms

    def energy(self, unknowns: Tensor, residual: Tensor) -> Tensor:
        return (unknowns * (self.rhs + residual)).sum(dim=0).clamp(min=1e-300)

    def correction(self, residual: Tensor, rtol: float, budget: int) -> tuple[Tensor, int, int]:
        sizes = self.error_bound(residual).clamp(min=1e-300)
        carried = (residual / sizes).to(self.fast.dtype)
        step = torch.zeros_like(carried)
        everything = torch.arange(residual.shape[1], device=residual.device)
        goal = max(rtol, FLOAT32_RTOL)
        products, iterations, _ = descend(
            self.fast, self.inverse, step, carried, everything, goal, budget, energy=True, astray=ASTRAY
        )
        return step.double() * sizes, iterations, products

    def answer(self, unknowns: Tensor) -> tuple[Tensor, Tensor]:
        return unknowns, self.grid.scatter(self.rhs - self.noise * unknowns).mT


def shifted_cholesky(factor: Tensor, jitter: float) -> Tensor:
    """The Cholesky factor of K_k + jitter I, or of ten times the jitter if kernel values were rounded so coarsely, and so on."""
    while True:
        shifted = factor.clone()
        shifted.diagonal().add_(jitter)
        root, failed = torch.linalg.cholesky_ex(shifted)
        if not int(failed):
            return root
        if not math.isfinite(jitter) or jitter > float(factor.diagonal().max()):
            raise torch.linalg.LinAlgError("a factor is not positive definite")
        jitter *= 10


class ObservedSystem(LatentSystem):
    """A, for one set of hyperparameters, as it acts on the observations.

    factors: K_k, (n_k, n_k)
    noise: the diagonal of D, (n,)
    max_block, columns, precision: as for `SpectralSystem`
    dense: whether products use one n x n matrix instead of the factors
    """

    complete = False
    truncation = 0.0

    def __init__(
        self,
        factors: tuple[Factor, ...],
        noise: Tensor,
        grid: PartialGrid,
        max_block: int = 8000,
        columns: int = 20,
        precision: torch.dtype = torch.float32,
        dense: bool = False,
    ) -> None:
        self.grid, self.noise = grid, noise.double()
        self.factors = [factor_dense(factor).double() for factor in factors]
        self.exact = LatentKronecker(*self.factors, self.noise, grid=grid)
        rough = LatentKronecker(*(factor.to(precision) for factor in self.factors), self.noise.to(precision), grid=grid)
        self.fast = rough.rows(torch.arange(len(noise), device=noise.device)) if dense else rough
        n, cells = len(noise), grid.num_cells
        product = float(n * n if dense else cells * sum(grid.shape))
        # Modes that lie far below the noise, together with all of the other factors, do not help.
        largest = [float(factor.diagonal().sum()) for factor in self.factors]
        bases = []
        for k, factor in enumerate(self.factors):
            threshold = float(self.noise.min()) / max(prod(largest[:k] + largest[k + 1 :]), 1e-300)
            bases.append(FactorBasis.leading(factor, MOST_MODES, threshold))
        self.inverse = LeadingModesInverse(bases, self.noise, grid, product, max_block, columns)

    @property
    def known_logdet(self) -> Tensor:
        """log det M."""
        return self.inverse.logdet

    @property
    def spread(self) -> float:
        """The size of a posterior deviation of f over the observed cells, about, as far as the leading modes tell."""
        share, square = len(self.noise) / self.grid.num_cells, self.inverse.scale.square()
        # The mean of the precisions: cells with a huge noise tell nothing, and must not hide what the others tell.
        return math.sqrt(float((square / (1 + share * square * (1 / self.noise).mean())).sum()) * share)

    @property
    def block_size(self) -> int:
        return len(self.inverse.modes)

    def equations(self, rhs: Tensor) -> CellEquations:
        return CellEquations(self, rhs)

    def remaining_logdet(
        self, num_probes: int, steps: int, seed: int, max_memory: float | None = None
    ) -> tuple[Tensor, float]:
        """log det A - log det M and its standard error: tr log(G^-1 A G^-T) by quadrature, with M = G G^T."""
        generator = torch.Generator(self.noise.device).manual_seed(seed)

        def normal(rows: int) -> Tensor:
            return torch.randn(rows, num_probes, generator=generator, dtype=torch.float64, device=self.noise.device)

        # Probes G w have covariance M. Lanczos in the inner product of M^-1 is that of G^-1 A G^-T, and needs no G.
        probes = self.inverse.from_modes(normal(self.block_size)) + self.noise.sqrt()[:, None] * normal(len(self.noise))
        return trace_of_log(lambda x: self.exact @ self.inverse.solve(x), probes, steps, self.inverse.solve, max_memory)

    def prior_data(self, normals: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        """Draws of the data from the prior, (n, s), and the functions at every cell, (s, N), for normals (N, s) and noise (n, s)."""
        roots = []
        for k, factor in enumerate(self.factors):
            others = prod(float(other.diagonal().max()) for j, other in enumerate(self.factors) if j != k)
            # What is added to the prior variance is far below the noise.
            jitter = max(
                JITTER * float(self.noise.min()) / max(others, 1e-300) / len(self.factors),
                1e-14 * float(factor.diagonal().max()),
            )
            roots.append(shifted_cholesky(factor, jitter))
        cells = kronecker_matmul(tuple(roots), normals)
        return cells.index_select(1, self.grid.index).mT + self.noise.sqrt()[:, None] * noise, cells

    def factor_weights(self, x: Tensor, shares: list[float]) -> list[Tensor]:
        """G_k with <G_k, dK_k> = sum_j share_j x_j^T P (dK_k (x) the other factors) P^T x_j, d tensors (n_k, n_k).

        x: (n, c); shares: c numbers
        """
        cells = self.grid.scatter(x).mT.reshape(-1, *self.grid.shape)
        scaled = cells * torch.tensor(shares, dtype=x.dtype, device=x.device).view(-1, *[1] * len(self.grid.shape))
        weights = []
        for k in range(len(self.factors)):
            part = cells
            for other, factor in enumerate(self.factors):
                if other != k:
                    part = torch.tensordot(part, factor, dims=([other + 1], [0])).movedim(-1, other + 1)
            left, right = (a.movedim(k + 1, 0).reshape(self.grid.shape[k], -1) for a in (part, scaled))
            weights.append(left @ right.mT)
        return weights
