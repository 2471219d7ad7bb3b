"""The eigenpairs of one factor, cut off where they no longer matter."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import numpy as np
import torch
from scipy.linalg import qr
from torch import Tensor

from lkgp.linalg.roots import check_finite, pivoted_root

# Eigenvalues that are left out stay below this share of the noise: then a solve with what is kept leaves a residual of
# at most a tenth, and refinement by the residual converges by a digit each time.
FAR_BELOW = 0.1
# What a pivoted factorisation leaves is known by its trace; its largest eigenvalue is taken to be one part in so many
# of that. Rests are spread over many modes; refinement finds out, and only takes longer, where this one is not.
RANK_OF_REST = 10.0
# From this many points on, a pivoted Cholesky factorisation finds out first whether the rank is low;
# `scripts/calibrate_costs.py` measures where that pays.
PIVOTED_PAYS = 500


@dataclass(frozen=True, eq=False)
class FactorBasis:
    """K = Q diag(l) Q^T up to its numerical rank.

    vectors: Q, (n_k, r) orthonormal; values: l, (r,), positive and ascending
    tail: the sum of the eigenvalues that were left out, at most
    """

    vectors: Tensor
    values: Tensor
    tail: float = 0.0

    @classmethod
    def of(cls, matrix: Tensor, largest_tail: float = 0.0, largest_value: float = math.inf) -> "FactorBasis":
        """Keep the eigenpairs of `matrix` (n_k, n_k) that stand out of rounding, less those whose sum is below
        `largest_tail` and none of which exceeds `largest_value`.
        """
        check_finite(matrix)
        matrix = matrix.double()
        # Half of what may be left out goes to the pivoted factorisation, half to the eigenvalues.
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
        """The same of L L^T, L (n_k, r), to which half of what may be left out belongs; `left_out`: the trace of
        what L lacks.
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
        """About the `most` leading eigenpairs of `matrix` (n_k, n_k), as far as they exceed `threshold`.

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
        """C with C C'^T = K between points, from their covariances with the points of this factor, (n', n_k) -> (n',
        r).
        """
        return (cross @ self.vectors) / self.values.sqrt()


def product_roots(bases: Sequence[FactorBasis]) -> Tensor:
    """S, (r_1 ... r_d,): the roots of the eigenvalues of K_1 (x) ... (x) K_d."""
    roots = torch.ones_like(bases[0].values[:1])
    for basis in bases:
        roots = (roots[:, None] * basis.values.sqrt()).flatten()
    return roots


def largest_tails(
    traces: Sequence[float], row_sums: Sequence[float], noise: float, n: int, tolerance: float
) -> list[tuple[float, float]]:
    """How much of each spectrum may be left out, by its trace, and which eigenvalue at most.

    The trace of all that is left out of the product is at most sum_k tail_k prod_(l != k) tr K_l, and the
    log-likelihood of n
    observations changes by at most that over twice the noise: that is to be below tolerance * n. No eigenvalue that is
        left out, not even with the largest of the other factors, may come near the noise either, or solves could not be
        corrected by their residuals.

    traces: of every factor; row_sums: the largest sum of a row of each, which no eigenvalue exceeds
    """
    traces, row_sums = ([max(number, 1e-300) for number in numbers] for numbers in (traces, row_sums))
    tails = []
    for k in range(len(traces)):
        others, peak = prod(traces[:k] + traces[k + 1 :]), prod(row_sums[:k] + row_sums[k + 1 :])
        tails.append((tolerance * n * noise / len(traces) / others, FAR_BELOW * noise / peak))
    return tails


def _eigenpairs(root: np.ndarray, device: torch.device | None) -> tuple[Tensor, Tensor]:
    """Eigenvalues (r,), ascending, and eigenvectors (n_k, r) of L L^T, L (n_k, r)."""
    # With L = Q R: the eigenpairs of the small R R^T, turned by Q.
    q, r = qr(root, mode="economic", check_finite=False)
    small, turned = np.linalg.eigh(r @ r.T)
    return torch.from_numpy(small).to(device), torch.from_numpy(q @ turned).to(device)


def _low_rank_root(matrix: Tensor, largest_tail: float) -> tuple[np.ndarray, float] | None:
    """L (n_k, r) with L L^T ~ K and the trace of what is missing; None unless r is small enough to be worth it."""
    root, _ = pivoted_root(matrix, largest_tail / len(matrix))
    if root.shape[1] > len(matrix) // 2:
        return None
    left = float(matrix.diagonal().sum()) - float(np.square(root).sum())
    return root, max(left, 0.0)
