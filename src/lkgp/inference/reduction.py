"""Reduce the observations along one axis, and factorise the small dense system that remains.

Call one factor T (q points) and the product of the others S. With K_T = U U^T of rank r, the observed cells of fibre i
(one point of S, some of T) have whitened rows D_i^-1/2 M_i U = Q_i R_i, where M_i selects the observed points of T.
With Q = diag(Q_i), R the stacked R_i, and (x) meaning that block (i, j) is K_S[i, j] R_i R_j^T,

    D^-1/2 A D^-1/2  =  Q C Q^T + (I - Q Q^T),      C = R (K_S (x) I) R^T + I,      m x m with m = sum_i min(n_i, r).

This is exact: if T has full rank, it is A itself in another basis, and if its rank is low, m is far smaller than n.
"""

from collections.abc import Sequence
from math import prod

import torch
from torch import Tensor

from lkgp.data.grid import PartialGrid
from lkgp.errors import TooLargeError
from lkgp.linalg.factors import Factor

# The variance is computed for a few fibres at a time, in arrays of about this many numbers (64 MB in float64).
VARIANCE_ENTRIES = 2**23


def fibres(grid: PartialGrid, axis: int) -> tuple[Tensor, Tensor]:
    """The fibres along `axis` that have observations.

    Returns the number of the fibre of each observed cell, (n,), and the flat index of each fibre over the other axes,
    (f,).
    """
    rest = torch.zeros_like(grid.index)
    for k, positions in enumerate(grid.axis_index):
        if k != axis:
            rest = rest * grid.shape[k] + positions
    flat, label = torch.unique(rest, return_inverse=True)
    return label, flat


def reduced_size(grid: PartialGrid, axis: int, rank: int) -> int:
    """m = sum_i min(n_i, rank) over the fibres along `axis`."""
    # with two factors, the fibres along one are the points of the other
    per_fibre = grid.counts[1 - axis] if len(grid.shape) == 2 else grid.observed.sum(dim=axis)
    return int(per_fibre.clamp(max=rank).sum())


