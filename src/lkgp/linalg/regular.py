"""Find the regular lattice to which points belong, if there is one."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

# Points belong to a lattice if none is farther from it than this fraction of a step. Coordinates in degrees that were
# stored as float32, the common case, are off by up to 7.6e-4 of a step of 0.01 degrees. The kernel sees the lattice.
OFF_LATTICE = 1e-3
# Numbers whose difference is below this fraction of their range are the same number, computed in two ways.
SAME = 1e-9
# If not all gaps are multiples of the smallest one, they may be multiples of a half, a third, ... of it, up to this.
MOST_PARTS = 6


@dataclass(frozen=True, eq=False)
class RegularAxis:
    """Numbers that are start + step times an integer.

    start, step: of the lattice
    place: the integer of each number, (n,)
    length: one more than the largest integer
    """

    start: float
    step: float
    place: Tensor
    length: int

    @classmethod
    def of(cls, numbers: Tensor, most: float) -> "RegularAxis | None":
        """The coarsest lattice of the numbers (n,), with at most `most` points; None if they are on no such lattice."""
        precise = numbers.detach().double()
        values, label = torch.unique(precise, return_inverse=True)
        span = float(values[-1] - values[0])
        if span == 0.0:
            return cls(float(values[0]), 1.0, torch.zeros_like(label), 1)
        gaps = values.diff()
        real = gaps > SAME * span
        least = float(gaps[real].min())
        # The smallest gap is itself inexact; the mean of all that are about as small is less so.
        smallest = float(gaps[real & (gaps < 1.5 * least)].mean())
        for parts in range(1, MOST_PARTS + 1):
            step = smallest / parts
            if span / step + 1 > most:
                return None
            found = cls._with_step(values, gaps, step)
            if found is not None:
                return cls(found.start, found.step, found.place[label], found.length)
        return None

    @classmethod
    def _with_step(cls, values: Tensor, gaps: Tensor, step: float) -> "RegularAxis | None":
        """The lattice with about the given step to which sorted numbers belong."""
        place = torch.cat([gaps.new_zeros(1), (gaps / step).round().cumsum(0)])
        # The regression of the numbers on their places
        centred = place - place.mean()
        fitted = float(centred @ values / centred.square().sum())
        start = float(values.mean() - fitted * place.mean())
        if fitted <= 0 or float((values - start - fitted * place).abs().max()) > OFF_LATTICE * fitted:
            return None
        return cls(start, fitted, place.long(), int(place[-1]) + 1)


@dataclass(frozen=True, eq=False)
class Lattice:
    """Points on a product of regular axes.

    shape: numbers of points of the axes, m_1, ..., m_d
    steps: of the axes
    index: the position of each point in the lattice, in C order, (n,)
    """

    shape: tuple[int, ...]
    steps: tuple[float, ...]
    index: Tensor

    @classmethod
    def of(cls, coords: Tensor, most: float) -> "Lattice | None":
        """The lattice of at most `most` points to which the points (n, d) belong; None if there is none."""
        axes: list[RegularAxis] = []
        index, size = torch.zeros(len(coords), dtype=torch.long, device=coords.device), 1
        for column in coords.mT:
            axis = RegularAxis.of(column, most / size)
            if axis is None:
                return None
            axes.append(axis)
            size *= axis.length
            index = index * axis.length + axis.place
        if size > most:
            return None
        return cls(tuple(axis.length for axis in axes), tuple(axis.step for axis in axes), index)


def lags(shape: Sequence[int], steps: Sequence[float], like: Tensor, signed: Sequence[bool]) -> Tensor:
    """Differences between the points of a lattice, in C order, (a, d).

    shape, steps: numbers of points m_j and steps of the axes
    like: gives the dtype and the device
    signed: whether the differences along an axis run from -(m_j - 1) or from 0 to m_j - 1
    """
    axes = [
        step * torch.arange(1 - m if both else 0, m, dtype=torch.float64, device=like.device)
        for m, step, both in zip(shape, steps, signed, strict=True)
    ]
    return torch.stack(torch.meshgrid(*axes, indexing="ij"), dim=-1).reshape(-1, len(axes)).to(like.dtype)


def wrapped_lags(lengths: Sequence[int], steps: Sequence[float], like: Tensor) -> Tensor:
    """Differences between the points of a periodic lattice and its first one, the shortest way, (L_1 ... L_d, d)."""
    axes = []
    for length, step in zip(lengths, steps, strict=True):
        place = torch.arange(length, dtype=torch.float64, device=like.device)
        axes.append(step * torch.where(place <= length // 2, place, place - length))
    return torch.stack(torch.meshgrid(*axes, indexing="ij"), dim=-1).reshape(-1, len(axes)).to(like.dtype)
