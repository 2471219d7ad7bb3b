"""Small dense systems: every observed cell with some correlated earlier cells, and its prediction from them."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from lkgp.linalg.correlated_cells import earlier_by_correlation
from lkgp.linalg.kronecker import LatentKronecker
from lkgp.linalg.roots import positive_cholesky

# Small matrices are factorised in blocks of this many entries (8 MB in float64). Arrays of 32 MB and more are given
# back to the operating system each time, and took 1.5 times as long.
BLOCK_ENTRIES = 2**20
# Covariances are computed for so many columns at a time.
COLUMNS = 32


@dataclass(frozen=True, eq=False)
class LocalSystems:
    """The neighbours of every cell, and the prediction from them.

    order: the observed cells in their order, (n,)
    cells: the observed cells that are the neighbours, in the order of the cells, and last the cell itself, (n, m + 1)
    present: whether a neighbour exists, (n, m + 1); the first cells have fewer
    rows: F^-1/2 (-b, 1), the rows of W, (n, m + 1), with the weights b and the variance F of the prediction; zero where
        no neighbour exists
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
    matrices = covariances_among(operator, cells)
    if not bool(present.all()):
        matrices.masked_fill_(~(present[:, :, None] & present[:, None, :]), 0.0)
        matrices.diagonal(dim1=-2, dim2=-1).masked_fill_(~present, 1.0)
    return matrices


def covariances_among(operator: LatentKronecker, cells: Tensor, dtype: torch.dtype = torch.float64) -> Tensor:
    """The entries of A among the cells of every group, (b, m, m), of which only the lower triangles are computed.

    cells: observed ones, (b, m)
    """
    size = cells.shape[1]
    found = operator.noise.new_zeros(len(cells), size, size, dtype=dtype)
    for start in range(0, size, COLUMNS):
        columns = slice(start, start + COLUMNS)
        found[:, start:, columns] = operator.latent_entries(cells[:, start:, None], cells[:, None, columns])
    found.diagonal(dim1=-2, dim2=-1).add_(operator.noise_diagonal()[cells].to(dtype))
    return found


def lower_triangle(size: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Rows and columns of the entries on and below the diagonal of a square matrix."""
    rows, columns = torch.tril_indices(size, size, device=device)
    return rows, columns


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
    for start in range(0, n, step):
        part = slice(start, start + step)
        factor, number = positive_cholesky(local_covariances(operator, cells[part], present[part]))
        repaired += number
        # With A_loc = L L^T, the last row of L^-1 is F^-1/2 (-b, 1).
        last = factor.new_zeros(factor.shape[1], 1, len(factor))
        last[-1] = 1.0
        rows[part] = backward(factor.permute(1, 2, 0).contiguous(), last)[:, 0].mT
    return LocalSystems(order, cells, present, rows.masked_fill_(~present, 0.0), repaired)


# Libraries solve with many small triangular matrices one by one, with all threads for each, which takes a hundred times
# as long as the arithmetic when cores are busy. These loops go over the rows of all matrices at once.


def forward(factors: Tensor, rhs: Tensor) -> Tensor:
    """L^-1 R for lower triangular matrices (m, m, b) and R (m, s, b); changes R in place."""
    for k in range(len(factors)):
        if k:
            rhs[k] -= (factors[k, :k, None] * rhs[:k]).sum(dim=0)
        rhs[k] /= factors[k, k]
    return rhs


def backward(factors: Tensor, rhs: Tensor) -> Tensor:
    """L^-T R for lower triangular matrices (m, m, b) and R (m, s, b); changes R in place."""
    for k in range(len(factors) - 1, -1, -1):
        if k + 1 < len(factors):
            rhs[k] -= (factors[k + 1 :, k, None] * rhs[k + 1 :]).sum(dim=0)
        rhs[k] /= factors[k, k]
    return rhs
