"""Draws of functions from the prior where a factor is too large for a root that is a matrix."""

from collections.abc import Callable, Sequence
from math import prod

import torch
from torch import Tensor

from lkgp.linalg.factors import Factor


def draw_functions(factors: Sequence[Factor], small_root: Callable[[Factor], Tensor], normals: Tensor) -> Tensor:
    """Draws of a term at every cell, (s, N), from standard normal numbers (N, s).

    A root by structure takes more numbers than there are points. They come from a generator whose seed is made of the
    given numbers, so that the same numbers always make the same draws.

    factors: of the term; small_root: makes the root (n_k, n_k) of a small factor
    """
    first = normals[: 2 * normals.shape[1]].double().contiguous()
    seed = int(first.view(torch.int64).sum()) & (2**62 - 1)
    generator = torch.Generator(normals.device).manual_seed(seed)
    large = {k: factor.noise_root() for k, factor in enumerate(factors) if factor.draws_by_structure}
    small = {k: small_root(factor) for k, factor in enumerate(factors) if k not in large}
    sizes = [large[k].width if k in large else small[k].shape[1] for k in range(len(factors))]
    found = normals.new_empty(normals.shape[1], prod(factor.shape[-2] for factor in factors))
    for one in found:
        cells = torch.randn(*sizes, generator=generator, dtype=normals.dtype, device=normals.device)
        for k in range(len(factors)):
            along = cells.movedim(k, 0)
            flat = along.reshape(len(along), -1)
            values = large[k].times(flat) if k in large else small[k] @ flat
            cells = values.reshape(-1, *along.shape[1:]).movedim(0, k)
        one.copy_(cells.reshape(-1))
    return found
