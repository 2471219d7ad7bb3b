"""The transform between cells and the modes of a Kronecker product, factor by factor."""

from collections.abc import Sequence
from itertools import permutations
from math import prod

import torch
from torch import Tensor

# A product of two transposed matrices is slow if one of them has at most this many rows; see `Transform.down`.
# `scripts/calibrate_costs.py` measures it.
FEW_ROWS = 256


class Transform:
    """F = Q_1 (x) ... (x) Q_d between weights (R, c) and cells (c, N), with the factors in a cheap order.

    bases: Q_k, (n_k, r_k)
    """

    def __init__(self, bases: list[Tensor]) -> None:
        self.bases = bases

    def up(self, weights: Tensor) -> Tensor:
        """F W as (c, N): each factor transforms the first axis and moves it last, so no array is ever permuted."""
        columns = weights.shape[1]
        for q in self.bases:
            weights = weights.reshape(q.shape[1], -1).mT @ q.mT
        return weights.reshape(columns, -1)

    def down(self, cells: Tensor) -> Tensor:
        """F^T X as (R, c): each factor transforms the last axis and moves it first."""
        columns = len(cells)
        for q in reversed(self.bases):
            rows = cells.reshape(-1, len(q))
            cells = (rows @ q).mT.contiguous() if len(rows) <= FEW_ROWS else q.mT @ rows.mT
        return cells.reshape(-1, columns)

    @property
    def multiplications(self) -> float:
        """Multiplications to transform one column up and down."""
        return transform_multiplications([(len(q), q.shape[1]) for q in self.bases])

    def to(self, dtype: torch.dtype) -> "Transform":
        return Transform([q.to(dtype) for q in self.bases])


def transform_multiplications(shapes: Sequence[tuple[int, int]]) -> float:
    """Multiplications to transform one column up and down, in this order of factors; `shapes` are (n_k, r_k)."""
    done = range(len(shapes))
    return 2.0 * sum(prod(n for n, _ in shapes[: i + 1]) * prod(r for _, r in shapes[i:]) for i in done)


def cheapest_order(shapes: Sequence[tuple[int, int]]) -> tuple[int, ...]:
    """The order of the axes in which a transform takes the fewest multiplications; `shapes` are (n_k, r_k)."""
    orders = permutations(range(len(shapes)))
    return min(orders, key=lambda order: transform_multiplications([shapes[k] for k in order]))
