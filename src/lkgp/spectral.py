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
from itertools import permutations
from math import prod

import torch
from torch import Tensor

from lkgp.grid import PartialGrid
from lkgp.operators import Factor, factor_dense
from lkgp.solvers import ConjugateGradients, Reason, Solution
from lkgp.solvers.base import column_norms
from lkgp.spectrum import FactorBasis

# There is a block if so many leading modes, whitened by the diagonal alone, are worse conditioned than this.
TRIAL_MODES, TRIAL_CONDITION = 300, 10.0
# Its size is sought in these steps.
BLOCK_STEP = 500
# Iterations over the root of the condition number that the block leaves, as measured on learning curves.
ITERATIONS_PER_ROOT = 4.0
# float32 rounds each product by about 6e-8 of its norm, so one solve cannot be asked for more than this.
FLOAT32_RTOL = 1e-4


class Transform:
    """F = Q_1 (x) ... (x) Q_d between weights (R, c) and cells (c, N), for factors in an order that makes it cheap."""

    def __init__(self, bases: list[Tensor]) -> None:
        self.bases = bases

    def up(self, weights: Tensor) -> Tensor:
        """F W as (c, N): the front axis is transformed and put last, factor by factor, so no array is ever permuted."""
        columns = weights.shape[1]
        for q in self.bases:
            weights = weights.reshape(q.shape[1], -1).mT @ q.mT
        return weights.reshape(columns, -1)

    def down(self, cells: Tensor) -> Tensor:
        """F^T X as (R, c): the last axis is transformed and put in front."""
        columns = len(cells)
        for q in reversed(self.bases):
            cells = q.mT @ cells.reshape(-1, len(q)).mT
        return cells.reshape(-1, columns)

    def to(self, dtype: torch.dtype) -> "Transform":
        return Transform([q.to(dtype) for q in self.bases])


@dataclass(frozen=True, eq=False)
class Whitening:
    """C with C C^T ~ H: a triangular block over some modes, a diagonal over the others.

    modes: (k,); block: lower triangular, (k, k); diagonal: (R,), unused where a mode is in the block
    """

    modes: Tensor
    block: Tensor
    diagonal: Tensor

    @property
    def logdet(self) -> float:
        """log det C C^T, of the numbers as they are rounded here."""
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
        return WhitenedSystem(self.transform.to(dtype), self.whitening.to(dtype), self.scale.to(dtype), self.precisions.to(dtype))


