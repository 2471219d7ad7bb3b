"""Vecchia's approximation: every cell given correlated earlier cells, for kernels too rough for modes.

    M^-1  =  U^T F^-1 U  =  W^T W,      U = I - B,      W = F^-1/2 U.

In a random order of the cells, row i of B holds the weights b_i = A_NN^-1 A_Ni of the best prediction of y_i from its
neighbours N, noise included, and F_i = A_ii - A_iN b_i its variance. Of all matrices with W of these entries, M is the
one closest to A in the sense of Kullback and Leibler. With all earlier cells as neighbours M = A. Neither M <= A nor
M >= A, but the eigenvalues of M^-1 A have mean 1.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from scipy.sparse import csr_matrix
from scipy.sparse.linalg import spsolve_triangular
from torch import Tensor

from lkgp.linalg.kronecker import LatentKronecker
from lkgp.linalg.local_systems import LocalSystems, local_systems
from lkgp.linalg.preconditioners.base import Preconditioner, PreconditionerSettings
from lkgp.linalg.vecchia_gradient import trace_weights
from lkgp.settings import check_positive

# The smallest eigenvalue of M^-1 A is taken to be this at first, until solves know it better; the mean is 1.
FIRST_LOWEST = 0.25


class VecchiaInverse(Preconditioner):
    """M^-1 = W^T W for one operator.

    operator: A; local: the neighbours and the rows of W
    """

    below = False
    differentiable = True

    def __init__(self, operator: LatentKronecker, local: LocalSystems) -> None:
        self.operator, self.local, self.lowest = operator, local, FIRST_LOWEST
        n = len(local.rows)
        self.widths = (n,)
        # log det M = sum of log F_i, and F_i^-1/2 is the last entry of a row
        self.logdet = -2 * local.rows[:, -1].log().sum()
        # Rows and columns in the order of the observed cells: neighbours on the grid are neighbours in memory.
        where = torch.argsort(local.order)
        present, cells = local.present[where].cpu().numpy(), local.cells[where].cpu().numpy()
        pointers = np.concatenate([[0], np.cumsum(present.sum(axis=1))])
        values = local.rows[where].cpu().numpy()[present]
        root = csr_matrix((values, cells[present].astype(np.int32), pointers), shape=(n, n))
        self._roots = {torch.float64: (root, root.T.tocsr())}

    def _root(self, dtype: torch.dtype) -> tuple[csr_matrix, csr_matrix]:
        """W and W^T in a given precision."""
        if dtype not in self._roots:
            self._roots[dtype] = tuple(part.astype(np.float32) for part in self._roots[torch.float64])
        return self._roots[dtype]

    def solve(self, rhs: Tensor) -> Tensor:
        root, transposed = self._root(rhs.dtype)
        return torch.from_numpy(transposed @ (root @ rhs.cpu().numpy())).to(rhs.device)

    def root(self, weights: Tensor) -> Tensor:
        # G = W^-1, in the order in which W is triangular
        order = self.local.order.cpu().numpy()
        root, _ = self._root(torch.float64)
        triangular = root[order][:, order].tocsr()
        result = np.empty(weights.shape)
        result[order] = spsolve_triangular(triangular, weights.double().cpu().numpy()[order], lower=True)
        return torch.from_numpy(result).to(weights)

    def trace_weights(self, draws: Tensor) -> tuple[list[list[Any]], Tensor]:
        whitened = torch.from_numpy(self._root(torch.float64)[0] @ draws.cpu().numpy()).to(draws)
        return trace_weights(self.operator, self.local, draws, whitened)


@dataclass(frozen=True)
class Vecchia(PreconditionerSettings):
    """Each cell given correlated earlier cells, for rough kernels and short ranges.

    neighbours: how many; seed: of the random order of the cells
    """

    neighbours: int = 30
    seed: int = 0

    def __post_init__(self) -> None:
        check_positive(self, neighbours=self.neighbours)

    def build(self, operator: LatentKronecker, *, columns: int = 20, product: float | None = None) -> VecchiaInverse:
        return VecchiaInverse(operator, local_systems(operator, self.neighbours, self.seed))
