"""The trace of a function of a matrix, from products only: stochastic Lanczos quadrature."""

import math
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

# Limit in bytes on all Lanczos vectors together, which are kept for reorthogonalisation, if the caller sets none. With
# less memory, fewer probes are processed at a time, and only the last vectors of a single one are kept: vectors then
# lose their orthogonality to early ones by rounding, which repeats eigenvalues but hardly changes quadrature.
BASIS_BYTES = 2**30
# In a space of at most this many dimensions, the whole space replaces random probes: a few of them in so few dimensions
# may miss what they are to measure, and would hardly be cheaper.
FEW_DIMENSIONS = 16
# The prescribed node of a Gauss-Radau rule lies this much below the bound of the spectrum: rounding errors may push an
# eigenvalue at the bound below it.
BELOW_THE_BOUND = 1e-3
# Without such a bound, the lowest eigenvalue is taken to be this share of the lowest one that was seen. Steps end,
# checked every so many, when the bias is at most this share of the error by chance.
SHARE_OF_SEEN, CHECKED_STEPS, SMALL_BIAS = 0.5, 6, 0.05


def trace_of_log(
    apply: Callable[[Tensor], Tensor],
    probes: Tensor,
    steps: int,
    metric: Callable[[Tensor], Tensor] | None = None,
    max_memory: float | None = None,
    *,
    lowest: float | None,
    whole: bool = False,
) -> tuple[Tensor, float]:
    """Estimate tr log B for a symmetric positive definite B, with its standard error.

    tr f(B) ~ mean of |z|^2 e_1^T f(T_z) e_1, with T_z the tridiagonal Lanczos matrix of B started at z.

    The error has two parts. One is that of the probes: over probes with |z|^2 = n and any directions, the variance of
    z^T L z is at most 2 (tr L^2 - (tr L)^2 / n), L = log B, and the spectral measures of the probes tell how large that
    is; what they tell of the farthest eigenvalue counts as if one more probe had seen it, because a few probes may all
    have missed its direction. Unlike the scatter of a few estimates, this cannot be small by luck. The other part is
    the bias of the quadrature.
    The even derivatives of the logarithm are negative and the odd ones positive, so a Gauss rule is an upper bound of
    z^T L z, and a Gauss-Radau rule with a node below the spectrum is a lower one. Three standard errors cover the
    distance between them.

    Steps end when the bias is small beside the other part of the error.

    apply: X -> B X for X (n, c)
    probes: (n, s) with E z z^T = I and |z|^2 = n; sqrt(n) I makes the result exact
    metric: X -> W X, if B = A W is symmetric in the inner product x^T W y; then `apply` is X -> A X, and
        E z z^T = W^-1
    max_memory: limit in bytes on the large arrays in memory at once
    lowest: a positive lower bound of the eigenvalues of B; None takes a share of the smallest one that is seen
    whole: whether the probes span the whole space, so that only the bias is left
    """
    steps = min(steps, len(probes))
    budget = BASIS_BYTES if max_memory is None else min(BASIS_BYTES, max_memory / 4)
    vector = (1 if metric is None else 2) * len(probes) * probes.element_size()
    each, kept = steps * vector, max(2, int(budget / vector))
    upper, lower, spread, farthest = [], [], [], 0.0
    enough = None if whole else partial(_bias_is_small, probes.shape[1], lowest)
    for block in probes.split(max(1, int(budget / each)), dim=1):
        tridiagonal, last, squared = lanczos(apply, block, steps, metric, enough, kept)
        bounds = _gauss_bounds(tridiagonal, last, lowest)
        upper.append(squared * bounds.upper)
        farthest = max(farthest, bounds.farthest)
        spread.append(squared * bounds.variance)
        lower.append(squared * bounds.lower)
    estimates = torch.cat(upper)
    bias = float((estimates - torch.cat(lower)).clamp(min=0).mean())
    # Var(z^T L z) <= 2 n (e_1^T L^2 e_1 - (e_1^T L e_1)^2) in the mean over probes
    seen = float(torch.cat(spread).mean()) + farthest / len(estimates)
    chance = 0.0 if whole else math.sqrt(2 * seen / len(estimates))
    return estimates.mean(), chance + bias / 3


@dataclass(frozen=True, eq=False)
class GaussBounds:
    """What quadrature rules say of e_1^T log(T) e_1 for the matrices T of some probes.

    upper, lower: bounds, (s,); variance: of the logarithm, (s,); farthest: largest squared distance from the mean
    """

    upper: Tensor
    lower: Tensor
    variance: Tensor
    farthest: float


def _gauss_bounds(tridiagonal: Tensor, last: Tensor, lowest: float | None) -> GaussBounds:
    """The bounds from the Lanczos matrices (s, k, k), with the entries that follow, (s,), and the lowest eigenvalue."""
    if lowest is None:
        lowest = SHARE_OF_SEEN * float(torch.linalg.eigvalsh(tridiagonal).min())
        lowest = max(lowest, torch.finfo(tridiagonal.dtype).eps)
    mean, variance, largest = log_moments(tridiagonal, lowest)
    lower = log_moments(with_node(tridiagonal, last, (1 - BELOW_THE_BOUND) * lowest), lowest)[0]
    return GaussBounds(mean, lower, variance, largest)


