"""Preconditioners: cheap approximations M of A = P K P^T + D.

Each class below is a record of its settings with one `build(operator)`. What it builds has `solve(R)`, which is M^-1 R. Where
M = G G^T with a known G, it also has `logdet`, `root_solve(R)` = G^-1 R and `root_solve_t(R)` = G^-T R, which the
log-determinant needs; else `logdet` is None.
"""

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from lkgp.linalg import LatentKronecker, factor_dense, kronecker_matmul
from lkgp.solvers.base import check_settings


class Preconditioner(Protocol):
    """M, built. All arguments and results are (n, c)."""

    @property
    def logdet(self) -> Tensor | None: ...

    def solve(self, rhs: Tensor) -> Tensor: ...

    def root_solve(self, rhs: Tensor) -> Tensor: ...

    def root_solve_t(self, rhs: Tensor) -> Tensor: ...


class PreconditionerSettings(Protocol):
    """How to build an M for a given operator."""

    def build(self, operator: LatentKronecker) -> Preconditioner: ...


class LowRankPlusDiagonal:
    """M = L L^T + D for L (n, k) and D diagonal (n,), inverted by Woodbury's identity in the eigenbasis of its small side."""

    def __init__(self, root: Tensor, diagonal: Tensor) -> None:
        self.scale = diagonal.sqrt()[:, None]
        whitened = root / self.scale
        # M = D^1/2 (I + B B^T) D^1/2 with B = D^-1/2 L; with B^T B = V diag(e) V^T and W = B V:
        # (I + B B^T)^-1 = I - W diag(1 / (1 + e)) W^T,  (I + B B^T)^-1/2 = I + W diag(((1 + e)^-1/2 - 1) / e) W^T.
        eigenvalues, basis = torch.linalg.eigh(whitened.mT @ whitened)
        e = eigenvalues.clamp(min=0)
        self.basis = whitened @ basis
        self.inverse = 1 / (1 + e)
        # ((1 + e)^-1/2 - 1) / e, written so that nothing cancels for small e
        root_of = (1 + e).sqrt()
        self.inverse_root = -1 / (root_of * (1 + root_of))
        self.logdet: Tensor | None = torch.log1p(e).sum() + diagonal.log().sum()

    def solve(self, rhs: Tensor) -> Tensor:
        z = rhs / self.scale
        return z.sub_(self.basis @ (self.inverse[:, None] * (self.basis.mT @ z))).div_(self.scale)

    def root_solve(self, rhs: Tensor) -> Tensor:
        return self._half(rhs / self.scale)

    def root_solve_t(self, rhs: Tensor) -> Tensor:
        return self._half(rhs).div_(self.scale)

    def _half(self, z: Tensor) -> Tensor:
        return z + self.basis @ (self.inverse_root[:, None] * (self.basis.mT @ z))


@dataclass(frozen=True)
class PivotedCholesky:
    """The first `rank` columns of a Cholesky factor of P K P^T, the largest remaining variance first (the paper's choice)."""

    rank: int = 100

    def __post_init__(self) -> None:
        check_settings(self, rank=self.rank)

    def build(self, operator: LatentKronecker) -> LowRankPlusDiagonal:
        left = operator.latent_diagonal().clone()
        n, floor = len(left), torch.finfo(left.dtype).eps * left.max()
        root = left.new_zeros(n, min(self.rank, n))
        for k in range(root.shape[1]):
            pivot = left.argmax()
            if not left[pivot] > floor:
                root = root[:, :k]
                break
            # l_k = (K e_i - L L^T e_i) / sqrt(what is left of K_ii)
            column = operator.latent_rows(pivot[None])[0] - root[:, :k] @ root[pivot, :k]
            root[:, k] = column / left[pivot].sqrt()
            left = (left - root[:, k].square()).clamp_(min=0)
            left[pivot] = 0
        return LowRankPlusDiagonal(root, operator.noise_diagonal())


