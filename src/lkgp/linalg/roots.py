"""Roots of positive semidefinite matrices by pivoted Cholesky factorisations: R R^T ~ K, the largest variance first."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from scipy.linalg import lapack
from torch import Tensor


def check_finite(matrix: Tensor) -> None:
    """Refuse a matrix that a factorisation would make NaN of."""
    if not bool(torch.isfinite(matrix).all()):
        raise torch.linalg.LinAlgError("a factor has values that are not finite")


def pivoted_root(matrix: Tensor, threshold: float) -> tuple[np.ndarray, np.ndarray]:
    """L (n_k, r) with L L^T ~ K: a Cholesky factorisation, the largest remaining variance first.

    It ends when all remaining variances are below `threshold`. What it leaves is positive semidefinite, so its trace
    bounds all of its eigenvalues; and so it is after any number of columns. Also returns the points that were taken
    first, (r,), where L is a lower triangle.
    """
    n = len(matrix)
    rounding = n * float(np.finfo(float).eps) * float(matrix.diagonal().max())
    plain = np.asfortranarray(matrix.detach().cpu().numpy())
    factor, pivots, rank, _ = lapack.dpstrf(plain, tol=max(threshold, rounding), lower=1)
    root = np.empty((n, rank))
    root[pivots - 1] = np.tril(factor)[:, :rank]
    return root, pivots[:rank] - 1


def root_by_rows(
    rows: Callable[[Tensor], Tensor], diagonal: Tensor, threshold: float, most: int
) -> tuple[Tensor, float]:
    """The same from single rows of K, which is never formed, with `most` columns at most; and the trace of what is
    left.

    rows: index (b,) -> rows (b, n_k); diagonal: of K, (n_k,)
    """
    left = diagonal.clone()
    root = left.new_zeros(len(left), min(most, len(left)))
    rank = 0
    while rank < root.shape[1]:
        pivot = left.argmax()
        if not left[pivot] > threshold:
            break
        # l_k = (K e_i - L L^T e_i) / sqrt(what is left of K_ii)
        column = rows(pivot[None])[0] - root[:, :rank] @ root[pivot, :rank]
        root[:, rank] = column / left[pivot].sqrt()
        left = (left - root[:, rank].square()).clamp_(min=0)
        left[pivot] = 0
        rank += 1
    return root[:, :rank], float(left.sum())


@dataclass(frozen=True, eq=False)
class TriangularRoot:
    """K = R R^T up to rounding, by a pivoted Cholesky factorisation: far cheaper than eigenpairs, and all that a draw
    needs.

    root: R, (n_k, r); pivots: the points where R is a lower triangle, (r,)
    """

    root: Tensor
    pivots: Tensor

    @classmethod
    def of(cls, matrix: Tensor, threshold: float = 0.0) -> "TriangularRoot":
        """matrix: K, (n_k, n_k); threshold: variances that are left out are below this, or below what rounding
        leaves.
        """
        check_finite(matrix)
        root, pivots = pivoted_root(matrix.double(), threshold)
        return cls(torch.from_numpy(root).to(matrix.device), torch.from_numpy(pivots).long().to(matrix.device))

    @property
    def rank(self) -> int:
        return len(self.pivots)

    def coefficients(self, cross: Tensor) -> Tensor:
        """C with C R^T = the covariances of other points with the points of this factor, (n', n_k) -> (n', r)."""
        triangle = self.root[self.pivots]
        return torch.linalg.solve_triangular(triangle, cross[:, self.pivots].mT, upper=False).mT


def shifted_cholesky(matrix: Tensor, jitter: float) -> Tensor:
    """The Cholesky factor of K + jitter I, or of ten times the jitter if kernel values were rounded so coarsely, and
    so on.
    """
    while True:
        shifted = matrix.clone()
        shifted.diagonal().add_(jitter)
        root, failed = torch.linalg.cholesky_ex(shifted)
        if not int(failed):
            return root
        if not math.isfinite(jitter) or jitter > float(matrix.diagonal().max()):
            raise torch.linalg.LinAlgError("a factor is not positive definite")
        jitter *= 10