class Reduction:
    """The reduced and factorised system for one set of hyperparameters, in float64 throughout.

    factors: K_k, (n_k, n_k)
    noise: the diagonal of D, (n,)
    axis: which factor is T
    tolerance: bound on the change in the log-likelihood, per observation, caused by truncating the spectrum of K_T
    max_size: maximum number of unknowns
    """

    def __init__(
        self,
        factors: Sequence[Factor],
        noise: Tensor,
        grid: PartialGrid,
        axis: int,
        tolerance: float = 1e-10,
        max_size: float = float("inf"),
    ) -> None:
        self.grid, self.axis = grid, axis
        self.noise = noise.double()
        diagonals = [factor.entries_diagonal().double() for factor in factors]
        self.label, fibre_index = fibres(grid, axis)
        self.position = grid.axis_index[axis]
        other_shape = [size for k, size in enumerate(grid.shape) if k != axis] or [1]
        fibre_axes = torch.unravel_index(fibre_index, other_shape)
        self.others = [k for k in range(len(factors)) if k != axis]
        self.fibre_axes = dict(zip(self.others, fibre_axes, strict=False))

        # Omitting eigenvalues l of K_T changes log det A by at most (sum of l) * sum_i K_S[i, i] / (smallest noise of
        # fibre i).
        fibre_diagonal = prod(
            (diagonals[k][self.fibre_axes[k]] for k in self.others), start=self.noise.new_ones(len(fibre_index))
        )
        least_noise = torch.full_like(fibre_diagonal, torch.inf).scatter_reduce_(0, self.label, self.noise, "amin")
        spread = float((fibre_diagonal / least_noise).sum())
        self.basis = factors[axis].basis(largest_tail=tolerance * len(self.noise) / max(spread, 1e-300))
        self.truncation = self.basis.tail * spread / len(self.noise)
        size = reduced_size(grid, axis, self.basis.rank)
        if size > max_size:
            raise TooLargeError(f"the observations reduce to {size} unknowns, more than max_size={max_size:.0f}")

        self._reduce()
        self.segment_axes = {k: axes[self.segment] for k, axes in self.fibre_axes.items()}
        self.cov_others = []
        for k, index in self.segment_axes.items():
            # only the rows of points that have observations
            points, place = torch.unique(index, return_inverse=True)
            rows = factors[k].rows_at(points).double().index_select(1, index)
            self.cov_others.append(rows.index_select(0, place))
        core = self.reduced @ self.reduced.mT
        for cov in self.cov_others:
            core.mul_(cov)
        core.diagonal().add_(1.0)
        self.cholesky = torch.linalg.cholesky(core)
        self.logdet = 2 * self.cholesky.diagonal().log().sum() + self.noise.log().sum()

    @property
    def size(self) -> int:
        """m, the order of the factorised matrix."""
        return len(self.segment)

    def _reduce(self) -> None:
        """QR of the whitened rows of each fibre, for all fibres with the same number of observations at once.

        Sets reduced: R, (m, r); rows: Q^T D^-1/2 with its columns sorted by T, (m, q); segment: the fibre of each row,
            (m,)
        """
        counts = torch.bincount(self.label)
        order = torch.argsort(self.label, stable=True)
        starts = counts.cumsum(0) - counts
        whitened = self.basis.root[self.position] / self.noise.sqrt()[:, None]
        reduced, rows, segment = [], [], []
        self.groups: list[tuple[Tensor, Tensor, int]] = []
        for count in torch.unique(counts).tolist():
            which = torch.nonzero(counts == count).flatten()
            cells = order[starts[which][:, None] + torch.arange(count, device=order.device)]  # (fibres, count)
            block = whitened[cells]
            if count <= self.basis.rank:  # nothing to reduce
                basis, small = (
                    torch.eye(count, dtype=block.dtype, device=block.device).expand(len(which), -1, -1),
                    block,
                )
            else:
                basis, small = torch.linalg.qr(block)
            width = basis.shape[2]
            self.groups.append((which, cells, width))
            weighted = (basis / self.noise.sqrt()[cells][:, :, None]).mT  # (fibres, width, count)
            placed = weighted.new_zeros(len(which), width, self.grid.shape[self.axis])
            placed.scatter_(2, self.position[cells][:, None, :].expand(-1, width, -1), weighted)
            reduced.append(small.reshape(-1, small.shape[2]))
            rows.append(placed.flatten(0, 1))
            segment.append(which.repeat_interleave(width))
        self.reduced, self.rows, self.segment = torch.cat(reduced), torch.cat(rows), torch.cat(segment)

    def solve(self, rhs: Tensor) -> Tensor:
        """A^-1 B for B (n, c)."""
        # A^-1 B = D^-1/2 [Q C^-1 Q^T + I - Q Q^T] D^-1/2 B
        projected = self._project(rhs)
        inner = torch.cholesky_solve(projected, self.cholesky) - projected
        return rhs / self.noise[:, None] + self._spread(inner)

    def _project(self, values: Tensor) -> Tensor:
        """Q^T D^-1/2 X for X (n, c), as (m, c)."""
        cells = values.new_zeros(int(self.label.max()) + 1, self.rows.shape[1], values.shape[1])
        cells[self.label, self.position] = values
        return torch.stack(
            [(self.rows * cells[:, :, c][self.segment]).sum(dim=1) for c in range(values.shape[1])], dim=1
        )

    def _spread(self, values: Tensor) -> Tensor:
        """D^-1/2 Q Z for Z (m, c), as (n, c)."""
        num_fibres = int(self.label.max()) + 1
        columns = []
        for column in values.mT:
            cells = values.new_zeros(num_fibres, self.rows.shape[1]).index_add_(
                0, self.segment, self.rows * column[:, None]
            )
            columns.append(cells[self.label, self.position])
        return torch.stack(columns, dim=1)

    def trace_weights(self) -> tuple[list[Tensor], Tensor]:
        """The weights of tr(A^-1 dA): those of dK_k, d tensors (n_k, n_k), and those of dD, diag(A^-1), (n,)."""
        inverse = torch.cholesky_inverse(self.cholesky)
        diagonal = self._inverse_diagonal(inverse)
        weights: dict[int, Tensor] = {}
        # dK_T: rows^T (C^-1 o K_S) rows on the span of Q, and D^-1 minus that span outside it
        along = inverse.clone()
        for cov in self.cov_others:
            along.mul_(cov)
        fibre_diagonal = prod((cov.diagonal() for cov in self.cov_others), start=self.noise.new_ones(self.size))
        along.diagonal().sub_(fibre_diagonal)
        weight = self.rows.mT @ along @ self.rows
        cell_diagonal = self.noise.new_ones(int(self.label.max()) + 1).index_copy_(0, self.segment, fibre_diagonal)[
            self.label
        ]
        weight.diagonal().index_add_(0, self.position, cell_diagonal / self.noise)
        weights[self.axis] = weight
        # dK_k of the other factors: C^-1 o (R R^T) o (all others but k), summed over equal points of factor k
        if self.others:
            across = inverse.mul_(self.reduced @ self.reduced.mT)
            for k in self.others:
                part = across.clone() if len(self.others) > 1 else across
                for other, cov in zip(self.others, self.cov_others, strict=True):
                    if other != k:
                        part.mul_(cov)
                size, index = self.grid.shape[k], self.segment_axes[k]
                folded = part.new_zeros(size, self.size).index_add_(0, index, part)
                weights[k] = folded.new_zeros(size, size).index_add_(1, index, folded)
        return [weights[k] for k in range(len(weights))], diagonal

    def _inverse_diagonal(self, inverse: Tensor) -> Tensor:
        """The diagonal of A^-1, (n,), from C^-1, (m, m)."""
        # A^-1 = D^-1 + D^-1/2 Q (C^-1 - I) Q^T D^-1/2, and fibres share no cells, so only diagonal blocks are needed
        diagonal, start = 1 / self.noise, 0
        for which, cells, width in self.groups:
            stop, fibres = start + len(which) * width, len(which)
            blocks = inverse[start:stop, start:stop].view(fibres, width, fibres, width)
            blocks = torch.diagonal(blocks, dim1=0, dim2=2).movedim(-1, 0)  # (fibres, width, width)
            places = self.position[cells][:, None, :].expand(-1, width, -1)
            weighted = self.rows[start:stop].view(fibres, width, -1).gather(2, places)  # Q^T D^-1/2
            change = (weighted * (blocks @ weighted - weighted)).sum(dim=1)
            diagonal.index_add_(0, cells.flatten(), change.flatten())
            start = stop
        return diagonal

    def explained_variance(self, crosses: tuple[Tensor, ...]) -> Tensor:
        """k_*^T A^-1 k_* at every cell of another grid, (n'_1, ..., n'_d).

        crosses: C_k, (n'_k, n_k), covariances of the points of that grid with the points of factor k
        """
        coefficients = self.basis.coefficients(crosses[self.axis].double())
        new_shape = [len(crosses[k]) for k in self.others]
        explained = []
        cells = torch.arange(prod(new_shape), device=self.noise.device)
        for cell in cells.split(max(1, VARIANCE_ENTRIES // self.reduced.numel())):
            axes = torch.unravel_index(cell, new_shape) if new_shape else ()
            weight = self.noise.new_ones(len(cell), self.size)
            for k, position in zip(self.others, axes, strict=True):
                weight = weight * crosses[k].double()[position].index_select(1, self.segment_axes[k])
            # B_i = diag(K_S[i, .]) R; then k_*^T A^-1 k_* = |L^-1 B_i c_t|^2
            blocks = weight.mT[:, :, None] * self.reduced[:, None, :]
            half = torch.linalg.solve_triangular(self.cholesky, blocks.flatten(1), upper=False).view(blocks.shape)
            gram = torch.einsum("mia,mib->iab", half, half)
            explained.append(torch.einsum("ta,iab,tb->it", coefficients, gram, coefficients))
        whole = torch.cat(explained).view(*new_shape, len(coefficients))
        return whole.movedim(-1, self.axis)
