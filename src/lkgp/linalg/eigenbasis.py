"""The spectrum of one factor, cut where it no longer matters."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import numpy as np
import torch
from scipy.linalg import lapack, qr
from torch import Tensor

# Eigenvalues that are left out stay below this share of the noise.
FAR_BELOW = 0.1
# What a pivoted factorisation leaves is known by its trace; its largest eigenvalue is taken to be one part in so many of that.
RANK_OF_REST = 10.0
# From this many points on, a pivoted Cholesky factorisation finds out first whether the rank is low.
PIVOTED_PAYS = 500


def check_finite(matrix: Tensor) -> None:
    if not bool(torch.isfinite(matrix).all()):
        raise torch.linalg.LinAlgError("a factor has values that are not finite")


@dataclass(frozen=True, eq=False)
class FactorBasis:
    """K = Q diag(l) Q^T up to its numerical rank.

    vectors: Q, (n_k, r) orthonormal; values: l, (r,), positive and ascending
    tail: the sum of the eigenvalues that were left out, at the most
    """

    vectors: Tensor
    values: Tensor
    tail: float = 0.0

    @classmethod
    def of(cls, matrix: Tensor, largest_tail: float = 0.0, largest_value: float = math.inf) -> "FactorBasis":
        """Keep the eigenpairs of `matrix` (n_k, n_k) that stand out of rounding, less those whose sum is below `largest_tail` and none
        of which exceeds `largest_value`.
        """
        check_finite(matrix)
        matrix = matrix.double()
        # Half of what may be left out goes to the pivoted factorisation, half to the eigenvalues.
        most = min(largest_tail, RANK_OF_REST * largest_value) / 2
        low = _low_rank_root(matrix, most) if len(matrix) >= PIVOTED_PAYS else None
        if low is None:
            values, vectors = torch.linalg.eigh(matrix)
            left_out = 0.0
        else:
            root, left_out = low
            values, vectors = _eigenpairs(root, matrix.device)
        tail = values.clamp(min=0).cumsum(0)  # ascending: tail[l] is the sum of the l + 1 smallest
        standing_out = values > torch.finfo(values.dtype).eps * len(matrix) * values[-1]
        share = 1.0 if low is None else 0.5
        keep = standing_out & ((tail > share * largest_tail) | (values > share * largest_value))
        keep[-1] = True
        left_out += values.detach().clamp(min=0)[~keep].sum().item()
        return cls(vectors[:, keep], values[keep], left_out)

    @classmethod
    def leading(cls, matrix: Tensor, most: int, threshold: float) -> "FactorBasis":
        """About the `most` leading eigenpairs of `matrix` (n_k, n_k), as far as they exceed `threshold`; never more than is there.

        K - Q diag(l) Q^T is positive semidefinite.
        """
        matrix = matrix.double()
        if len(matrix) < PIVOTED_PAYS:
            values, vectors = torch.linalg.eigh(matrix)
        else:
            root = pivoted_root(matrix, threshold)[0][:, :most]
            values, vectors = _eigenpairs(root, matrix.device)
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
        """c with c c'^T = K between points, from their covariances with the points of this factor, (n', n_k) -> (n', r)."""
        return (cross @ self.vectors) / self.values.sqrt()


@dataclass(frozen=True, eq=False)
class TriangularRoot:
    """K = R R^T up to rounding, by a pivoted Cholesky factorisation: far cheaper than eigenpairs, and all that a draw needs.

    root: R, (n_k, r); pivots: the points where R is a lower triangle, (r,)
    """

    root: Tensor
    pivots: Tensor

    @classmethod
    def of(cls, matrix: Tensor, threshold: float = 0.0) -> "TriangularRoot":
        """matrix: K, (n_k, n_k); threshold: variances that are left out are below this, or below what rounding leaves."""
        check_finite(matrix)
        root, pivots = pivoted_root(matrix.double(), threshold)
        return cls(torch.from_numpy(root).to(matrix.device), torch.from_numpy(pivots).long().to(matrix.device))

    @property
    def rank(self) -> int:
        return len(self.pivots)

    def coefficients(self, cross: Tensor) -> Tensor:
        """C with C R^T = the covariances of other points with the points of this factor, (n', n_k) -> (n', r)."""
        return torch.linalg.solve_triangular(self.root[self.pivots], cross[:, self.pivots].mT, upper=False).mT


def product_roots(bases: Sequence[FactorBasis]) -> Tensor:
    """S, (r_1 ... r_d,): the roots of the eigenvalues of K_1 (x) ... (x) K_d."""
    roots = torch.ones_like(bases[0].values[:1])
    for basis in bases:
        roots = (roots[:, None] * basis.values.sqrt()).flatten()
    return roots


def largest_tails(factors: Sequence[Tensor], noise: float, n: int, tolerance: float) -> list[tuple[float, float]]:
    """How much of each spectrum may be left out, by its trace, and which eigenvalue at the most.

    The trace of all that is left out of the product is at most sum_k tail_k prod_(l != k) tr K_l, and the log-likelihood of n
    observations changes by at most that over twice the noise: that is to be below tolerance * n. No eigenvalue that is left out, not
    even with the largest of the other factors, may come near the noise either, or solves could not be mended by their residuals.
    """
    traces = [max(float(factor.diagonal().sum()), 1e-300) for factor in factors]
    # The largest eigenvalue is at most the largest sum of a row.
    largest = [max(float(factor.abs().sum(dim=1).max()), 1e-300) for factor in factors]
    tails = []
    for k in range(len(factors)):
        others, peak = prod(traces[:k] + traces[k + 1 :]), prod(largest[:k] + largest[k + 1 :])
        tails.append((tolerance * n * noise / len(factors) / others, FAR_BELOW * noise / peak))
    return tails


def _eigenpairs(root: np.ndarray, device: torch.device) -> tuple[Tensor, Tensor]:
    """Eigenvalues (r,), ascending, and eigenvectors (n_k, r) of L L^T, L (n_k, r)."""
    # With L = Q R: the eigenpairs of the small R R^T, turned by Q.
    q, r = qr(root, mode="economic", check_finite=False)
    small, turned = np.linalg.eigh(r @ r.T)
    return torch.from_numpy(small).to(device), torch.from_numpy(q @ turned).to(device)


def pivoted_root(matrix: Tensor, threshold: float) -> tuple[np.ndarray, np.ndarray]:
    """L (n_k, r) with L L^T ~ K: a Cholesky factorisation, the largest remaining variance first, until all are below `threshold`.

    What it leaves is positive semidefinite, so its trace bounds all of its eigenvalues; and so it is after any number of columns.
    Also returns the points that were taken first, (r,), where L is a lower triangle.
    """
    n = len(matrix)
    rounding = n * float(np.finfo(float).eps) * float(matrix.diagonal().max())
    factor, pivots, rank, _ = lapack.dpstrf(
        np.asfortranarray(matrix.detach().cpu().numpy()), tol=max(threshold, rounding), lower=1
    )
    root = np.empty((n, rank))
    root[pivots - 1] = np.tril(factor)[:, :rank]
    return root, pivots[:rank] - 1


def _low_rank_root(matrix: Tensor, largest_tail: float) -> tuple[np.ndarray, float] | None:
    """L (n_k, r) with L L^T ~ K and the trace of what is missing; None unless r is small enough to be worth it."""
    root, _ = pivoted_root(matrix, largest_tail / len(matrix))
    if root.shape[1] > len(matrix) // 2:
        return None
    left = float(matrix.diagonal().sum()) - float(np.square(root).sum())
    return root, max(left, 0.0)
