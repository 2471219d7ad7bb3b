"""Inference in the Kronecker eigenbasis: few weights instead of many observations.

With every factor's spectrum cut far below the noise, K_k = Q_k diag(l_k) Q_k^T, F = Q_1 (x) ... (x) Q_d and S^2 = l_1 (x) ... (x) l_d,

    A  =  P F S^2 F^T P^T + D,      H = I + S F^T P^T D^-1 P F S,      R x R, R = r_1 ... r_d
    A^-1 y  =  D^-1 (y - P F S h),  H h = S F^T P^T D^-1 y,            log det A = log det H + log det D.

A product with H is two transforms and one product with the cells' precisions, which are zero where nothing was observed. H is solved
for in coordinates that are whitened by C C^T ~ H: the diagonal of H, which is nearly all of it where cells are missing at random; and
for other gaps a dense block of H itself over the leading modes.

With a residual r = b - H h in weights, the error of x = A^-1 y is known to be small: |e|_A^2 = r^T (I - H^-1) r <= |r|^2. In that norm
an error counts in units of the log-likelihood: it changes y^T A^-1 y by |e|_A^2, and a prediction by at most |e|_A prior standard
deviations.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from lkgp.data.grid import PartialGrid
from lkgp.linalg import Factor, factor_dense
from lkgp.linalg.eigenbasis import FactorBasis, largest_tails, product_roots
from lkgp.linalg.quadrature import random_signs, trace_of_log
from lkgp.linalg.whitening import Transform, Whitening, cheapest_order, make_whitening
from lkgp.solvers.cg import descend
from lkgp.solvers.refinement import ASTRAY, FLOAT32_RTOL, Equations, LatentSystem

# Modes with less than this share of the noise's variance are not started from: dividing by their size would magnify errors.
DROWNED = 0.01
# Where nothing is missing, all is exact, and little is left out: a longer spectrum costs next to nothing there.
COMPLETE_TOLERANCE = 1e-11


@dataclass(frozen=True, eq=False)
class WhitenedSystem:
    """C^-1 H C^-T in one precision: what conjugate gradients work on.

    scale: S, (R,); precisions: D^-1 on the whole grid, zero where nothing was observed, (N,)
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
        return WhitenedSystem(
            self.transform.to(dtype), self.whitening.to(dtype), self.scale.to(dtype), self.precisions.to(dtype)
        )


class WeightEquations(Equations):
    """H h = S F^T P^T D^-1 B for B (n, c)."""

    def __init__(self, system: "SpectralSystem", rhs: Tensor) -> None:
        super().__init__(rhs, system.noise, system.exact, system.fast)
        self.system = system
        self.target = system.to_weights(rhs / self.noise)

    def begin(self, start: Tensor | None) -> Tensor:
        return torch.zeros_like(self.target) if start is None else self.system.weights_of(start)

    def residual(self, unknowns: Tensor) -> Tensor:
        return self.target - self.exact.latent(unknowns)

    def polished(self, unknowns: Tensor) -> Tensor:
        residual, whitening = self.residual(unknowns), self.exact.whitening
        if not len(whitening.modes):
            return residual
        # The residual of A^-1 B weighs modes by their size, and conjugate gradients do not. The leading modes, given the others,
        # are those that the block knows how to solve for.
        step = torch.cholesky_solve(residual[whitening.modes], whitening.block)
        unknowns.index_add_(0, whitening.modes, step)
        return self.residual(unknowns)

    def error_bound(self, residual: Tensor) -> Tensor:
        return torch.linalg.vector_norm(residual, dim=0)

    def true_residual(self, residual: Tensor) -> Tensor:
        # b - A x = -P F S (residual in weights)
        return torch.linalg.vector_norm(self.system.to_observations(residual), dim=0) / self.norms

    def energy(self, unknowns: Tensor, residual: Tensor) -> Tensor:
        # from above, with an error of second order in the residual
        return (self.plain - (unknowns * (self.target + residual)).sum(dim=0)).clamp(min=1e-300)

    def correction(self, residual: Tensor, rtol: float, budget: int) -> tuple[Tensor, int, int]:
        system, whitening = self.fast, self.exact.whitening
        whitened = whitening.solve(residual)
        sizes = torch.linalg.vector_norm(whitened, dim=0).clamp(min=1e-300)
        carried = (whitened / sizes).to(system.scale.dtype)
        step = torch.zeros_like(carried)
        everything = torch.arange(residual.shape[1], device=residual.device)
        products, iterations, _ = descend(
            system, None, step, carried, everything, max(rtol, FLOAT32_RTOL), budget, astray=ASTRAY
        )
        return whitening.solve_t(step.double() * sizes), iterations, products

    def answer(self, unknowns: Tensor) -> tuple[Tensor, Tensor]:
        cells = self.system.to_cells(unknowns)
        return (self.rhs - cells.index_select(1, self.system.index).mT) / self.noise, self.system.grid_order(cells)


