"""Vecchia's approximation: every cell given its most correlated earlier cells, for kernels too rough for modes.

    M^-1  =  U^T F^-1 U  =  W^T W,      U = I - B,      W = F^-1/2 U.

In a random order of the cells, row i of B holds the weights b_i = A_NN^-1 A_Ni of the best prediction of y_i from its
neighbours N, noise included, and F_i = A_ii - A_iN b_i its variance. Of all matrices with W of these entries, M is the
one closest to A in the sense of Kullback and Leibler. With all earlier cells as neighbours M = A. Neither M <= A nor
M >= A, but the eigenvalues of M^-1 A have mean 1.
"""

from dataclasses import dataclass

import numpy as np
import torch
from scipy.sparse import csr_matrix
from scipy.sparse.linalg import spsolve_triangular
from torch import Tensor

from lkgp.errors import InputError
from lkgp.linalg.correlated_cells import earlier_by_correlation
from lkgp.linalg.kronecker import LatentKronecker
from lkgp.linalg.preconditioners.base import Preconditioner, PreconditionerSettings
from lkgp.settings import check_positive

# Small matrices are factorised in blocks of this many entries (64 MB in float64).
BLOCK_ENTRIES = 2**23
# A matrix over neighbours that rounding has made indefinite gets this share of its largest variance on its diagonal,
# then ten times as much, until it is positive definite.
FIRST_JITTER = 1e-14


@dataclass(frozen=True, eq=False)
class LocalSystems:
    """The neighbours of every cell, and the prediction from them.

    order: the observed cells in their order, (n,)
    cells: the observed cells that are the neighbours, in the order of the cells, and last the cell itself, (n, m + 1)
    present: whether a neighbour exists, (n, m + 1); the first cells have fewer
    rows: the rows of W, (n, m + 1), zero where no neighbour exists
    repaired: number of cells whose matrix over their neighbours needed a jitter
    """

    order: Tensor
    cells: Tensor
    present: Tensor
    rows: Tensor
    repaired: int

    @property
    def block(self) -> int:
        """How many cells to treat at a time."""
        return max(1, BLOCK_ENTRIES // self.cells.shape[1] ** 2)


def local_covariances(operator: LatentKronecker, cells: Tensor, present: Tensor) -> Tensor:
    """The entries of A among the neighbours of every cell and the cell itself, (b, m + 1, m + 1).

    Where no neighbour exists, it has a variance of 1 and no covariances.

    cells, present: as in `LocalSystems`, (b, m + 1)
    """
    size = cells.shape[1]
    rows, columns = (i.to(cells.device) for i in np_tril(size))
    entries = operator.latent_entries(cells[:, rows], cells[:, columns]).double()
    both = present[:, rows] & present[:, columns]
    matrices = entries.new_zeros(len(cells), size, size)
    matrices[:, rows, columns] = entries.masked_fill_(~both, 0.0)
    noise = operator.noise_diagonal().double()[cells].masked_fill(~present, 1.0)
    matrices.diagonal(dim1=-2, dim2=-1).add_(noise)
    return matrices


def np_tril(size: int) -> tuple[Tensor, Tensor]:
    """Rows and columns of the entries on and below the diagonal of a square matrix."""
    rows, columns = np.tril_indices(size)
    return torch.from_numpy(rows), torch.from_numpy(columns)


def local_systems(operator: LatentKronecker, neighbours: int, seed: int) -> LocalSystems:
    """The neighbours of every observed cell in a random order, and the predictions from them."""
    n = operator.grid.num_observed
    order = torch.from_numpy(np.random.default_rng(seed).permutation(n)).to(operator.device)
    earlier = earlier_by_correlation(operator, order, min(neighbours, max(1, n - 1)))
    earlier = torch.cat([earlier, torch.arange(n, device=order.device)[:, None]], dim=1)
    present = earlier >= 0
    cells = order[earlier.clamp(min=0)]
    rows = torch.empty(cells.shape, dtype=torch.float64, device=order.device)
    repaired, step = 0, max(1, BLOCK_ENTRIES // cells.shape[1] ** 2)
    last = torch.zeros(cells.shape[1], 1, dtype=torch.float64, device=order.device)
    last[-1] = 1.0
    for start in range(0, n, step):
        part = slice(start, start + step)
        factor, number = positive_cholesky(local_covariances(operator, cells[part], present[part]))
        repaired += number
        # With A_loc = L L^T, the last row of L^-1 is F^-1/2 (-b, 1).
        rows[part] = torch.linalg.solve_triangular(factor.mT, last.expand(len(factor), -1, 1), upper=True)[..., 0]
    return LocalSystems(order, cells, present, rows.masked_fill_(~present, 0.0), repaired)


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
            raise InputError("the covariances of some cells and their neighbours are not positive definite.")
    return factors, number


class VecchiaInverse(Preconditioner):
    """M^-1 = W^T W for one operator.

    local: the neighbours and the rows of W
    lowest: an estimate of the smallest eigenvalue of M^-1 A; solves lower it as they learn about it
    """

    below = False

    def __init__(self, local: LocalSystems) -> None:
        self.local = local
        n = len(local.rows)
        self.widths = (n,)
        # log det M = sum of log F_i, and F_i^-1/2 is the last entry of a row
        self.logdet = -2 * local.rows[:, -1].log().sum()
        self.lowest = 1.0
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


@dataclass(frozen=True)
class Vecchia(PreconditionerSettings):
    """Each cell given its most correlated earlier cells, for rough kernels and short ranges.

    neighbours: how many; seed: of the random order of the cells
    """

    neighbours: int = 30
    seed: int = 0

    def __post_init__(self) -> None:
        check_positive(self, neighbours=self.neighbours)

    def build(self, operator: LatentKronecker, *, columns: int = 20, product: float | None = None) -> VecchiaInverse:
        return VecchiaInverse(local_systems(operator, self.neighbours, self.seed))
