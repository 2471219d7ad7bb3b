"""A preconditioner that inverts the covariance of the complete grid in its eigenbasis."""

from dataclasses import dataclass

import torch
from torch import Tensor

from lkgp.linalg.kronecker import LatentKronecker
from lkgp.linalg.preconditioners.base import Preconditioner, PreconditionerSettings
from lkgp.linalg.products import kronecker_matmul


class CompletedGrid(Preconditioner):
    """M^-1 = P (K + s^2 I)^-1 P^T, with s^2 the mean noise; exact if no cell is missing and the noise is constant."""

    below = False

    def __init__(self, operator: LatentKronecker) -> None:
        self.grid = operator.grid
        eigenvalues, bases = kronecker_eigh(operator)
        self.bases = tuple(bases)
        self.transposed = tuple(basis.mT for basis in bases)
        self.spectrum = eigenvalues.flatten() + operator.noise.mean()
        complete = self.grid.num_observed == self.grid.num_cells
        self.logdet = self.spectrum.log().sum() if complete else None
        self.widths = (len(self.spectrum),)

    def solve(self, rhs: Tensor) -> Tensor:
        modes = kronecker_matmul(self.transposed, self.grid.scatter(rhs.to(self.spectrum.dtype))).div_(self.spectrum)
        cells = kronecker_matmul(self.bases, modes.mT.contiguous())
        return cells.index_select(1, self.grid.index).mT.contiguous().to(rhs.dtype)

    def root(self, weights: Tensor) -> Tensor:
        # With nothing missing, G = Q diag(spectrum)^1/2.
        modes = weights * self.spectrum.sqrt()[:, None]
        return kronecker_matmul(self.bases, modes.contiguous()).index_select(1, self.grid.index).mT


@dataclass(frozen=True)
class KroneckerEigenbasis(PreconditionerSettings):
    """Inverts the covariance of the complete grid in its eigenbasis, as if no cell were missing."""

    def build(self, operator: LatentKronecker, *, columns: int = 20, product: float | None = None) -> CompletedGrid:
        return CompletedGrid(operator)


def kronecker_eigh(operator: LatentKronecker) -> tuple[Tensor, list[Tensor]]:
    """Eigenvalues (n_1, ..., n_d) of K_1 (x) ... (x) K_d, and each factor's eigenvectors (n_k, n_k)."""
    eigenvalues = torch.ones((), dtype=operator.dtype, device=operator.device)
    bases = []
    for factor in operator.factors:
        values, vectors = torch.linalg.eigh(factor.dense())
        eigenvalues = eigenvalues[..., None] * values.clamp(min=0)
        bases.append(vectors)
    return eigenvalues, bases
