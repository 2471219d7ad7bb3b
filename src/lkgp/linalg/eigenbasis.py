"""The eigenpairs of one factor, truncated where they no longer matter."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import numpy as np
import torch
from scipy.linalg import qr
from torch import Tensor

from lkgp.linalg.roots import check_finite, pivoted_root

# Omitted eigenvalues stay below this fraction of the noise: a solve with the kept ones then leaves a residual of at
# most a tenth, and each step of iterative refinement gains a digit.
FAR_BELOW = 0.1
# Only the trace of the remainder of a pivoted factorisation is known; its largest eigenvalue is assumed to be the trace
# over this number. Remainders are usually spread over many modes; if one is not, refinement only takes longer.
RANK_OF_REST = 10.0
# With at least this many points, a pivoted Cholesky factorisation first tests whether the rank is low;
# `scripts/calibrate_costs.py` measures where that pays.
PIVOTED_PAYS = 500


@dataclass(frozen=True, eq=False)
class FactorBasis:
    """K = Q diag(l) Q^T up to its numerical rank.

    vectors: Q, (n_k, r) orthonormal; values: l, (r,), positive and ascending
    tail: an upper bound on the sum of the omitted eigenvalues
    """

    vectors: Tensor
    values: Tensor
    tail: float = 0.0

    @classmethod
    def of(cls, matrix: Tensor, largest_tail: float = 0.0, largest_value: float = math.inf) -> "FactorBasis":
        """Keep the eigenpairs of `matrix` (n_k, n_k) that matter.

        Eigenvalues at the level of rounding error are omitted. So are the smallest ones as long as their sum is at most
        `largest_tail` and none of them exceeds `largest_value`.
        """
        check_finite(matrix)
        matrix = matrix.double()
        # Half of the permitted tail goes to the pivoted factorisation, half to the eigenvalues.
        most = min(largest_tail, RANK_OF_REST * largest_value) / 2
        low = _low_rank_root(matrix, most) if len(matrix) >= PIVOTED_PAYS else None
        if low is not None:
            return cls.of_root(*low, largest_tail, largest_value, matrix.device)
        values, vectors = torch.linalg.eigh(matrix)
        return cls._kept(values, vectors, 0.0, largest_tail, largest_value)

    @classmethod
    def of_root(
        cls,
        root: np.ndarray,
        left_out: float,
        largest_tail: float,
        largest_value: float,
        device: torch.device | None = None,
    ) -> "FactorBasis":
        """Keep the eigenpairs of L L^T that matter, for L (n_k, r), using half of the permitted tail.

        left_out: the trace of K - L L^T
        """
        values, vectors = _eigenpairs(root, device)
        return cls._kept(values, vectors, left_out, 0.5 * largest_tail, 0.5 * largest_value)

    @classmethod
    def _kept(
        cls, values: Tensor, vectors: Tensor, left_out: float, largest_tail: float, largest_value: float
    ) -> "FactorBasis":
        tail = values.clamp(min=0).cumsum(0)  # ascending: tail[l] is the sum of the l + 1 smallest
        standing_out = values > torch.finfo(values.dtype).eps * len(vectors) * values[-1]
        keep = standing_out & ((tail > largest_tail) | (values > largest_value))
        keep[-1] = True
        left_out += values.detach().clamp(min=0)[~keep].sum().item()
        return cls(vectors[:, keep], values[keep], left_out)

    @classmethod
    def leading(cls, matrix: Tensor, most: int, threshold: float) -> "FactorBasis":
        """About the `most` leading eigenpairs of `matrix` (n_k, n_k) that exceed `threshold`.

        K - Q diag(l) Q^T is positive semidefinite.
        """
        matrix = matrix.double()
        if len(matrix) < PIVOTED_PAYS:
            values, vectors = torch.linalg.eigh(matrix)
        else:
            values, vectors = _eigenpairs(pivoted_root(matrix, threshold)[0][:, :most], matrix.device)
        keep = values > max(threshold, torch.finfo(values.dtype).eps * len(matrix) * float(values[-1]))
        keep[-1] = True
        return cls(vectors[:, keep], values[keep], float(matrix.diagonal().sum() - values[keep].sum()))

    @property
    def rank(self) -> int:
        return len(self.values)

    @property
    def root(self) -> Tensor:
        """U with U U^T = K, (n_k, r)."""
        return self.vectors * self.values.sqrt()

    def coefficients(self, cross: Tensor) -> Tensor:
        """C with C C'^T = K between points, (n', r), from their covariances `cross` (n', n_k) with this factor."""
        # A factor that is zero keeps one eigenvalue of zero, whose covariances are zero, too.
        return (cross @ self.vectors) / self.values.clamp(min=torch.finfo(self.values.dtype).tiny).sqrt()


def product_roots(bases: Sequence[FactorBasis]) -> Tensor:
    """S, (r_1 ... r_d,): the square roots of the eigenvalues of K_1 (x) ... (x) K_d."""
    roots = torch.ones_like(bases[0].values[:1])
    for basis in bases:
        roots = (roots[:, None] * basis.values.sqrt()).flatten()
    return roots


def largest_tails(
    traces: Sequence[float], row_sums: Sequence[float], noise: float, n: int, tolerance: float
) -> list[tuple[float, float]]:
    """For each factor, the largest sum of eigenvalues that may be omitted, and the largest single one.

    The trace of the omitted part of the product is at most sum_k tail_k prod_(l != k) tr K_l, and the log-likelihood of
    n observations changes by at most that over twice the noise, which must stay below tolerance * n. Moreover, no
    omitted eigenvalue, even times the largest ones of the other factors, may come near the noise; otherwise refinement
    by the residual would not converge.

    traces: the trace of each factor; row_sums: the largest row sum of each factor, which bounds its eigenvalues
    """
    traces, row_sums = ([max(number, 1e-300) for number in numbers] for numbers in (traces, row_sums))
    tails = []
    for k in range(len(traces)):
        others, peak = prod(traces[:k] + traces[k + 1 :]), prod(row_sums[:k] + row_sums[k + 1 :])
        tails.append((tolerance * n * noise / len(traces) / others, FAR_BELOW * noise / peak))
    return tails


def _eigenpairs(root: np.ndarray, device: torch.device | None) -> tuple[Tensor, Tensor]:
    """Eigenvalues (r,), ascending, and eigenvectors (n_k, r) of L L^T, L (n_k, r)."""
    # With L = Q R: the eigenpairs of the small R R^T, rotated by Q.
    q, r = qr(root, mode="economic", check_finite=False)
    small, turned = np.linalg.eigh(r @ r.T)
    return torch.from_numpy(small).to(device), torch.from_numpy(q @ turned).to(device)


def _low_rank_root(matrix: Tensor, largest_tail: float) -> tuple[np.ndarray, float] | None:
    """L (n_k, r) with L L^T ~ K, and the trace of K - L L^T; None unless r is small enough to be useful."""
    root, _ = pivoted_root(matrix, largest_tail / len(matrix))
    if root.shape[1] > len(matrix) // 2:
        return None
    left = float(matrix.diagonal().sum()) - float(np.square(root).sum())
    return root, max(left, 0.0)
