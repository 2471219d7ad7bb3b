"""Preconditioners: cheap approximations M of A = P K P^T + D.

Each kind is one file in this folder: a settings record whose method `build(operator)` returns a `Preconditioner`.
"""

from abc import ABC, abstractmethod
from typing import Any

import torch
from torch import Tensor

from lkgp.linalg.kronecker import LatentKronecker
from lkgp.settings import Settings


class Preconditioner(ABC):
    """A preconditioner M, ready for use.

    If M = G G^T with a known G, the log-determinant of A can be estimated as log det M plus that of M^-1 A.

    logdet: log det M; None if G is not known
    widths: the numbers of columns of the parts of G, (n, sum of widths)
    mode_variances: the prior variances of the modes of M, (R,), if it is built from modes
    below: whether M <= A, so that a residual r bounds the error of a solve: |e|_A^2 = r^T A^-1 r <= r^T M^-1 r
    lowest: otherwise, an estimate of the smallest eigenvalue of M^-1 A, which solves lower as they learn about it: then
        |e|_A^2 <= r^T M^-1 r / lowest; None if M may be far from A, so that only D <= A can be relied upon
    differentiable: whether `trace_weights` is known
    """

    logdet: Tensor | None
    widths: tuple[int, ...]
    mode_variances: Tensor | None = None
    below: bool = True
    lowest: float | None = None
    differentiable: bool = False

    @abstractmethod
    def solve(self, rhs: Tensor) -> Tensor:
        """M^-1 R for R (n, c), in the dtype of R."""

    @abstractmethod
    def root(self, weights: Tensor) -> Tensor:
        """G W for W (sum of widths, c), (n, c)."""

    def trace_weights(self, draws: Tensor) -> tuple[list[list[Any]], Tensor]:
        """The weights of the entries of A in d log det M + mean over draws w of w^T d(M^-1) w, for draws (n, s).

        Those for every factor of every term, as `Factor.pull_back` returns them, and those of the diagonal of D, (n,).
        """
        raise NotImplementedError

    def draw(self, num: int, generator: torch.Generator, like: Tensor) -> Tensor:
        """Draw random vectors with covariance M, (n, num)."""
        shapes = [(width, num) for width in self.widths]
        parts = [torch.randn(s, generator=generator, dtype=like.dtype, device=like.device) for s in shapes]
        return self.root(torch.cat(parts))


class PreconditionerSettings(Settings, ABC):
    """Settings of a preconditioner, from which M is built for a given operator."""

    @abstractmethod
    def build(self, operator: LatentKronecker, *, columns: int = 20, product: float | None = None) -> Preconditioner:
        """Build M for A.

        columns: approximate number of right-hand sides to be solved; product: multiplications of one product with A
        """


class LowRankPlusDiagonal(Preconditioner):
    """M = L L^T + D for L (n, k) and diagonal D (n,), inverted by Woodbury's identity in an eigenbasis (k, k)."""

    def __init__(self, low_rank: Tensor, diagonal: Tensor) -> None:
        self.low_rank, self.scale = low_rank, diagonal.sqrt()[:, None]
        whitened = low_rank / self.scale
        # M = D^1/2 (I + B B^T) D^1/2 with B = D^-1/2 L; with B^T B = V diag(e) V^T and W = B V:
        # (I + B B^T)^-1 = I - W diag(1 / (1 + e)) W^T
        eigenvalues, basis = torch.linalg.eigh(whitened.mT @ whitened)
        e = eigenvalues.clamp(min=0)
        self.basis = whitened @ basis
        self.inverse = 1 / (1 + e)
        self.logdet = torch.log1p(e).sum() + diagonal.log().sum()
        self.widths = (low_rank.shape[1], len(diagonal))

    def solve(self, rhs: Tensor) -> Tensor:
        z = rhs.to(self.scale.dtype) / self.scale
        return z.sub_(self.basis @ (self.inverse[:, None] * (self.basis.mT @ z))).div_(self.scale).to(rhs.dtype)

    def root(self, weights: Tensor) -> Tensor:
        # G = [L, D^1/2]
        top, rest = weights.split(self.widths)
        return self.low_rank @ top + self.scale * rest


class NoiseOnly(Preconditioner):
    """M = D, for use without a real preconditioner. If D is a multiple of I, it changes no iterate."""

    def __init__(self, diagonal: Tensor) -> None:
        self.diagonal = diagonal[:, None]
        self.logdet, self.widths = diagonal.log().sum(), (len(diagonal),)

    def solve(self, rhs: Tensor) -> Tensor:
        return rhs / self.diagonal.to(rhs.dtype)

    def root(self, weights: Tensor) -> Tensor:
        return self.diagonal.sqrt() * weights
