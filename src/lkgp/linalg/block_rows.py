"""A sparse triangular matrix W whose rows come in dense blocks that share their columns."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from scipy.sparse import csr_matrix
from torch import Tensor

from lkgp.linalg.triangular import triangular_inverse

# Blocks are multiplied together as long as they have at most this many columns, with one number for each right-hand
# side: a cache holds them and their rows, which are then read from memory only once for W^T W.
WORK_COLUMNS = 2**15


@dataclass(frozen=True, eq=False)
class BlockRows:
    """W, (n, n), lower triangular in the order in which the blocks come: by time, then by group.

    groups: for every group, the columns of its blocks, (t, w), and their rows, (t, g, w). The last g columns are the
        cells of the rows themselves. The column of an absent cell is n, and its row is zero.
    """

    groups: Sequence[tuple[Tensor, Tensor]]
    size: int

    def squared_times(self, x: Tensor) -> Tensor:
        """W^T W X for X (n, c)."""
        padded = torch.cat([x, x.new_zeros(1, x.shape[1])])
        result = torch.zeros_like(padded)
        for chunk in self._chunks:
            rows = chunk.rows.to(x.dtype)
            gathered = padded.index_select(0, chunk.cells.reshape(-1)).view(*chunk.cells.shape, -1)
            # Products with a transposed W, or of tall and narrow matrices, take several times as long.
            products = (rows @ gathered).mT.contiguous() @ rows
            found = products.mT.reshape(-1, x.shape[1])
            # Sums by a sparse matrix take a tenth of the time of `index_add_`.
            result[chunk.distinct] += torch.from_numpy(chunk.sums @ found.cpu().numpy()).to(found)
        return result[:-1]

    def solve(self, z: Tensor) -> Tensor:
        """W^-1 Z for Z (n, c), one block after the other."""
        padded = torch.cat([z, z.new_zeros(1, z.shape[1])])
        result = torch.zeros_like(padded)
        blocks = [(cells, *self._own(cells, rows, z.dtype)) for cells, rows in self.groups]
        for t in range(len(self.groups[0][0])):
            for cells, before, inverse in blocks:
                own = cells[t, -len(inverse[t]) :]
                # x_own = W_own^-1 (z_own - W_before x_before)
                known = before[t].to(z.dtype) @ result[cells[t, : -len(own)]]
                result[own] = inverse[t] @ (padded[own] - known)
                result[-1] = 0.0
        return result[:-1]

    def _own(self, cells: Tensor, rows: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """The rows left of the block itself, (t, g, w - g), and the inverses of the rest, (t, g, g)."""
        width = rows.shape[1]
        own = rows[:, :, -width:].to(dtype).clone()
        own.diagonal(dim1=1, dim2=2).add_((cells[:, -width:] == self.size).to(dtype))
        return rows[:, :, :-width], triangular_inverse(own)

    def log_diagonal(self) -> Tensor:
        """The sum of the logarithms of the diagonal of W, a scalar in float64."""
        total = torch.zeros((), dtype=torch.float64)
        for cells, rows in self.groups:
            width = rows.shape[1]
            diagonal = rows[:, :, -width:].diagonal(dim1=1, dim2=2).double()
            total = total.to(rows.device) + diagonal[cells[:, -width:] < self.size].log().sum()
        return total

    @cached_property
    def _chunks(self) -> list["Chunk"]:
        found = []
        for cells, rows in self.groups:
            step = max(1, WORK_COLUMNS // cells.shape[1])
            found += [Chunk.of(*part) for part in zip(cells.split(step), rows.split(step), strict=True)]
        return found


@dataclass(frozen=True, eq=False)
class Chunk:
    """Some blocks of a group.

    cells, rows: their columns, (m, w), and rows, (m, g, w)
    distinct: the different cells among the columns, (u,)
    sums: the matrix (u, m w) that adds up what belongs to the same cell
    """

    cells: Tensor
    rows: Tensor
    distinct: Tensor
    sums: csr_matrix

    @classmethod
    def of(cls, cells: Tensor, rows: Tensor) -> "Chunk":
        distinct, which = torch.unique(cells, return_inverse=True)
        places = which.reshape(-1).cpu().numpy()
        order = np.argsort(places, kind="stable").astype(np.int32)
        pointers = np.concatenate([[0], np.cumsum(np.bincount(places, minlength=len(distinct)))])
        sums = csr_matrix((np.ones(len(order), dtype=np.float32), order, pointers), shape=(len(distinct), len(order)))
        return cls(cells, rows, distinct, sums)
