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
            # K ~ L L^T with L = Q R: the eigenpairs of the small R R^T, turned by Q.
            q, r = qr(root, mode="economic", check_finite=False)
            small, turned = np.linalg.eigh(r @ r.T)
            values = torch.from_numpy(small).to(matrix.device)
            vectors = torch.from_numpy(q @ turned).to(matrix.device)
        tail = values.clamp(min=0).cumsum(0)  # ascending: tail[l] is the sum of the l + 1 smallest
        standing_out = values > torch.finfo(values.dtype).eps * len(matrix) * values[-1]
        keep = standing_out & (tail > (largest_tail if low is None else largest_tail / 2))
        keep[-1] = True
        left_out += values.detach().clamp(min=0)[~keep].sum().item()
        return cls(vectors[:, keep], values[keep], left_out)

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


def _low_rank_root(matrix: Tensor, largest_tail: float) -> tuple[np.ndarray, float] | None:
    """L (n_k, r) with L L^T ~ K and the trace of what is missing; None unless r is small enough to be worth it.

    A pivoted Cholesky factorisation stops where the largest remaining variance is below its tolerance. What it leaves is positive
    semidefinite, so its trace bounds all of its eigenvalues.
    """
    n = len(matrix)
    diagonal = matrix.diagonal()
    rounding = n * float(np.finfo(float).eps) * float(diagonal.max())
    factor, pivots, rank, _ = lapack.dpstrf(np.asfortranarray(matrix.detach().cpu().numpy()), tol=max(largest_tail / n, rounding), lower=1)
    if rank > n // 2:
        return None
    root = np.empty((n, rank))
    root[pivots - 1] = np.tril(factor)[:, :rank]
    left = float(diagonal.sum()) - float(np.square(root).sum())
    return root, max(left, 0.0)
