"""Roots R R^T ~ K of positive semidefinite matrices by pivoted Cholesky factorisation, largest variance first."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from scipy.linalg import lapack
from torch import Tensor

from lkgp.errors import InputError

# The number of columns for which a root from single rows has memory at first.
FIRST_COLUMNS = 64
# A small matrix that rounding has made indefinite gets this share of its largest variance on its diagonal, then ten
# times as much, until it is positive definite.
FIRST_JITTER = 1e-14


def check_finite(matrix: Tensor) -> None:
    """Reject a matrix with NaN or infinite entries."""
    if not bool(torch.isfinite(matrix).all()):
        raise torch.linalg.LinAlgError("a factor has NaN or infinite entries")


def pivoted_root(matrix: Tensor, threshold: float) -> tuple[np.ndarray, np.ndarray]:
    """L (n_k, r) with L L^T ~ K: a Cholesky factorisation that pivots on the largest remaining variance.

    It stops when all remaining variances are below `threshold`. After any number of columns the remainder K - L L^T is
    positive semidefinite, so its trace bounds all of its eigenvalues. Also returns the pivots, (r,): the rows in which
    L is lower triangular.
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
) -> tuple[Tensor, float, Tensor]:
    """Like `pivoted_root`, with at most `most` columns, from single rows of K, which is never formed.

    Also returns the trace of the remainder, and the pivots, (r,), where the root is a lower triangle.

    rows: index (b,) -> rows (b, n_k); diagonal: the diagonal of K, (n_k,)
    """
    left = diagonal.clone()
    most = min(most, len(left))
    root = left.new_zeros(len(left), min(FIRST_COLUMNS, most))
    pivots: list[Tensor] = []
    rank = 0
    while rank < most:
        pivot = left.argmax()
        if not left[pivot] > threshold:
            break
        if rank == root.shape[1]:
            # Most roots have few columns, and memory for many would be far more than all else needs.
            root = torch.cat([root, root.new_zeros(len(root), min(rank, most - rank))], dim=1)
        # l_k = (K e_i - L L^T e_i) / sqrt(remainder of K_ii)
        column = rows(pivot[None])[0] - root[:, :rank] @ root[pivot, :rank]
        root[:, rank] = column / left[pivot].sqrt()
        left = (left - root[:, rank].square()).clamp_(min=0)
        left[pivot] = 0
        pivots.append(pivot)
        rank += 1
    order = torch.stack(pivots) if pivots else torch.zeros(0, dtype=torch.long, device=left.device)
    return root[:, :rank].clone(), float(left.sum()), order


def positive_cholesky(matrices: Tensor) -> tuple[Tensor, int]:
    """Cholesky factors of matrices (b, m, m), of which the lower triangles are read, and how many needed a jitter."""
    factors, info = torch.linalg.cholesky_ex(matrices)
    failed = torch.nonzero(info).flatten()
    number, jitter = len(failed), FIRST_JITTER
    while len(failed):
        again = matrices[failed]
        diagonal = again.diagonal(dim1=-2, dim2=-1)
        diagonal += jitter * diagonal.amax(dim=1, keepdim=True)
        factors[failed], info = torch.linalg.cholesky_ex(again)
        failed, jitter = failed[info > 0], 10 * jitter
        if jitter > 1:
            raise InputError("the covariances of some points are not positive definite.")
    return factors, number


@dataclass(frozen=True, eq=False)
class TriangularRoot:
    """K = R R^T up to rounding, by pivoted Cholesky factorisation.

    It is far cheaper than eigenpairs and all that a draw needs.

    root: R, (n_k, r); pivots: the rows in which R is lower triangular, (r,)
    """

    root: Tensor
    pivots: Tensor

    @classmethod
    def of(cls, matrix: Tensor, threshold: float = 0.0) -> "TriangularRoot":
        """Factorise `matrix`, K (n_k, n_k); omitted variances are below `threshold` or the level of rounding."""
        check_finite(matrix)
        # Of a matrix rounded to float32, smaller variances are rounding errors, and dividing by them magnifies others.
        rounding = len(matrix) ** 0.5 * torch.finfo(matrix.dtype).eps * float(matrix.diagonal().max())
        root, pivots = pivoted_root(matrix.double(), max(threshold, rounding))
        return cls(torch.from_numpy(root).to(matrix.device), torch.from_numpy(pivots).long().to(matrix.device))

    @property
    def rank(self) -> int:
        return len(self.pivots)

    def coefficients(self, cross: Tensor) -> Tensor:
        """C (n', r) with C R^T = `cross` (n', n_k), the covariances of other points with those of this factor."""
        triangle = self.root[self.pivots]
        return torch.linalg.solve_triangular(triangle, cross[:, self.pivots].mT, upper=False).mT


def shifted_cholesky(matrix: Tensor, jitter: float) -> Tensor:
    """The Cholesky factor of K + jitter I; as long as it fails, the jitter is multiplied by ten."""
    while True:
        shifted = matrix.clone()
        shifted.diagonal().add_(jitter)
        root, failed = torch.linalg.cholesky_ex(shifted)
        if not int(failed):
            return root
        if not math.isfinite(jitter) or jitter > float(matrix.diagonal().max()):
            raise torch.linalg.LinAlgError("a factor is not positive definite")
        jitter *= 10