class SpectralSystem:
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
        traces = [float(matrix.diagonal().sum()) for matrix in dense]
        # What is left out has a trace of at most sum_k tail_k prod_(l != k) tr K_l, and log det A changes by at most that over the noise.
        allowed = tolerance * grid.num_observed * float(self.noise.min()) / len(dense)
        largest = [allowed / max(prod(traces[:k] + traces[k + 1 :]), 1e-300) for k in range(len(dense))]
        spectra = [FactorBasis.of(matrix, tail) for matrix, tail in zip(dense, largest, strict=True)]
        self.truncation = sum(s.tail / max(tail, 1e-300) for s, tail in zip(spectra, largest, strict=True)) * tolerance / len(dense)
        self.order = cheapest_order([s.vectors.shape for s in spectra])  # type: ignore[misc]
        self.spectra = [spectra[k] for k in self.order]
        self.shape = tuple(grid.shape[k] for k in self.order)
        moved = torch.arange(grid.num_cells, device=noise.device).view(grid.shape).permute(self.order).flatten()
        place = torch.empty_like(moved).index_copy_(0, moved, torch.arange(len(moved), device=noise.device))
        self.index = place[grid.index]  # of the observed cells, in this order of the axes
        scale = torch.ones(1, dtype=torch.float64, device=noise.device)
        for spectrum in self.spectra:
            scale = (scale[:, None] * spectrum.values.sqrt()).flatten()
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
    def size(self) -> int:
        """R, the number of weights."""
        return len(self.exact.scale)

    def scatter(self, values: Tensor) -> Tensor:
        """P^T X for X (n, c), as (c, N)."""
        return values.new_zeros(values.shape[1], self.grid.num_cells).index_copy_(1, self.index, values.mT)

    def to_weights(self, values: Tensor) -> Tensor:
        """S F^T P^T X for X (n, c), as (R, c)."""
        return self.exact.transform.down(self.scatter(values)).mul_(self.exact.scale[:, None])

    def to_observations(self, weights: Tensor) -> Tensor:
        """P F S W for W (R, c), as (n, c)."""
        return self.exact.transform.up(weights * self.exact.scale[:, None]).index_select(1, self.index).mT

    def solve(
        self, rhs: Tensor, rtol: float, *, residual_rtol: float = math.inf, x0: Tensor | None = None, max_iterations: int = 1000
    ) -> Solution:
        """A^-1 B for B (n, c), float64.

        rtol: the error that is allowed, relative: |e|_A <= rtol |x|_A. The residual in weights, which bounds it, is computed in
            float64; the solution's `residuals` are those bounds.
        residual_rtol: the relative residual |b - A x| / |b| that is allowed besides, A being truncated
        x0: where to start, (n, c)
        """
        whitening, noise = self.exact.whitening, self.noise[:, None]
        target = self.to_weights(rhs / noise)
        # A^-1 y = x means h = S F^T P^T x.
        h = torch.zeros_like(target) if x0 is None else self.to_weights(x0)
        residual = target if x0 is None else target - self.exact.latent(h)
        plain = (rhs.square() / noise).sum(dim=0)  # y^T D^-1 y
        # Data that come from the model have y^T A^-1 y ~ n: what a first solve aims at.
        energy = plain.clamp(max=float(len(rhs))) if x0 is None else self._energy(plain, target, h, residual)
        iterations, products, reason = 0, 0 if x0 is None else rhs.shape[1], Reason.ITERATION_LIMIT
        before = torch.full_like(plain, torch.inf)
        while True:
            size = torch.linalg.vector_norm(residual, dim=0)
            relative = size / energy.sqrt().clamp(min=1e-300)
            excess = relative / rtol  # above one where more must be done
            if math.isfinite(residual_rtol) and (iterations or x0 is not None):
                # b - A x = -P F S (residual in weights)
                true = torch.linalg.vector_norm(self.to_observations(residual), dim=0) / column_norms(rhs)
                excess = torch.maximum(excess, true / residual_rtol)
            missed = excess > 1 if iterations or x0 is not None else size > 0
            if not bool(torch.isfinite(excess).all()):
                reason = Reason.NON_FINITE
                break
            if not bool(missed.any()):
                reason = Reason.CONVERGED
                break
            if iterations >= max_iterations:
                break
            if bool((missed & (size > 0.5 * before)).any()):
                if self.fast is self.exact:
                    reason = Reason.STAGNATED
                    break
                self.fast = self.exact  # float32 has given what it can
            before, active = size, torch.nonzero(missed).flatten()
            wanted = 0.7 / float(excess[active].max())
            inner = ConjugateGradients(min(max(wanted, FLOAT32_RTOL), 0.5), max_iterations - iterations)
            step = inner.solve(self.fast, whitening.solve(residual[:, active]).to(self.fast.scale.dtype))
            h[:, active] += whitening.solve_t(step.values.double())
            iterations, products = iterations + step.iterations, products + step.products + rhs.shape[1]
            residual = target - self.exact.latent(h)
            energy = self._energy(plain, target, h, residual)
        values = (rhs - self.to_observations(h)) / noise
        return Solution(values, relative, iterations, products, reason, rtol)

    @staticmethod
    def _energy(plain: Tensor, target: Tensor, h: Tensor, residual: Tensor) -> Tensor:
        """y^T A^-1 y, (c,), from above, with an error of second order in the residual."""
        return (plain - (h * (target + residual)).sum(dim=0)).clamp(min=1e-300)

    def prior_data(self, normals: Tensor, noise: Tensor) -> Tensor:
        """Draws of the data from the prior, (n, s): P F S F^T w + D^1/2 e for w (N, s) and e (n, s), standard normal.

        The symmetric root changes smoothly with the hyperparameters, and so do the draws.
        """
        weights = self.exact.transform.down(normals.mT.contiguous()) * self.exact.scale[:, None]
        return self.exact.transform.up(weights).index_select(1, self.index).mT + self.noise.sqrt()[:, None] * noise

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
        squares = Transform([(crosses[k].double() @ s.vectors).square() for k, s in zip(self.order, self.spectra, strict=True)])
        explained = squares.up((1 / (self.exact.scale.square() + self.noise[0]))[:, None])
        return explained.view([len(crosses[k]) for k in self.order]).permute([self.order.index(k) for k in range(len(self.order))])

    def complete_trace_weights(self) -> tuple[list[Tensor], float]:
        """Where H is diagonal: G_k with <G_k, dK_k> = tr(A^-1 (dK_k (x) the other factors)), and the mean diagonal entry of A^-1."""
        noise = float(self.noise[0])
        ranks = [spectrum.rank for spectrum in self.spectra]
        total = self.exact.scale.square().view(ranks) + noise
        weights: dict[int, Tensor] = {}
        for place, axis in enumerate(self.order):
            # sum over the other factors' modes of l' / (l l' + s^2), and of l' / s^2 outside of the span of Q_k
            others = self.exact.scale.square().view(ranks).movedim(place, 0)[-1].reshape(1, -1) / self.spectra[place].values[-1]
            inside = (others / total.movedim(place, 0).reshape(ranks[place], -1)).sum(dim=1)
            outside = float(others.sum()) / noise
            q = self.spectra[place].vectors
            weights[axis] = (q * (inside - outside)) @ q.mT
            weights[axis].diagonal().add_(outside)
        diagonal = float((1 / total).sum()) + (self.grid.num_cells - self.size) / noise
        return [weights[k] for k in range(len(weights))], diagonal / self.grid.num_cells


