"""Fourier transforms along the axes of arrays, pruned: what is zero before or unused afterwards is not transformed."""

from collections.abc import Callable, Sequence
from typing import Any

import scipy.fft
import torch
from scipy.fft import next_fast_len
from torch import Tensor


def transform(x: Tensor, lengths: Sequence[int]) -> Tensor:
    """The Fourier transform of real arrays (c, m_1, ..., m_d), continued by zeros to `lengths` (L_1, ..., L_d).

    Returns (c, L_1, ..., L_d / 2 + 1), complex.
    """
    last = len(lengths)
    found = _apply("rfft", x, lengths[-1], last)
    for axis in range(last - 1, 0, -1):
        found = _apply("fft", found, lengths[axis - 1], axis)
    return found


def inverse(spectrum: Tensor, lengths: Sequence[int], shape: Sequence[int]) -> Tensor:
    """The leading corner (c, m_1, ..., m_d) of the real arrays with these Fourier transforms."""
    last = len(lengths)
    found = spectrum
    for axis in range(1, last):
        found = _apply("ifft", found, lengths[axis - 1], axis).narrow(axis, 0, shape[axis - 1])
    return _apply("irfft", found, lengths[-1], last).narrow(last, 0, shape[-1])


def fast_lengths(shape: Sequence[int]) -> tuple[int, ...]:
    """Lengths for which transforms are fast, at which sequences of m_j numbers do not overlap their own shifts."""
    return tuple(next_fast_len(2 * m - 1, real=True) for m in shape)


def _apply(name: str, x: Tensor, length: int, axis: int) -> Tensor:
    """One transform by SciPy, which takes a quarter of the time of that of torch, or by torch where it must be.

    Measured forward and back with 300 x 500 numbers, continued to 600 x 1000, two threads, other programs running: 6 ms
    against 20 ms.
    """
    if x.requires_grad or x.device.type != "cpu":
        of_torch: Callable[..., Tensor] = getattr(torch.fft, name)
        return of_torch(x, n=length, dim=axis)
    of_scipy: Callable[..., Any] = getattr(scipy.fft, name)
    return torch.from_numpy(of_scipy(x.detach().numpy(), n=length, axis=axis, workers=torch.get_num_threads()))
