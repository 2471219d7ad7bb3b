"""The parts of a sum of kernels along an axis that last, such as cycles and slow changes, as modes.

A part is described by its leading modes in the form of Nystrom, K V (V^T K V)^-1 V^T K, where V spans nearly the
leading eigenvectors: what it leaves of K is positive semidefinite.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from lkgp.linalg.factors import Factor

# Modes of a part that are looked for, with some more for accuracy, after so many products with it.
MOST_LASTING, SPARE, ROUNDS = 96, 16, 3
# A part lasts if these modes, and at most one for so many points of the axis, have this share of its variance.
SHARE, POINTS_PER_MODE = 0.9, 64
# Modes with less than this share of the largest one are rounding errors.
LEAST = 1e-10
# A mode is left out if it has less than this share of the variance of all else in its direction.
MATTERS = 0.1


@dataclass(frozen=True, eq=False)
class ModeSet:
    """All products of some modes of the other axes, (s, a), and of some modes of an axis, (n_k, r)."""

    others: Tensor
    axis: Tensor

    @property
    def rank(self) -> int:
        return self.others.shape[1] * self.axis.shape[1]


def lasting_modes(factor: Factor, others: Tensor, noise: float, most: int, seed: int) -> list[ModeSet]:
    """Products of modes with B B^T (x) Q Q^T, summed over the sets, <= K_others (x) K: those that matter most.

    factor: K along the axis, (n_k, n_k); others: the covariances of all other axes, (s, s)
    noise: its variance; most: about how many products there may be
    """
    parts = [(part, _leading(part, seed)) for part in factor.summands()]
    found = [modes for _, modes in parts if modes is not None]
    if not found:
        return []
    axis = torch.cat(found, dim=1)
    variances = axis.square().sum(dim=0)
    directions = axis / variances.sqrt()
    short = [part for part, modes in parts if modes is None]
    # the variance of what does not last in the direction of each mode, (r,)
    elsewhere = sum(((part @ directions) * directions).sum(dim=0) for part in short) if short else 0 * variances
    values, vectors = torch.linalg.eigh(others)
    values, vectors = values.flip(0).clamp(min=0.0), vectors.flip(1)
    # lambda mu / (lambda mu' + noise), (s, r)
    ratio = values[:, None] * variances / (values[:, None] * elsewhere + noise)
    limit = max(MATTERS, float(ratio.flatten().sort(descending=True).values[: most + 1][-1]))
    needed = (ratio > limit).sum(dim=0)
    root = vectors * values.sqrt()
    return [ModeSet(root[:, :count], axis[:, chosen]) for count, chosen in _sets(needed)]


def _sets(needed: Tensor) -> Iterator[tuple[int, Tensor]]:
    """Sets of modes of an axis, and how many modes of the others each set needs; needed: (r,)."""
    order = torch.argsort(needed, descending=True)
    order = order[needed[order] > 0]
    while len(order):
        most = int(needed[order[0]])
        # at least two thirds as many as the first one
        chosen = order[needed[order] * 3 >= 2 * most]
        yield most, chosen
        order = order[len(chosen) :]


def _leading(part: Factor, seed: int) -> Tensor | None:
    """The leading modes of one summand, (n_k, r), the largest first; None if it does not last."""
    n = part.shape[-1]
    most = max(1, min(MOST_LASTING, n // POINTS_PER_MODE))
    width = min(n, most + SPARE)
    generator = torch.Generator(part.device).manual_seed(seed)
    basis = torch.randn(n, width, generator=generator, dtype=torch.float64, device=part.device)
    for _ in range(ROUNDS):
        basis = torch.linalg.qr(part @ basis).Q
    image = part @ basis
    values, vectors = torch.linalg.eigh(basis.mT @ image)
    kept = values > LEAST * values[-1]
    kept[: width - most] = False
    # K V (V^T K V)^-1/2 in the eigenbasis of V^T K V
    modes = (image @ vectors[:, kept] / values[kept].sqrt()).flip(1)
    return modes if float(modes.square().sum()) >= SHARE * float(part.entries_diagonal().sum()) else None
