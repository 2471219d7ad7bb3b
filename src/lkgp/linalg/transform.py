"""The transform between cells and the modes of a Kronecker product, factor by factor."""

from collections.abc import Sequence
from itertools import permutations
from math import prod

import torch
from torch import Tensor

# Products of matrices that are both transposed are slow where one has no more rows than this; see `Transform.down`.
# `scripts/calibrate_costs.py` measures it.
FEW_ROWS = 256


class Transform:
    """F = Q_1 (x) ... (x) Q_d between weights (R, c) and cells (c, N), for factors in an order that makes it cheap.

    bases: Q_k, (n_k, r_k)
    """

    def __init__(self, bases: list[Tensor]) -> None:
        self.bases = bases

    def up(self, weights: Tensor) -> Tensor:
        """F W as (c, N): the front axis is transformed and put last, factor by factor, so no array is ever permuted."""
        columns = weights.shape[1]
        for q in self.bases:
            weights = weights.reshape(q.shape[1], -1).mT @ q.mT
        return weights.reshape(columns, -1)

    def down(self, cells: Tensor) -> Tensor:
        """F^T X as (R, c): the last axis is transformed and put in front."""
        columns = len(cells)
        for q in reversed(self.bases):
            rows = cells.reshape(-1, len(q))
            cells = (rows @ q).mT.contiguous() if len(rows) <= FEW_ROWS else q.mT @ rows.mT
        return cells.reshape(-1, columns)

    @property
    def multiplications(self) -> float:
        """Of one column up and down."""
        return transform_multiplications([(len(q), q.shape[1]) for q in self.bases])

    def to(self, dtype: torch.dtype) -> "Transform":
        return Transform([q.to(dtype) for q in self.bases])


def transform_multiplications(shapes: Sequence[tuple[int, int]]) -> float:
    """Of one column from ranks to points and back, factor by factor in this order; `shapes` are (n_k, r_k)."""
    done = range(len(shapes))
    return 2.0 * sum(prod(n for n, _ in shapes[: i + 1]) * prod(r for _, r in shapes[i:]) for i in done)


def cheapest_order(shapes: Sequence[tuple[int, int]]) -> tuple[int, ...]:
    """The order of the axes in which a transform takes the fewest multiplications; `shapes` are (n_k, r_k)."""
    orders = permutations(range(len(shapes)))
    return min(orders, key=lambda order: transform_multiplications([shapes[k] for k in order]))
