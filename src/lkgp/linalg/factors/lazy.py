"""A factor that is never stored in float64: its values are recomputed block by block in every product."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from lkgp.linalg.factors import base
from lkgp.linalg.factors.base import CovarianceFunction, Factor
from lkgp.linalg.factors.dense import DenseFactor
from lkgp.linalg.noise_roots import NoiseRoot, cholesky_root

# Single entries are computed in blocks of this many pairs of points: a kernel computes some ten numbers for each on the
# way, and blocks that stay in the cache are faster.
PAIRS_AT_ONCE = 2**18
# Multiplications that take as long as the evaluation of a kernel for a pair of points: 16 to 18 ns on one core for
# Matern-1/2 over three columns, where a multiplication took 0.041 ns.
EVALUATION = 400.0
# In float32, in which solves iterate, a matrix of up to so many numbers (2 GB) is kept: to evaluate a kernel takes as
# long as hundreds of multiplications, so that products with few columns would take many times as long.
MOST_SINGLE_NUMBERS = 2**29
# An evaluation serves all columns of a product: the points of the other factors, times the right-hand sides. About this
# many are assumed.
SHARING = 100.0


@dataclass(frozen=True, eq=False)
class OuterProducts:
    """left right^T for left and right (n_k, m), stored as two thin matrices, plus single entries; sums concatenate.

    rows, columns, values: of the single entries, (e,)
    """

    left: Tensor
    right: Tensor
    rows: Tensor
    columns: Tensor
    values: Tensor

    def __mul__(self, share: float) -> "OuterProducts":
        return OuterProducts(self.left * share, self.right, self.rows, self.columns, self.values * share)

    def __add__(self, other: "OuterProducts") -> "OuterProducts":
        left, right = (torch.cat(pair, dim=1) for pair in ((self.left, other.left), (self.right, other.right)))
        pairs = ((self.rows, other.rows), (self.columns, other.columns), (self.values, other.values))
        return OuterProducts(left, right, *(torch.cat(pair) for pair in pairs))


class LazyFactor(Factor):
    """A kernel matrix whose values are computed in every product and then discarded; in float32 it may be dense.

    points, others: (n_k, d_k) and (m_k, d_k), the points of the rows and of the columns
    evaluate: the kernel, (..., a, d_k), (..., b, d_k) -> (..., a, b)
    """

    kind = "lazy"

    def __init__(self, points: Tensor, others: Tensor, *, evaluate: Callable[[Tensor, Tensor], Tensor]) -> None:
        super().__init__(points, others, evaluate=evaluate)
        self.points, self.others, self.evaluate = points, others, evaluate

    @classmethod
    def of(cls, function: CovarianceFunction, coords: Tensor) -> "LazyFactor":
        return cls(coords, coords, evaluate=function)

    @classmethod
    def suits(cls, function: CovarianceFunction, coords: Tensor) -> bool:
        # A matrix of so many points is never formed.
        return len(coords) > base.MOST_DENSE_POINTS

    @classmethod
    def product_cost(cls, points: int) -> float:
        # Products are in float32, with a few exceptions.
        if points**2 <= MOST_SINGLE_NUMBERS:
            return float(points)
        return (1.0 + EVALUATION / SHARING) * float(points)

    @classmethod
    def stored_numbers(cls, points: int) -> float:
        # one block of rows at a time, with what a kernel computes on the way, and the matrix in float32
        kept = 0.5 * float(points) ** 2 if points**2 <= MOST_SINGLE_NUMBERS else 0.0
        return 4.0 * base.WORK_ENTRIES + kept

    def rows_at(self, index: Tensor) -> Tensor:
        return self.evaluate(self.points[index], self.others)

    def rounded(self, dtype: torch.dtype) -> Factor:
        if dtype == torch.float32 and not torch.is_grad_enabled() and self._size().numel() <= MOST_SINGLE_NUMBERS:
            matrix = self.points.new_empty(self._size(), dtype=dtype)
            size = max(1, base.WORK_ENTRIES // len(self.others))
            for points, rows in zip(self.points.split(size), matrix.split(size), strict=True):
                rows.copy_(self.evaluate(points, self.others))
            return DenseFactor(matrix)
        points, others = self.points.to(dtype), self.others.to(dtype)
        known, own = self.points.dtype, self.evaluate
        return LazyFactor(points, others, evaluate=lambda a, b: own(a.to(known), b.to(known)).to(dtype))

    def pull_back(self, left: Tensor, right: Tensor) -> OuterProducts:
        none = torch.zeros(0, dtype=torch.long, device=left.device)
        return OuterProducts(left, right, none, none, left.new_zeros(0))

    def gather_weights(self, rows: Tensor, columns: Tensor, weights: Tensor) -> OuterProducts:
        # The same pairs of points occur again and again.
        pairs, which = torch.unique(rows * len(self.others) + columns, return_inverse=True)
        values = torch.bincount(which, weights, minlength=len(pairs))
        none = weights.new_zeros(len(self.points), 0), weights.new_zeros(len(self.others), 0)
        return OuterProducts(*none, pairs // len(self.others), pairs % len(self.others), values)

    def inner(self, weights: OuterProducts) -> Tensor:
        total = weights.values.new_zeros((), dtype=self.dtype)
        if weights.left.shape[1]:
            total = total + (weights.left.to(self.dtype) * self._matmul(weights.right.to(self.dtype))).sum()
        if len(weights.values):
            total = total + (weights.values.to(self.dtype) * self.entries(weights.rows, weights.columns)).sum()
        return total

    # Draws

    def noise_root(self) -> NoiseRoot:
        def blocks() -> Iterator[Tensor]:
            for points in self.points.split(max(1, base.WORK_ENTRIES // len(self.others))):
                yield self.evaluate(points, self.others).detach().double()

        return cholesky_root(blocks, len(self.points), float(self._diagonal().detach().max()))

    @property
    def noise_root_bytes(self) -> float:
        # a matrix in float64, and a block of rows with what a kernel computes on the way
        return 8.0 * (float(len(self.points)) ** 2 + 4.0 * base.WORK_ENTRIES)

    # Methods that `LinearOperator` requires of its subclasses.

    def _matmul(self, rhs: Tensor) -> Tensor:
        def product(points: Tensor) -> Tensor:
            return self.evaluate(points, self.others) @ rhs

        blocks = self.points.split(max(1, base.WORK_ENTRIES // len(self.others)))
        if not torch.is_grad_enabled():
            return torch.cat([product(points) for points in blocks])
        # Checkpointing recomputes each block in the backward pass, so gradients need no more memory than values.
        return torch.cat([checkpoint(product, points, use_reentrant=False) for points in blocks])

    def _size(self) -> torch.Size:
        return torch.Size((len(self.points), len(self.others)))

    def _transpose_nonbatch(self) -> "LazyFactor":
        return LazyFactor(self.others, self.points, evaluate=lambda a, b: self.evaluate(b, a).mT)

    def _diagonal(self) -> Tensor:
        index = torch.arange(len(self.points), device=self.points.device)
        return self._get_indices(index, index)

    def _get_indices(self, row_index: Tensor, col_index: Tensor, *batch_indices: Tensor) -> Tensor:
        row_index, col_index = torch.broadcast_tensors(row_index, col_index)
        pairs = zip(row_index.flatten().split(PAIRS_AT_ONCE), col_index.flatten().split(PAIRS_AT_ONCE), strict=True)
        # every pair is a matrix with one row and one column, in a batch
        found = [self.evaluate(self.points[i, None], self.others[j, None])[:, 0, 0] for i, j in pairs]
        return torch.cat(found).view(row_index.shape) if found else self.points.new_zeros(row_index.shape)
