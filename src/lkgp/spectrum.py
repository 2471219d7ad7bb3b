"""The spectrum of one factor, cut where it no longer matters."""

from dataclasses import dataclass

import numpy as np
import torch
from scipy.linalg import lapack, qr
from torch import Tensor

# From this many points on, a pivoted Cholesky factorisation finds out first whether the rank is low.
PIVOTED_PAYS = 500


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
    def of(cls, matrix: Tensor, largest_tail: float = 0.0) -> "FactorBasis":
        """Keep the eigenpairs of `matrix` (n_k, n_k) that stand out of rounding, less those whose sum is below `largest_tail`."""
        matrix = matrix.double()
        # Half of what may be left out goes to the pivoted factorisation, half to the eigenvalues.
        low = _low_rank_root(matrix, largest_tail / 2) if len(matrix) >= PIVOTED_PAYS else None
        if low is None:
            values, vectors = torch.linalg.eigh(matrix)
            left_out = 0.0
        else:
            root, left_out = low
            values, vectors = _eigenpairs(root, matrix.device)
        tail = values.clamp(min=0).cumsum(0)  # ascending: tail[l] is the sum of the l + 1 smallest
        standing_out = values > torch.finfo(values.dtype).eps * len(matrix) * values[-1]
        keep = standing_out & (tail > (largest_tail if low is None else largest_tail / 2))
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
            root = pivoted_root(matrix, threshold)[:, :most]
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


def _eigenpairs(root: np.ndarray, device: torch.device) -> tuple[Tensor, Tensor]:
    """Eigenvalues (r,), ascending, and eigenvectors (n_k, r) of L L^T, L (n_k, r)."""
    # With L = Q R: the eigenpairs of the small R R^T, turned by Q.
    q, r = qr(root, mode="economic", check_finite=False)
    small, turned = np.linalg.eigh(r @ r.T)
    return torch.from_numpy(small).to(device), torch.from_numpy(q @ turned).to(device)


def pivoted_root(matrix: Tensor, threshold: float) -> np.ndarray:
    """L (n_k, r) with L L^T ~ K: a Cholesky factorisation, the largest remaining variance first, until all are below `threshold`.

    What it leaves is positive semidefinite, so its trace bounds all of its eigenvalues; and so it is after any number of columns.
    """
    n = len(matrix)
    rounding = n * float(np.finfo(float).eps) * float(matrix.diagonal().max())
    factor, pivots, rank, _ = lapack.dpstrf(np.asfortranarray(matrix.detach().cpu().numpy()), tol=max(threshold, rounding), lower=1)
    root = np.empty((n, rank))
    root[pivots - 1] = np.tril(factor)[:, :rank]
    return root


def _low_rank_root(matrix: Tensor, largest_tail: float) -> tuple[np.ndarray, float] | None:
    """L (n_k, r) with L L^T ~ K and the trace of what is missing; None unless r is small enough to be worth it."""
    root = pivoted_root(matrix, largest_tail / len(matrix))
    if root.shape[1] > len(matrix) // 2:
        return None
    left = float(matrix.diagonal().sum()) - float(np.square(root).sum())
    return root, max(left, 0.0)