@dataclass(frozen=True)
class Nystrom:
    """The randomised Nystrom approximation of P K P^T from `rank` random products."""

    rank: int = 200
    seed: int = 0

    def __post_init__(self) -> None:
        check_settings(self, rank=self.rank)

    def build(self, operator: LatentKronecker) -> LowRankPlusDiagonal:
        noise = operator.noise_diagonal()
        n = len(noise)
        generator = torch.Generator(noise.device).manual_seed(self.seed)
        shape = (n, min(self.rank, n))
        test, _ = torch.linalg.qr(torch.randn(shape, generator=generator, dtype=noise.dtype, device=noise.device))
        sketch = operator.product(test) - noise[:, None] * test
        # K ~ Y (T^T Y)^-1 Y^T. A shift of the size of the rounding errors keeps the core positive definite.
        shift = torch.finfo(noise.dtype).eps * n**0.5 * torch.linalg.matrix_norm(sketch)
        sketch = sketch + shift * test
        core = test.mT @ sketch
        eigenvalues, basis = torch.linalg.eigh((core + core.mT) / 2)
        keep = eigenvalues > shift
        root = sketch @ (basis[:, keep] / eigenvalues[keep].sqrt())
        return LowRankPlusDiagonal(root, noise)


@dataclass(frozen=True)
class LeadingModes:
    """The `rank` largest eigenpairs of the completed grid's K, restricted to the observed cells.

    What is left of K lies below the first eigenvalue left out, so with noise s^2 all eigenvalues of M^-1 A lie between 1 and
    1 + (that eigenvalue) / s^2, whatever the gaps.
    """

    rank: int = 500

    def __post_init__(self) -> None:
        check_settings(self, rank=self.rank)

    def build(self, operator: LatentKronecker) -> LowRankPlusDiagonal:
        eigenvalues, bases = kronecker_eigh(operator)
        largest = torch.topk(eigenvalues.flatten(), min(self.rank, operator.shape[-1]))
        modes = torch.unravel_index(largest.indices, eigenvalues.shape)
        root = largest.values.sqrt()
        for basis, axis, mode in zip(bases, operator.grid.axis_index, modes, strict=True):
            root = root * basis[:, mode][axis]
        return LowRankPlusDiagonal(root, operator.noise_diagonal())


class CompletedGrid:
    """M^-1 = P (K + s^2 I)^-1 P^T, with s^2 the mean noise: exact where nothing is missing and the noise is one number."""

    def __init__(self, operator: LatentKronecker) -> None:
        self.grid = operator.grid
        eigenvalues, bases = kronecker_eigh(operator)
        self.bases = tuple(bases)
        self.transposed = tuple(basis.mT for basis in bases)
        self.spectrum = eigenvalues.flatten() + operator.noise.mean()
        complete = self.grid.num_observed == self.grid.num_cells
        self.logdet: Tensor | None = self.spectrum.log().sum() if complete else None

    def solve(self, rhs: Tensor) -> Tensor:
        modes = kronecker_matmul(self.transposed, self.grid.scatter(rhs)).div_(self.spectrum)
        return kronecker_matmul(self.bases, modes.mT.contiguous()).index_select(1, self.grid.index).mT.contiguous()

    # With nothing missing, G = Q diag(spectrum)^1/2.

    def root_solve(self, rhs: Tensor) -> Tensor:
        return kronecker_matmul(self.transposed, self.grid.scatter(rhs)).div_(self.spectrum.sqrt()).mT

    def root_solve_t(self, rhs: Tensor) -> Tensor:
        modes = rhs / self.spectrum.sqrt()[:, None]
        return kronecker_matmul(self.bases, modes.contiguous()).index_select(1, self.grid.index).mT


@dataclass(frozen=True)
class KroneckerEigenbasis:
    """Inverts the completed grid in its eigenbasis, as if nothing were missing."""

    def build(self, operator: LatentKronecker) -> CompletedGrid:
        return CompletedGrid(operator)


def kronecker_eigh(operator: LatentKronecker) -> tuple[Tensor, list[Tensor]]:
    """Eigenvalues (n_1, ..., n_d) of K_1 (x) ... (x) K_d, and each factor's eigenvectors (n_k, n_k)."""
    eigenvalues = torch.ones((), dtype=operator.dtype, device=operator.device)
    bases = []
    for factor in operator.factors:
        values, vectors = torch.linalg.eigh(factor_dense(factor))
        eigenvalues = eigenvalues[..., None] * values.clamp(min=0)
        bases.append(vectors)
    return eigenvalues, bases
