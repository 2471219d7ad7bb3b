"""A stationary kernel over equally spaced points: its first column determines the whole matrix."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from scipy.fft import next_fast_len
from torch import Tensor

from lkgp.linalg.factors.base import WORK_ENTRIES, CovarianceFunction, Factor, all_processes, looked_up
from lkgp.linalg.markov_processes import Process, processes_of
from lkgp.linalg.noise_roots import PIVOTED, MatrixRoot, NoiseRoot, SumRoot, circulant_root

# Below this many points, a dense product is faster than the FFT of a Toeplitz factor; `scripts/calibrate_costs.py`
# measures it.
TOEPLITZ_PAYS = 4096
# Steps count as equal if they differ from their mean by at most this fraction of it: a little more than the rounding of
# coordinates.
EQUAL_STEPS = 1e-9


def is_regular(coords: Tensor) -> bool:
    """Whether the points (n_k, d_k) are one column of equally spaced numbers."""
    if coords.shape[1] != 1 or len(coords) < 3:
        return False
    steps = coords[1:, 0] - coords[:-1, 0]
    spread = (steps - steps.mean()).abs().max()
    return bool(spread <= EQUAL_STEPS * steps.mean().abs())


def by_lag(function: CovarianceFunction) -> Callable[[Tensor], Tensor]:
    """A kernel as a function of lags (a, 1), (a,)."""
    return lambda lags: function(lags, lags[:1] * 0)[:, 0]


class ToeplitzFactor(Factor):
    """A symmetric Toeplitz matrix; products take O(n_k log n_k) by FFT.

    column: the first column, (..., n_k)
    evaluate: covariances at lags (a, 1), (a,), for lags beyond the column; none if they are unknown
    step: between neighbouring points
    parts: as `evaluate`, for every part of a sum of kernels; of_parts: the processes of each part
    """

    kind = "toeplitz"

    def __init__(
        self,
        column: Tensor,
        *,
        evaluate: Callable[[Tensor], Tensor] | None = None,
        step: float = 1.0,
        parts: Sequence[Callable[[Tensor], Tensor]] = (),
        of_parts: Sequence[Sequence[Process]] = (),
    ) -> None:
        super().__init__(column, evaluate=evaluate, step=step, parts=parts, of_parts=of_parts)
        self.column, self.evaluate, self.step = column, evaluate, step
        self.parts, self.of_parts = parts, of_parts

    @classmethod
    def of(cls, function: CovarianceFunction, coords: Tensor) -> "ToeplitzFactor":
        step = float((coords[-1, 0] - coords[0, 0]).abs()) / max(len(coords) - 1, 1)
        parts = [by_lag(part) for part in function.summands]
        known = [processes_of(part, coords.shape[1]) for part in function.summands]
        column = function(coords, coords[:1])[:, 0]
        return cls(column, evaluate=by_lag(function), step=step, parts=parts, of_parts=known)

    @classmethod
    def suits(cls, function: CovarianceFunction, coords: Tensor) -> bool:
        return len(coords) >= TOEPLITZ_PAYS and function.stationary and is_regular(coords)

    @classmethod
    def product_cost(cls, points: int) -> float:
        # At TOEPLITZ_PAYS points a Fourier transform costs as much as a dense product; it grows with the logarithm.
        return TOEPLITZ_PAYS * math.log(points) / math.log(TOEPLITZ_PAYS)

    @classmethod
    def stored_numbers(cls, points: int) -> float:
        return float(points)

    def rows_at(self, index: Tensor) -> Tensor:
        return self.column[(index[:, None] - torch.arange(len(self.column), device=index.device)).abs()]

    def largest_row_sum(self) -> float:
        ones = self.column.new_ones(len(self.column), 1)
        return float(ToeplitzFactor(self.column.abs())._matmul(ones).max())

    def rounded(self, dtype: torch.dtype) -> "ToeplitzFactor":
        known: dict[str, Any] = {
            "evaluate": self.evaluate,
            "step": self.step,
            "parts": self.parts,
            "of_parts": self.of_parts,
        }
        return ToeplitzFactor(self.column.to(dtype), **known)

    @torch.no_grad()
    def summands(self) -> Sequence[Factor]:
        if len(self.parts) < 2:
            return [self]
        lags = self.step * torch.arange(len(self.column), dtype=torch.float64, device=self.column.device)[:, None]
        return [
            ToeplitzFactor(part(lags), evaluate=part, step=self.step, of_parts=[known])
            for part, known in zip(self.parts, self.of_parts, strict=True)
        ]

    @property
    def processes(self) -> Sequence[Process]:
        return all_processes(self.of_parts)

    def difference(self, other: Factor) -> "ToeplitzFactor":
        return ToeplitzFactor(self.column - other.rows_at(torch.zeros(1, dtype=torch.long, device=other.device))[0])

    def pull_back(self, left: Tensor, right: Tensor) -> Tensor:
        # The weight of the entry at lag l is the sum over i - j = +-l of left_i right_j: a correlation, which is a
        # product of Fourier transforms.
        n = len(self.column)
        length = next_fast_len(2 * n - 1, real=True)
        total = left.new_zeros(length)
        width = max(1, WORK_ENTRIES // length)
        for a, b in zip(left.split(width, dim=1), right.split(width, dim=1), strict=True):
            spectra = torch.fft.rfft(a, n=length, dim=0) * torch.fft.rfft(b, n=length, dim=0).conj()
            total += torch.fft.irfft(spectra.sum(dim=1), n=length)
        weights = total[:n].clone()
        weights[1:] += total[length - n + 1 :].flip(0)
        return weights

    def gather_weights(self, rows: Tensor, columns: Tensor, weights: Tensor) -> Tensor:
        return torch.bincount((rows - columns).abs(), weights, minlength=len(self.column))

    def noise_root(self) -> NoiseRoot:
        if len(self.parts) > 1:
            # Short-lived parts can be embedded in a circle; what lasts has few modes.
            return SumRoot([part.noise_root() for part in self.summands()])
        if self.evaluate is not None:
            points = torch.arange(len(self.column), device=self.column.device)
            root = circulant_root(self.evaluate, (len(points),), (self.step,), points, self.column)
            if root is not None:
                return root
        return MatrixRoot(self.triangular_root().root, f"{PIVOTED}, because the circulant embedding is not positive")

    def inner(self, weights: Tensor) -> Tensor:
        return (weights.to(self.column.dtype) * self.column).sum()

    # Methods that `LinearOperator` requires of its subclasses.

    def _matmul(self, rhs: Tensor) -> Tensor:
        if rhs.ndim == 1:
            return self._matmul(rhs[:, None])[..., 0]
        n = self.column.shape[-1]
        # The Toeplitz matrix is a corner of a circulant matrix, which the Fourier transform diagonalises.
        length = next_fast_len(2 * n - 1, real=True)
        padding = self.column.new_zeros(*self.column.shape[:-1], length - 2 * n + 1)
        circulant = torch.cat([self.column, padding, self.column[..., 1:].flip(-1)], dim=-1)
        spectrum = torch.fft.rfft(circulant)[..., None]
        parts = [
            torch.fft.irfft(spectrum * torch.fft.rfft(part, n=length, dim=-2), n=length, dim=-2)[..., :n, :]
            for part in rhs.split(max(1, WORK_ENTRIES // length), dim=-1)
        ]
        return torch.cat(parts, dim=-1)

    def _size(self) -> torch.Size:
        return torch.Size((*self.column.shape, self.column.shape[-1]))

    def _transpose_nonbatch(self) -> "ToeplitzFactor":
        return self

    def _diagonal(self) -> Tensor:
        return self.column[..., :1].expand(self.column.shape)

    def _get_indices(self, row_index: Tensor, col_index: Tensor, *batch_indices: Tensor) -> Tensor:
        lags = (row_index - col_index).abs()
        return self.column[(*batch_indices, lags)] if batch_indices else looked_up(self.column, lags)
