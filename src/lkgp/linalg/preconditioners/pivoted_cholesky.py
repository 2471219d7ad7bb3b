"""The first columns of a pivoted Cholesky factor."""

from dataclasses import dataclass

import torch

from lkgp.linalg.kronecker import LatentKronecker
from lkgp.linalg.preconditioners.base import LowRankPlusDiagonal, PreconditionerSettings
from lkgp.linalg.roots import root_by_rows
from lkgp.settings import check_positive


@dataclass(frozen=True)
class PivotedCholesky(PreconditionerSettings):
    """The first `rank` columns of a Cholesky factor of P K P^T, pivoting on the largest remaining variance.

    This is the preconditioner used in the LKGP paper.
    """

    rank: int = 100

    def __post_init__(self) -> None:
        check_positive(self, rank=self.rank)

    def build(
        self, operator: LatentKronecker, *, columns: int = 20, product: float | None = None
    ) -> LowRankPlusDiagonal:
        diagonal = operator.latent_diagonal()
        floor = torch.finfo(diagonal.dtype).eps * float(diagonal.max())
        root, _, _ = root_by_rows(operator.latent_rows, diagonal, floor, self.rank)
        return LowRankPlusDiagonal(root, operator.noise_diagonal())