def cheapest_order(shapes: list[tuple[int, int]]) -> tuple[int, ...]:
    """The order of the axes in which a transform from ranks to points takes the fewest multiplications; `shapes` are (n_k, r_k)."""

    def cost(order: tuple[int, ...]) -> int:
        return sum(prod(shapes[k][0] for k in order[: i + 1]) * prod(shapes[k][1] for k in order[i:]) for i in range(len(order)))

    return min(permutations(range(len(shapes))), key=cost)


def make_whitening(
    transform: Transform, scale: Tensor, precisions: Tensor, shape: tuple[int, ...], max_block: int, columns: int
) -> Whitening:
    """The diagonal of H, and a dense block over the leading modes if the gaps make the diagonal a poor stand-in."""
    # diag H = 1 + S^2 (Q_1^2 (x) ... (x) Q_d^2)^T D^-1
    squares = Transform([q.square() for q in transform.bases])
    diagonal = 1 + scale.square() * squares.down(precisions[None])[:, 0]
    root = diagonal.sqrt()
    trial = leading_rectangle(transform.bases, scale.device)
    whitened = masked_gram(transform.bases, scale, precisions, shape, trial) / root[trial][:, None] / root[trial]
    eigenvalues = torch.linalg.eigvalsh(whitened)
    size = 0
    if float(eigenvalues[-1] / eigenvalues[0].clamp(min=1e-300)) > TRIAL_CONDITION:
        size = cheapest_block(diagonal.sort(descending=True).values, transform, max(shape), max_block, columns)
    modes = torch.topk(diagonal, size).indices.sort().values
    block = torch.linalg.cholesky(masked_gram(transform.bases, scale, precisions, shape, modes))
    return Whitening(modes, block, root)


def cheapest_block(diagonal: Tensor, transform: Transform, longest: int, max_block: int, columns: int) -> int:
    """How many leading modes make building the block and solving with it cheapest, by multiplications.

    diagonal: of H, (R,), descending: without the first k, the condition number is that of the next, about
    """
    shapes = [q.shape for q in transform.bases]
    product = 2 * sum(prod(s[0] for s in shapes[: i + 1]) * prod(s[1] for s in shapes[i:]) for i in range(len(shapes)))

    def cost(k: int) -> float:
        left = float(diagonal[k]) if k < len(diagonal) else 1.0
        iterations = ITERATIONS_PER_ROOT * left**0.5
        # Multiplications of the block, in float64 and scattered, count four times those of the products, which are in float32.
        return 4 * (longest * k**2 + k**3 / 6) + columns * iterations * (product + k**2)

    sizes = range(0, min(max_block, len(diagonal)) + 1, BLOCK_STEP)
    return min(sizes, key=cost)


def leading_rectangle(bases: list[Tensor], device: torch.device) -> Tensor:
    """The numbers of about TRIAL_MODES modes: every combination of the leading modes of each factor."""
    each = max(1, int(TRIAL_MODES ** (1 / len(bases))))
    modes = torch.zeros(1, dtype=torch.long, device=device)
    for q in bases:
        rank = q.shape[1]  # eigenvalues ascend
        modes = (modes[:, None] * rank + torch.arange(max(0, rank - each), rank, device=device)).flatten()
    return modes


def masked_gram(bases: list[Tensor], scale: Tensor, precisions: Tensor, shape: tuple[int, ...], modes: Tensor) -> Tensor:
    """The block of H over some modes, exact, (k, k).

    Call the longest axis S and the others T. For modes (a, b) and (a', b') of S and T, the block is
    sum_i Q_S[i, a] Q_S[i, a'] w_bb'[i], with w_bb'[i] = sum_t (precision of cell i, t) F_T[t, b] F_T[t, b'].
    """
    longest = max(range(len(shape)), key=lambda k: shape[k])
    axes = list(torch.unravel_index(modes, [q.shape[1] for q in bases]))
    main = bases[longest][:, axes[longest]]  # (n_S, k)
    cells = precisions.view(shape).movedim(longest, 0).reshape(shape[longest], -1)
    others = [k for k in range(len(shape)) if k != longest]
    flat = torch.zeros_like(modes)
    for k in others:
        flat = flat * bases[k].shape[1] + axes[k]
    distinct, of_mode = torch.unique(flat, return_inverse=True)
    rest = bases[0].new_ones(1, len(distinct))
    if others:
        for k, column in zip(others, torch.unravel_index(distinct, [bases[k].shape[1] for k in others]), strict=True):
            rest = (rest[:, None, :] * bases[k][:, column]).flatten(0, 1)
    gram = main.new_empty(len(modes), len(modes))
    for b in range(len(distinct)):
        weights = cells @ (rest[:, b, None] * rest)  # (n_S, distinct)
        rows = torch.nonzero(of_mode == b).flatten()
        gram[rows] = main[:, rows].mT @ (main * weights[:, of_mode])
    gram.mul_(scale[modes]).mul_(scale[modes][:, None])
    gram.diagonal().add_(1.0)
    return gram
