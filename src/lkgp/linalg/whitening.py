"""Coordinates in which H = I + S F^T P^T D^-1 P F S is nearly the identity: its diagonal, and where that is not enough a dense block.

Where cells are missing at random the diagonal is nearly all of H. For other gaps a block of H itself over the leading modes is
factorised; what it leaves is bounded by the first mode left out, whatever the gaps.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import permutations
from math import prod

import torch
from torch import Tensor

# There is a block if so many leading modes, whitened by the diagonal alone, are worse conditioned than this.
TRIAL_MODES, TRIAL_CONDITION = 300, 10.0
# Its size is sought in these steps.
BLOCK_STEP = 500
# Iterations over the root of the condition number that the block leaves, as measured on learning curves.
ITERATIONS_PER_ROOT = 4.0
# See `Transform.down`.
FEW_ROWS = 256


class Transform:
    """F = Q_1 (x) ... (x) Q_d between weights (R, c) and cells (c, N), for factors in an order that makes it cheap."""

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
            # Few rows, both matrices transposed, is a case that matrix products are slow in.
            cells = (rows @ q).mT.contiguous() if len(rows) <= FEW_ROWS else q.mT @ rows.mT
        return cells.reshape(-1, columns)

    @property
    def multiplications(self) -> float:
        """Of one column up and down."""
        return transform_multiplications([(len(q), q.shape[1]) for q in self.bases])

    def to(self, dtype: torch.dtype) -> "Transform":
        return Transform([q.to(dtype) for q in self.bases])


@dataclass(frozen=True, eq=False)
class Whitening:
    """C with C C^T ~ H: a triangular block over some modes, a diagonal over the others.

    modes: (k,); block: lower triangular, (k, k); diagonal: (R,), unused where a mode is in the block
    """

    modes: Tensor
    block: Tensor
    diagonal: Tensor

    @property
    def logdet(self) -> float:
        """log det C C^T, of the numbers as they are rounded here."""
        rest = self.diagonal.double().log().index_fill(0, self.modes, 0.0).sum()
        return 2 * float(rest + self.block.diagonal().double().log().sum())

    def solve(self, weights: Tensor) -> Tensor:
        """C^-1 W for W (R, c)."""
        top = torch.linalg.solve_triangular(self.block, weights[self.modes], upper=False)
        return (weights / self.diagonal[:, None]).index_copy_(0, self.modes, top)

    def solve_t(self, weights: Tensor) -> Tensor:
        """C^-T W for W (R, c)."""
        top = torch.linalg.solve_triangular(self.block.mT, weights[self.modes], upper=True)
        return (weights / self.diagonal[:, None]).index_copy_(0, self.modes, top)

    def to(self, dtype: torch.dtype) -> "Whitening":
        return Whitening(self.modes, self.block.to(dtype), self.diagonal.to(dtype))


def transform_multiplications(shapes: Sequence[tuple[int, int]]) -> float:
    """Of one column from ranks to points and back, factor by factor in this order; `shapes` are (n_k, r_k)."""
    return 2.0 * sum(prod(n for n, _ in shapes[: i + 1]) * prod(r for _, r in shapes[i:]) for i in range(len(shapes)))


def cheapest_order(shapes: list[tuple[int, int]]) -> tuple[int, ...]:
    """The order of the axes in which a transform from ranks to points takes the fewest multiplications; `shapes` are (n_k, r_k)."""
    return min(
        permutations(range(len(shapes))), key=lambda order: transform_multiplications([shapes[k] for k in order])
    )


def make_whitening(
    transform: Transform, scale: Tensor, precisions: Tensor, shape: tuple[int, ...], max_block: int, columns: int
) -> Whitening:
    """The diagonal of H, and a dense block over the leading modes if the gaps make the diagonal a poor stand-in."""
    # diag H = 1 + S^2 (Q_1^2 (x) ... (x) Q_d^2)^T D^-1
    squares = Transform([q.square() for q in transform.bases])
    diagonal = 1 + scale.square() * squares.down(precisions[None])[:, 0]
    root = diagonal.sqrt()
    trial, ranks = leading_rectangle(transform.bases, scale.device), [q.shape[1] for q in transform.bases]
    whitened = masked_gram(transform.bases, scale, precisions, shape, trial) / root[trial][:, None] / root[trial]
    eigenvalues = torch.linalg.eigvalsh(whitened)
    size = 0
    if float(eigenvalues[-1] / eigenvalues[0].clamp(min=1e-300)) > TRIAL_CONDITION:
        size = cheapest_block(
            diagonal.sort(descending=True).values, transform.multiplications, shape, ranks, max_block, columns
        )
    modes = torch.topk(diagonal, size).indices.sort().values
    block = torch.linalg.cholesky(masked_gram(transform.bases, scale, precisions, shape, modes))
    return Whitening(modes, block, root)


def block_multiplications(shape: Sequence[int], ranks: Sequence[int], modes: int) -> float:
    """Of `masked_gram` over so many modes, at the most, and of its factorisation."""
    longest = max(range(len(shape)), key=lambda k: shape[k])
    distinct = min(modes, prod(r for k, r in enumerate(ranks) if k != longest))
    return float(prod(shape) * distinct**2 + shape[longest] * modes**2 + modes**3 / 6)


def cheapest_block(
    diagonal: Tensor, product: float, shape: Sequence[int], ranks: Sequence[int], max_block: int, columns: int
) -> int:
    """How many leading modes make building the block and solving with it cheapest, by multiplications.

    diagonal: of H, (R,), descending: without the first k, the condition number is that of the next, about
    product: multiplications of one product with the system
    shape, ranks: points and modes of every factor
    """

    def cost(k: int) -> float:
        left = float(diagonal[k]) if k < len(diagonal) else 1.0
        iterations = ITERATIONS_PER_ROOT * left**0.5
        # Multiplications of the block, in float64 and scattered, count four times those of the products, which are in float32.
        return 4 * block_multiplications(shape, ranks, k) + columns * iterations * (product + k**2)

    sizes = range(0, min(max_block, len(diagonal)) + 1, BLOCK_STEP)
    return min(sizes, key=cost)


def leading_rectangle(bases: list[Tensor], device: torch.device) -> Tensor:
    """The numbers of about TRIAL_MODES modes: every combination of the leading modes of each factor."""
    each = max(1, int(TRIAL_MODES ** (1 / len(bases))))
    modes = torch.zeros(1, dtype=torch.long, device=device)
    for q in bases:
        rank = q.shape[1]  # eigenvalues ascend
        modes = (modes[:, None] * rank + torch.arange(max(0, rank - each), rank, device=device)).flatten()
    return modes


def masked_gram(
    bases: list[Tensor], scale: Tensor, precisions: Tensor, shape: tuple[int, ...], modes: Tensor
) -> Tensor:
    """The block of H over some modes, exact, (k, k).

    Call the longest axis S and the others T. For modes (a, b) and (a', b') of S and T, the block is
    sum_i Q_S[i, a] Q_S[i, a'] w_bb'[i], with w_bb'[i] = sum_t (precision of cell i, t) F_T[t, b] F_T[t, b'].
    """
    longest = max(range(len(shape)), key=lambda k: shape[k])
    axes = list(torch.unravel_index(modes, [q.shape[1] for q in bases]))
    main = bases[longest][:, axes[longest]]  # (n_S, k)
    cells = precisions.view(shape).movedim(longest, 0).reshape(shape[longest], -1)
    others = [k for k in range(len(shape)) if k != longest]
    flat = torch.zeros_like(modes)
    for k in others:
        flat = flat * bases[k].shape[1] + axes[k]
    distinct, of_mode = torch.unique(flat, return_inverse=True)
    rest = bases[0].new_ones(1, len(distinct))
    if others:
        for k, column in zip(others, torch.unravel_index(distinct, [bases[k].shape[1] for k in others]), strict=True):
            rest = (rest[:, None, :] * bases[k][:, column]).flatten(0, 1)
    gram = main.new_empty(len(modes), len(modes))
    for b in range(len(distinct)):
        weights = cells @ (rest[:, b, None] * rest)  # (n_S, distinct)
        rows = torch.nonzero(of_mode == b).flatten()
        gram[rows] = main[:, rows].mT @ (main * weights[:, of_mode])
    gram.mul_(scale[modes]).mul_(scale[modes][:, None])
    gram.diagonal().add_(1.0)
    return gram
