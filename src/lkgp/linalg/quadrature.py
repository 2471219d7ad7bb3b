"""The trace of a function of a matrix, from products only: stochastic Lanczos quadrature."""

import math
from collections.abc import Callable

import torch
from torch import Tensor

# Limit in bytes on all Lanczos vectors together, which are kept for reorthogonalisation, if the caller sets none. With
# less memory, fewer probes are processed at a time.
BASIS_BYTES = 2**30


def trace_of_log(
    apply: Callable[[Tensor], Tensor],
    probes: Tensor,
    steps: int,
    metric: Callable[[Tensor], Tensor] | None = None,
    max_memory: float | None = None,
) -> tuple[Tensor, float]:
    """Estimate tr log B for a symmetric positive definite B, with its standard error.

    tr f(B) ~ mean of |z|^2 e_1^T f(T_z) e_1, with T_z the tridiagonal Lanczos matrix of B started at z.

    apply: X -> B X for X (n, c)
    probes: (n, s) with E z z^T = I; sqrt(n) I makes the result exact
    metric: X -> W X, if B is symmetric in the inner product x^T W y; then E z z^T = W^-1
    max_memory: limit in bytes on the large arrays in memory at once
    """
    steps = min(steps, len(probes))
    budget = BASIS_BYTES if max_memory is None else min(BASIS_BYTES, max_memory / 4)
    each = (1 if metric is None else 2) * steps * len(probes) * probes.element_size()
    parts = []
    for block in probes.split(max(1, int(budget / each)), dim=1):
        tridiagonal, squared = lanczos(apply, block, steps, metric)
        nodes, vectors = torch.linalg.eigh(tridiagonal)
        smallest = torch.finfo(nodes.dtype).tiny
        parts.append(squared * (vectors[:, 0].square() * nodes.clamp(min=smallest).log()).sum(dim=1))
    estimates = torch.cat(parts)
    error = float(estimates.std() / math.sqrt(len(estimates))) if len(estimates) > 1 else math.nan
    return estimates.mean(), error


def random_signs(normals: Tensor) -> Tensor:
    """+1 or -1 with equal probability, from standard normal numbers."""
    return torch.where(normals > 0, 1.0, -1.0).to(normals.dtype)


def lanczos(
    apply: Callable[[Tensor], Tensor], start: Tensor, steps: int, metric: Callable[[Tensor], Tensor] | None = None
) -> tuple[Tensor, Tensor]:
    """Tridiagonal Lanczos matrices (s, steps, steps) for each column of `start` (n, s), and squared norms (s,).

    A column that has exhausted its Krylov space is continued with ones on the diagonal, decoupled from the rest.
    """

    def dual(x: Tensor) -> Tensor:
        return x if metric is None else metric(x)

    squared = (start * dual(start)).sum(dim=0)
    q = start / squared.sqrt()
    basis, duals = [q], [dual(q)]
    tridiagonal = start.new_zeros(start.shape[1], steps, steps)
    alive = torch.ones_like(squared, dtype=torch.bool)
    largest = torch.zeros_like(squared)
    for k in range(steps):
        w = apply(q)
        alpha = (duals[-1] * w).sum(dim=0)
        tridiagonal[:, k, k] = torch.where(alive, alpha, torch.ones_like(alpha))
        largest = torch.maximum(largest, alpha)
        if k + 1 == steps:
            break
        for _ in range(2):  # twice is enough
            for v, v_dual in zip(basis, duals, strict=True):
                w = w - v * (v_dual * w).sum(dim=0)
        beta = (w * dual(w)).sum(dim=0).clamp(min=0).sqrt()
        alive = alive & (beta > 1e2 * torch.finfo(beta.dtype).eps * largest)
        beta = torch.where(alive, beta, torch.zeros_like(beta))
        tridiagonal[:, k, k + 1] = tridiagonal[:, k + 1, k] = beta
        q = torch.where(alive, w / torch.where(alive, beta, torch.ones_like(beta)), torch.zeros_like(w))
        basis.append(q)
        duals.append(q if metric is None else dual(q))
    return tridiagonal, squared
