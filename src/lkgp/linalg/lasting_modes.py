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
    """All products of some modes of the other axes, (s, a), and of some modes of an axis, (n_k, r).

    duals: D, (n_k, r), with K_c D = Q and D^T Q = I for the modes Q of a part K_c
    part: the part of the sum to which each mode of the axis belongs, (r,)
    """

    others: Tensor
    axis: Tensor
    duals: Tensor
    part: Tensor

    @property
    def rank(self) -> int:
        return self.others.shape[1] * self.axis.shape[1]


@dataclass(frozen=True, eq=False)
class LastingModes:
    """Modes of the parts of a sum along an axis, and what they leave of these parts.

    sets: products of modes; those of the other axes are leading columns of `root`
    root: R with R R^T = K_others, (s, s), whose columns are orthogonal
    parts: the parts of the sum that have modes or could have
    """

    sets: list[ModeSet]
    root: Tensor
    parts: list[Factor]


def lasting_modes(
    factor: Factor, others: Tensor, noise: float, most: int, seed: int, *, except_processes: bool = False
) -> LastingModes:
    """Products of modes with B B^T (x) Q Q^T, summed over the sets, <= K_others (x) K: those that matter most.

    factor: K along the axis, (n_k, n_k); others: the covariances of all other axes, (s, s)
    noise: its variance; most: about how many products there may be
    except_processes: whether parts that are Matern processes get no modes
    """
    values, vectors = torch.linalg.eigh(others)
    values, vectors = values.flip(0).clamp(min=0.0), vectors.flip(1)
    root, summands = vectors * values.sqrt(), factor.summands()
    parts = [part for part in summands if not (except_processes and part.processes)]
    leading = [_leading(part, seed) for part in parts]
    if all(modes is None for modes in leading):
        return LastingModes([], root, parts)
    axis, duals = (torch.cat([modes[i] for modes in leading if modes is not None], dim=1) for i in (0, 1))
    counts = torch.tensor([0 if modes is None else modes[0].shape[1] for modes in leading])
    belongs = torch.repeat_interleave(torch.arange(len(parts)), counts).to(axis.device)
    variances = axis.square().sum(dim=0)
    directions = axis / variances.sqrt()
    lasting = [part for part, modes in zip(parts, leading, strict=True) if modes is not None]
    short = [part for part in summands if not any(part is known for known in lasting)]
    # the variance of what does not last in the direction of each mode, (r,)
    elsewhere = sum(((part @ directions) * directions).sum(dim=0) for part in short) if short else 0 * variances
    # lambda mu / (lambda mu' + noise), (s, r)
    ratio = values[:, None] * variances / (values[:, None] * elsewhere + noise)
    limit = max(MATTERS, float(ratio.flatten().sort(descending=True).values[: most + 1][-1]))
    needed = (ratio > limit).sum(dim=0)
    sets = [ModeSet(root[:, :n], axis[:, some], duals[:, some], belongs[some]) for n, some in _sets(needed)]
    return LastingModes(sets, root, parts)


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


def most_modes(points: int) -> int:
    """The most modes that are looked for along an axis of so many points."""
    return max(1, min(MOST_LASTING, points // POINTS_PER_MODE))


def _leading(part: Factor, seed: int) -> tuple[Tensor, Tensor] | None:
    """The leading modes of one summand, the largest first, and their duals, each (n_k, r); None if it does not last."""
    n = part.shape[-1]
    most = most_modes(n)
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
    turned = vectors[:, kept] / values[kept].sqrt()
    modes, duals = (image @ turned).flip(1), (basis @ turned).flip(1)
    lasts = float(modes.square().sum()) >= SHARE * float(part.entries_diagonal().sum())
    return (modes, duals) if lasts else None
