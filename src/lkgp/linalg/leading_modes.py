"""The exact block of H = I + S F^T P^T D^-1 P F S over the leading modes: its best size, and how to build it."""

from collections.abc import Sequence
from math import prod

import torch
from torch import Tensor

# Block sizes are compared in steps of this many modes. A finer search would gain little: the cost is flat near its
# minimum.
BLOCK_STEP = 500
# Iterations over the root of the condition number that the block leaves, as measured on learning curves: conjugate
# gradients need about sqrt(condition) / 2 iterations per factor e, and a solve to a few digits about eight of those. On
# simulated curves solves of a fit take 2.3 times the root, and those of samples 3.1 times.
ITERATIONS_PER_ROOT = 4.0
# Multiplications of the block, in float64 and scattered, take as long as so many of the products, which are in float32:
# 2 to 5.5 on one core, for 500 to 2000 modes.
BLOCK_WEIGHT = 4


def block_multiplications(shape: Sequence[int], ranks: Sequence[int], modes: int) -> float:
    """Upper bound on the multiplications of `masked_gram` over `modes` modes, and of its factorisation."""
    longest = max(range(len(shape)), key=lambda k: shape[k])
    distinct = min(modes, prod(r for k, r in enumerate(ranks) if k != longest))
    return float(prod(shape) * distinct**2 + shape[longest] * modes**2 + modes**3 / 6)


def solve_multiplications(
    size: int, diagonal: Tensor, product: float, shape: Sequence[int], ranks: Sequence[int], columns: int
) -> float:
    """Multiplications to build a block over the first `size` modes, and to solve with it for `columns` columns.

    The other arguments are those of `cheapest_block`.
    """
    # Whatever the gaps, the condition number of the rest is at most about the first entry that the block leaves.
    left = float(diagonal[size]) if size < len(diagonal) else 1.0
    iterations = ITERATIONS_PER_ROOT * left**0.5
    return BLOCK_WEIGHT * block_multiplications(shape, ranks, size) + columns * iterations * (product + size**2)


def cheapest_block(
    diagonal: Tensor, product: float, shape: Sequence[int], ranks: Sequence[int], max_block: int, columns: int
) -> int:
    """The number of leading modes that minimises the multiplications to build the block and solve with it.

    diagonal: the diagonal of H, (R,), descending
    product: multiplications of one product with the system
    shape, ranks: number of points and modes of each factor
    """
    most = min(max_block, len(diagonal))
    # all modes, too: where they are few, nothing is left to iterate for
    sizes = [*range(0, most, BLOCK_STEP), most]
    return min(sizes, key=lambda size: solve_multiplications(size, diagonal, product, shape, ranks, columns))


def masked_gram(
    bases: list[Tensor], scale: Tensor, precisions: Tensor, shape: tuple[int, ...], modes: Tensor
) -> Tensor:
    """The exact block of H over the given `modes` (k,), (k, k).

    Call the longest axis S and the others T. For modes (a, b) and (a', b') of S and T, the block is
    sum_i Q_S[i, a] Q_S[i, a'] w_bb'[i], with w_bb'[i] = sum_t (precision of cell i, t) F_T[t, b] F_T[t, b'].

    bases: Q_k, (n_k, r_k); scale: S, (R,); precisions: D^-1 on the grid, zero in unobserved cells, (N,)
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
        columns = torch.unravel_index(distinct, [bases[k].shape[1] for k in others])
        for k, column in zip(others, columns, strict=True):
            rest = (rest[:, None, :] * bases[k][:, column]).flatten(0, 1)
    # Modes with the same b stand together, and only b' >= b are computed: the block is symmetric.
    order = torch.argsort(of_mode, stable=True)
    main, of_mode = main[:, order], of_mode[order]
    ordered, start = main.new_empty(len(modes), len(modes)), 0
    for b, count in enumerate(torch.bincount(of_mode).tolist()):
        weights = cells @ (rest[:, b, None] * rest)  # (n_S, distinct)
        weighted = weights.index_select(1, of_mode[start:]).mul_(main[:, start:])
        stop = start + count
        block = main[:, start:stop].mT @ weighted
        ordered[start:stop, start:] = block
        ordered[start:, start:stop] = block.mT
        start = stop
    gram = torch.empty_like(ordered)
    gram[order[:, None], order] = ordered
    gram.mul_(scale[modes]).mul_(scale[modes][:, None])
    gram.diagonal().add_(1.0)
    return gram
