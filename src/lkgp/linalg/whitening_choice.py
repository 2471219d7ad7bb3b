"""Decide whether the diagonal of H = I + S F^T P^T D^-1 P F S is enough to whiten it, or a dense block pays as well.

The leading modes alone cannot tell. They vary slowly over the points, so that gaps in single rows, such as the ends of
learning curves, average out over them; a combination of all modes can live in the gap of one row. The condition number
of the block over some modes is only a lower bound on that of all of them. So if it is small, a pilot solve with the
diagonal alone is tried, for one right-hand side and with all modes. It is stopped when it has taken so many iterations
that a block would have been cheaper for all right-hand sides. Hence it takes at most a small part of the time of the
solves, one right-hand side among many, and they never take much longer than with the better choice.
"""

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from lkgp.linalg.leading_modes import cheapest_block, masked_gram, solve_multiplications
from lkgp.linalg.transform import Transform
from lkgp.linalg.whitening import WhitenedSystem, Whitening
from lkgp.solvers.cg import descend

# A block is used without a pilot solve if TRIAL_MODES leading modes, whitened by the diagonal alone, have a condition
# number above TRIAL_CONDITION. With random gaps it is about two; on learning curves a block pays from about ten.
TRIAL_MODES, TRIAL_CONDITION = 300, 10.0
# Iterations of real solves, which restart whenever their residual is checked in float64, over those of a pilot solve:
# 1.2 to 1.8 in nine solves with few cut rows, random gaps and clouds, where the pilot solve converged.
RESTARTS = 1.5


def make_whitening(
    transform: Transform,
    scale: Tensor,
    precisions: Tensor,
    shape: tuple[int, ...],
    max_block: int,
    columns: int,
    rtol: float,
    precision: torch.dtype,
) -> Whitening:
    """Use the diagonal of H, and a dense block over the leading modes if that makes solves cheaper.

    scale: S, (R,); precisions: D^-1 on the grid, (N,); columns: approximate number of right-hand sides to be solved
    rtol, precision: the relative error that solves aim at, and the precision of the products in them
    """
    # diag H = 1 + S^2 (Q_1^2 (x) ... (x) Q_d^2)^T D^-1
    squares = Transform([q.square() for q in transform.bases])
    diagonal = 1 + scale.square() * squares.down(precisions[None])[:, 0]
    root, none = diagonal.sqrt(), torch.zeros(0, dtype=torch.long, device=scale.device)
    plain = Whitening(none, scale.new_zeros(0, 0), root, "a block would cost more than it saves")
    descending, ranks = diagonal.sort(descending=True).values, [q.shape[1] for q in transform.bases]
    size = cheapest_block(descending, transform.multiplications, shape, ranks, max_block, columns)
    if not size:
        return plain
    trial = leading_rectangle(transform.bases, scale.device)
    whitened = masked_gram(transform.bases, scale, precisions, shape, trial) / root[trial][:, None] / root[trial]
    eigenvalues = torch.linalg.eigvalsh(whitened)
    condition = float(eigenvalues[-1] / eigenvalues[0].clamp(min=1e-300))
    why = f"with the diagonal alone, {len(trial)} leading modes have a condition number of {condition:.2g}"
    if condition <= TRIAL_CONDITION:
        system = WhitenedSystem(transform, plain, scale, precisions).to(precision)
        with_block = solve_multiplications(size, descending, transform.multiplications, shape, ranks, columns)
        most = max(1, int(with_block / (RESTARTS * columns * transform.multiplications)))
        if converges(system, rtol, most):
            return replace(plain, why=f"a pilot solve converged within {most} iterations")
        why = f"a pilot solve with the diagonal alone did not converge within {most} iterations"
    modes = torch.topk(diagonal, size).indices.sort().values
    block = torch.linalg.cholesky(masked_gram(transform.bases, scale, precisions, shape, modes))
    return Whitening(modes, block, root, why)


def leading_rectangle(bases: list[Tensor], device: torch.device) -> Tensor:
    """The indices of about TRIAL_MODES modes: all combinations of the leading modes of each factor."""
    each = max(1, int(TRIAL_MODES ** (1 / len(bases))))
    modes = torch.zeros(1, dtype=torch.long, device=device)
    for q in bases:
        rank = q.shape[1]  # eigenvalues ascend
        modes = (modes[:, None] * rank + torch.arange(max(0, rank - each), rank, device=device)).flatten()
    return modes


@dataclass(frozen=True, eq=False)
class Unwhitened:
    """H, for conjugate gradients with C C^T as a preconditioner; unlike those in whitened coordinates, they know the
    residual in weights, which bounds the error.
    """

    system: WhitenedSystem

    def __matmul__(self, weights: Tensor) -> Tensor:
        return self.system.latent(weights)

    def solve(self, weights: Tensor) -> Tensor:
        whitening = self.system.whitening
        return whitening.solve_t(whitening.solve(weights))


def converges(system: WhitenedSystem, rtol: float, most_iterations: int) -> bool:
    """Whether conjugate gradients solve to a relative error of `rtol` in so many iterations.

    They solve for data from the prior, P F S w + D^1/2 e, and start at the function that the data observe, as most
    solves of a fit and of posterior samples do.
    """
    precisions, scale = system.precisions, system.scale
    generator = torch.Generator(scale.device).manual_seed(0)
    noise, weights = (
        torch.randn(len(like), generator=generator, dtype=scale.dtype, device=scale.device)
        for like in (precisions, scale)
    )
    # S F^T P^T D^-1 (P F S w + D^1/2 e) - H w = S F^T P^T D^-1/2 e - w
    residual = system.transform.down((precisions.sqrt() * noise)[None]) * scale[:, None] - weights[:, None]
    # |error|_A <= |residual|, and |x|_A^2 ~ n for data from the model
    goal = rtol * math.sqrt(float((precisions > 0).sum()))
    equations, only = Unwhitened(system), torch.zeros(1, dtype=torch.long, device=scale.device)
    descend(equations, equations, torch.zeros_like(residual), residual, only, goal, most_iterations)
    return float(torch.linalg.vector_norm(residual)) <= goal