def _bias_is_small(num_probes: int, lowest: float | None, tridiagonal: Tensor, last: Tensor, squared: Tensor) -> bool:
    """Whether more steps would hardly change the error of an estimate from so many probes."""
    bounds = _gauss_bounds(tridiagonal, last, lowest)
    chance = math.sqrt(2 * float((squared * bounds.variance).mean()) / num_probes)
    return float((squared * (bounds.upper - bounds.lower)).mean()) / 3 < SMALL_BIAS * chance


def log_moments(tridiagonal: Tensor, lowest: float) -> tuple[Tensor, Tensor, float]:
    """Mean and variance, each (s,), of the logarithm under the quadrature rules of the matrices (s, k, k).

    Also returns the largest squared distance of the logarithm of a node from the mean.
    """
    nodes, vectors = torch.linalg.eigh(tridiagonal)
    weights, logs = vectors[:, 0].square(), nodes.clamp(min=(1 - BELOW_THE_BOUND) * lowest).log()
    mean = (weights * logs).sum(dim=1)
    squares = (logs - mean[:, None]).square()
    seen = weights > torch.finfo(weights.dtype).eps
    return mean, (weights * squares).sum(dim=1), float(squares[seen].max())


def with_node(tridiagonal: Tensor, last: Tensor, node: float) -> Tensor:
    """The matrices (s, k + 1, k + 1) of the Gauss-Radau rules with a prescribed node, from those of the Gauss rules.

    tridiagonal: (s, k, k); last: the entries beside the diagonal that follow, (s,)
    """
    count, k, _ = tridiagonal.shape
    unit = tridiagonal.new_zeros(count, k, 1)
    unit[:, -1] = 1.0
    # the last diagonal entry that makes `node` an eigenvalue: a + b^2 e_k^T (T - a I)^-1 e_k
    shifted = tridiagonal - node * torch.eye(k, dtype=tridiagonal.dtype, device=tridiagonal.device)
    added = last.square() * torch.linalg.solve(shifted, unit)[:, -1, 0]
    extended = tridiagonal.new_zeros(count, k + 1, k + 1)
    extended[:, :k, :k] = tridiagonal
    extended[:, k, k] = node + added
    extended[:, k, k - 1] = extended[:, k - 1, k] = last
    return extended


def random_signs(normals: Tensor) -> Tensor:
    """+1 or -1 with equal probability, from standard normal numbers."""
    return torch.where(normals > 0, 1.0, -1.0).to(normals.dtype)


def lanczos(
    apply: Callable[[Tensor], Tensor],
    start: Tensor,
    steps: int,
    metric: Callable[[Tensor], Tensor] | None = None,
    enough: Callable[[Tensor, Tensor, Tensor], bool] | None = None,
    kept: int = sys.maxsize,
) -> tuple[Tensor, Tensor, Tensor]:
    """Tridiagonal Lanczos matrices (s, steps, steps) for each column of `start` (n, s).

    Also returns the entries beside the diagonal that would follow, (s,), and the squared norms of the columns, (s,). A
    column that has exhausted its Krylov space is continued with ones on the diagonal, decoupled from the rest.

    apply, metric: as in `trace_of_log`
    enough: whether the results so far are good enough to end with fewer steps; asked every CHECKED_STEPS steps
    kept: the most vectors of a column that are kept, at least two
    """

    def dual(x: Tensor) -> Tensor:
        return x if metric is None else metric(x)

    image = dual(start)
    squared = (start * image).sum(dim=0)
    basis, duals = [start / squared.sqrt()], [image / squared.sqrt()]
    tridiagonal = start.new_zeros(start.shape[1], steps, steps)
    alive = torch.ones_like(squared, dtype=torch.bool)
    largest = torch.zeros_like(squared)
    for k in range(steps):
        w = apply(duals[-1])
        alpha = (duals[-1] * w).sum(dim=0)
        tridiagonal[:, k, k] = torch.where(alive, alpha, torch.ones_like(alpha))
        largest = torch.maximum(largest, alpha)
        for _ in range(2):  # twice is enough
            for v, v_dual in zip(basis, duals, strict=True):
                w = w - v * (v_dual * w).sum(dim=0)
        image = dual(w)
        beta = (w * image).sum(dim=0).clamp(min=0).sqrt()
        # The Krylov space cannot be larger than the whole one.
        alive = alive & (beta > 1e2 * torch.finfo(beta.dtype).eps * largest) & (k + 1 < len(start))
        beta = torch.where(alive, beta, torch.zeros_like(beta))
        if k + 1 == steps:
            break
        done = k + 1
        if enough is not None and done % CHECKED_STEPS == 0 and enough(tridiagonal[:, :done, :done], beta, squared):
            return tridiagonal[:, :done, :done], beta, squared
        tridiagonal[:, k, k + 1] = tridiagonal[:, k + 1, k] = beta
        scale = torch.where(alive, 1 / torch.where(alive, beta, torch.ones_like(beta)), torch.zeros_like(beta))
        basis.append(w * scale)
        duals.append(basis[-1] if metric is None else image * scale)
        del basis[:-kept], duals[:-kept]
    return tridiagonal, beta, squared