class SpectralSystem(LatentSystem):
    """A, for one set of hyperparameters, in its truncated eigenbasis.

    factors: K_k, (n_k, n_k)
    noise: the diagonal of D, (n,)
    tolerance: how much the log-likelihood, by observation, may change by what is left out of the spectra
    max_block: leading modes in the dense block, at the most
    columns: how many right-hand sides the system will be solved for, roughly: more of them make a larger block worth its while
    precision: of the products inside the solves; residuals are always checked in float64
    """

    def __init__(
        self,
        factors: tuple[Factor, ...],
        noise: Tensor,
        grid: PartialGrid,
        tolerance: float = 1e-6,
        max_block: int = 8000,
        columns: int = 20,
        precision: torch.dtype = torch.float32,
    ) -> None:
        self.grid, self.noise = grid, noise.double()
        dense = [factor_dense(factor).double() for factor in factors]
        if self.complete:
            tolerance = min(tolerance, COMPLETE_TOLERANCE)
        largest = largest_tails(dense, float(self.noise.min()), grid.num_observed, tolerance)
        spectra = [FactorBasis.of(matrix, *most) for matrix, most in zip(dense, largest, strict=True)]
        self.truncation = (
            sum(s.tail / max(tail, 1e-300) for s, (tail, _) in zip(spectra, largest, strict=True))
            * tolerance
            / len(dense)
        )
        self.order = cheapest_order([s.vectors.shape for s in spectra])  # type: ignore[misc]
        self.spectra = [spectra[k] for k in self.order]
        self.shape = tuple(grid.shape[k] for k in self.order)
        moved = torch.arange(grid.num_cells, device=noise.device).view(grid.shape).permute(self.order).flatten()
        place = torch.empty_like(moved).index_copy_(0, moved, torch.arange(len(moved), device=noise.device))
        self.index = place[grid.index]  # of the observed cells, in this order of the axes
        scale = product_roots(self.spectra)
        transform = Transform([spectrum.vectors.contiguous() for spectrum in self.spectra])
        precisions = scale.new_zeros(grid.num_cells).index_copy_(0, self.index, 1 / self.noise)
        self.whitening = make_whitening(transform, scale, precisions, self.shape, max_block, columns)
        self.exact = WhitenedSystem(transform, self.whitening, scale, precisions)
        self.fast = self.exact if precision == torch.float64 else self.exact.to(precision)

    @property
    def complete(self) -> bool:
        """Whether H is diagonal: no cell is missing and the noise is one number."""
        return self.grid.num_observed == self.grid.num_cells and bool((self.noise == self.noise[0]).all())

    @property
    def known_logdet(self) -> Tensor:
        """log det C C^T + log det D: what is left of log det A is the trace of the logarithm of the whitened system."""
        return self.whitening.logdet + self.noise.log().sum()

    @property
    def spread(self) -> float:
        """The size of a posterior deviation of f over the observed cells, about: the root of n / N times the sum of S^2 / H_ii."""
        variance = (self.exact.scale / self.whitening.diagonal).square().sum()
        return math.sqrt(float(variance) * self.grid.num_observed / self.grid.num_cells)

    @property
    def size(self) -> int:
        """R, the number of weights."""
        return len(self.exact.scale)

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

    def equations(self, rhs: Tensor) -> WeightEquations:
        return WeightEquations(self, rhs)

    def weights_of(self, cells: Tensor) -> Tensor:
        """The weights of functions (c, N) on the grid, (R, c), except for modes so far below the noise that it drowns them."""
        moved = self._own_order(cells.double())
        scale = self.exact.scale[:, None]
        return self.exact.transform.down(moved).mul_(scale / (scale.square() + DROWNED * self.noise.mean()))

    def _own_order(self, cells: Tensor) -> Tensor:
        """Functions (c, N) with their axes in the order of this system."""
        if self.order == tuple(range(len(self.order))):
            return cells
        return cells.view(-1, *self.grid.shape).permute(0, *(k + 1 for k in self.order)).reshape(len(cells), -1)

    def grid_order(self, cells: Tensor) -> Tensor:
        """Functions (c, N) with their axes in the order of the grid."""
        if self.order == tuple(range(len(self.order))):
            return cells
        return (
            cells.view(-1, *self.shape)
            .permute(0, *(self.order.index(k) + 1 for k in range(len(self.order))))
            .reshape(len(cells), -1)
        )

    def remaining_logdet(
        self, num_probes: int, steps: int, seed: int, max_memory: float | None = None
    ) -> tuple[Tensor, float]:
        """log det A - `known_logdet` and its standard error, by quadrature; exact where H is diagonal."""
        shape = (self.size, 1 if self.complete else num_probes)
        generator = torch.Generator(self.noise.device).manual_seed(seed)
        signs = random_signs(torch.randn(shape, generator=generator, dtype=torch.float64, device=self.noise.device))
        left, error = trace_of_log(self.exact.__matmul__, signs, 1 if self.complete else steps, max_memory=max_memory)
        return left, 0.0 if self.complete else error

    def prior_data(self, normals: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        """Draws of the data from the prior, (n, s): P F S F^T w + D^1/2 e for w (N, s) and e (n, s), standard normal.

        The symmetric root changes smoothly with the hyperparameters, and so do the draws. Also returns the functions at every
        cell, (s, N).
        """
        weights = self.exact.transform.down(self._own_order(normals.mT).contiguous())
        cells = self.to_cells(weights)
        return cells.index_select(1, self.index).mT + self.noise.sqrt()[:, None] * noise, self.grid_order(cells)

    def factor_weights(self, x: Tensor, shares: list[float]) -> list[Tensor]:
        """G_k with <G_k, dK_k> = sum_j share_j x_j^T P (dK_k (x) the other factors) P^T x_j, d tensors (n_k, n_k).

        x: (n, c); shares: c numbers
        """
        weights = [x.new_zeros(n, n) for n in self.grid.shape]
        for column, sign in zip(x.mT, shares, strict=True):
            cells = self.scatter(column[:, None]).view(self.shape)
            for place, axis in enumerate(self.order):
                part = cells
                for other, spectrum in enumerate(self.spectra):
                    if other != place:
                        part = torch.tensordot(part, spectrum.root, dims=([other], [0])).movedim(-1, other)
                unfolded = part.movedim(place, 0).reshape(self.shape[place], -1)
                weights[axis].addmm_(unfolded, unfolded.mT, alpha=sign)
        return weights

    def explained_variance(self, crosses: tuple[Tensor, ...]) -> Tensor:
        """Where H is diagonal: k_*^T A^-1 k_* at every cell of another grid, (n'_1, ..., n'_d).

        crosses: C_k, (n'_k, n_k), covariances from the points of that grid to the points of factor k
        """
        # C_k lies in the span of Q_k, so k_*^T A^-1 k_* = sum over modes of (C_1 Q_1)^2 (x) ... (x) (C_d Q_d)^2 / (S^2 + s^2)
        squares = Transform(
            [(crosses[k].double() @ s.vectors).square() for k, s in zip(self.order, self.spectra, strict=True)]
        )
        explained = squares.up((1 / (self.exact.scale.square() + self.noise[0]))[:, None])
        return explained.view([len(crosses[k]) for k in self.order]).permute(
            [self.order.index(k) for k in range(len(self.order))]
        )

    def complete_trace_weights(self) -> tuple[list[Tensor], float]:
        """Where H is diagonal: G_k with <G_k, dK_k> = tr(A^-1 (dK_k (x) the other factors)), and the mean diagonal entry of A^-1."""
        noise = float(self.noise[0])
        ranks = [spectrum.rank for spectrum in self.spectra]
        total = self.exact.scale.square().view(ranks) + noise
        weights: dict[int, Tensor] = {}
        for place, axis in enumerate(self.order):
            # sum over the other factors' modes of l' / (l l' + s^2), and of l' / s^2 outside of the span of Q_k
            others = (
                self.exact.scale.square().view(ranks).movedim(place, 0)[-1].reshape(1, -1)
                / self.spectra[place].values[-1]
            )
            inside = (others / total.movedim(place, 0).reshape(ranks[place], -1)).sum(dim=1)
            outside = float(others.sum()) / noise
            q = self.spectra[place].vectors
            weights[axis] = (q * (inside - outside)) @ q.mT
            weights[axis].diagonal().add_(outside)
        diagonal = float((1 / total).sum()) + (self.grid.num_cells - self.size) / noise
        return [weights[k] for k in range(len(weights))], diagonal / self.grid.num_cells
