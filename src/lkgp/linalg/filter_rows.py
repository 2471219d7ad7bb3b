"""The triangular matrix W of a filter, of which only the steps are kept: W y is a run through them.

    forward:    z = L^-1 (y - H m),          m' = F m + G z
    backward:   v = L^-T (z + G^T l'),       l = F^T l' - H^T v         for v = W^T z

H = h (x) I and F (x) I are tiny. Where the noise is far below the variances, all is in double precision; elsewhere in
single, and long axes with many places keep steps in half precision.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.linalg.blas import get_blas_funcs
from torch import Tensor

from lkgp.linalg.state_filter import FilterStep, StateFilter

Array = NDArray[Any]
Scales = tuple[Any, Any]

# Steps are kept in chunks of about this many numbers (16 MB).
CHUNK_NUMBERS = 2**22
# Above this many numbers in all (3 GB in single precision), they are kept in half precision.
MOST_SINGLE_NUMBERS = 7.5e8
# With variances more than so many times the smallest noise, rounding in single precision would show in error bars,
# above all beside a smooth process. Noise that differs by more is not kept in half precision.
LARGE_RATIO = 1e4


@dataclass(frozen=True, eq=False)
class Step:
    """One block: as in `FilterStep`; inverse and gain are to be multiplied by `scales`."""

    seen: NDArray[np.int64]
    cells: NDArray[np.int64]
    reads: Array
    moves: Array
    inverse: Array
    gain: Array
    scales: Scales


class Chunk:
    """Some consecutive steps.

    cells: those of their blocks, (m, b s), at least `size` where nothing was observed; state: p s, for s places
    scales: the numbers by which L^-1 and G are divided; kept, dtype: the precision in which they are kept and used
    """

    def __init__(
        self, cells: Tensor, size: int, state: int, places: int, scales: Scales, kept: torch.dtype, dtype: torch.dtype
    ) -> None:
        self.state, self.scales, self.dtype = state, scales, dtype
        observed = cells < size
        count, (times, order) = len(cells), (cells.shape[1] // places, state // places)
        self.widths = observed.sum(dim=1).numpy()
        # All memory at once: what is taken step by step lies scattered among what is given back.
        self.seen = torch.nonzero(observed)[:, 1].numpy()
        self.cells = cells[observed].numpy()
        used = as_numpy(dtype)
        self.reads = np.empty((count, times, order), dtype=used)
        self.moves = np.empty((count, order, order), dtype=used)
        sizes = (self.widths, self.widths**2, self.widths * state)
        self.ends, self.squares, self.lengths = (np.concatenate([[0], np.cumsum(each)]) for each in sizes)
        self.inverses, self.gains = (torch.empty(int(n[-1]), dtype=kept) for n in (self.squares, self.lengths))

    def put(self, k: int, step: FilterStep) -> None:
        """Keep the step of block k."""
        inverse, gain = self.scales
        self.inverses[self.squares[k] : self.squares[k + 1]] = (step.inverse / float(inverse)).flatten()
        self.gains[self.lengths[k] : self.lengths[k + 1]] = (step.gain / float(gain)).flatten()
        self.reads[k], self.moves[k] = step.reads.cpu().numpy(), step.moves.cpu().numpy()

    def steps(self, backward: bool) -> Iterator[Step]:
        inverses, gains = (numbers.to(self.dtype).numpy() for numbers in (self.inverses, self.gains))
        order = range(len(self.widths) - 1, -1, -1) if backward else range(len(self.widths))
        for k in order:
            w = int(self.widths[k])
            own = slice(self.ends[k], self.ends[k + 1])
            inverse = inverses[self.squares[k] : self.squares[k + 1]].reshape(w, w)
            gain = gains[self.lengths[k] : self.lengths[k + 1]].reshape(self.state, w)
            yield Step(self.seen[own], self.cells[own], self.reads[k], self.moves[k], inverse, gain, self.scales)


class FilterRows:
    """W, (n, n).

    places: s; size: n; variance: the largest prior variance of f
    dtype: the precision of all arithmetic; half: whether the steps are kept in half precision
    """

    def __init__(self, filter_: StateFilter, size: int, variance: float) -> None:
        self.places, self.size = filter_.blocks.places, size
        self.state = len(filter_.start)
        cells = filter_.blocks.cells.cpu()
        widths = (cells < size).sum(dim=1).double()
        numbers = widths.square() + self.state * widths
        noise = filter_.noise[:-1]
        kept, self.dtype = precisions(float(numbers.sum()), noise, variance)
        self.half = kept == torch.float16
        unit = as_numpy(self.dtype).type
        scales = unit(1.0), unit(1.0)
        if self.half:
            # Half precision loses digits below 6e-5. No entry of L^-1 exceeds the root of the largest precision of the
            # noise, and none of G a standard deviation of the state, because L L^T >= D and G G^T <= F P F^T + w K_s.
            scales = unit(float(noise.min()) ** -0.5), unit(float(filter_.start.diagonal().max()) ** 0.5)
        which = (numbers.cumsum(0) / CHUNK_NUMBERS).long()
        counts = torch.unique_consecutive(which, return_counts=True)[1].tolist()
        shape = (size, self.state, self.places)
        self.chunks = [Chunk(some, *shape, scales, kept, self.dtype) for some in cells.split(counts)]
        steps = filter_.steps(0, len(cells), filter_.start)
        for chunk in self.chunks:
            for k in range(len(chunk.widths)):
                chunk.put(k, next(steps)[1])

    def whiten(self, given: Callable[[int, Step], Array], columns: int) -> Iterator[tuple[Step, Array]]:
        """z (w, c) of every block, from y (w, c); given: makes y from the number of the block and its step."""
        state, block = np.zeros((self.state, columns), dtype=as_numpy(self.dtype)), 0
        for chunk in self.chunks:
            for step in chunk.steps(backward=False):
                inverse, gain = step.scales
                z = inverse * (step.inverse @ (given(block, step) - self._read(step, state)))
                state = _moved(step.moves, state) + gain * (step.gain @ z)
                block += 1
                yield step, z

    def squared_times(self, x: Tensor) -> Tensor:
        """W^T W X for X (n, c)."""
        columns, scale = self._rounded(x)
        whitened = np.empty_like(columns)
        for step, z in self.whiten(lambda _, step: columns[step.cells], columns.shape[1]):
            whitened[step.cells] = z
        return _as_given(self._transposed(whitened), scale, x)

    def _transposed(self, whitened: Array) -> Array:
        """W^T Z for Z (n, c)."""
        found, columns = np.empty_like(whitened), whitened.shape[1]
        later = np.zeros((self.state, columns), dtype=whitened.dtype)
        for chunk in reversed(self.chunks):
            for step in chunk.steps(backward=True):
                inverse, gain = step.scales
                own = inverse * (step.inverse.T @ (whitened[step.cells] + gain * (step.gain.T @ later)))
                found[step.cells] = own
                # H^T v, with zeros where nothing was observed
                table = np.zeros((len(step.reads) * self.places, columns), dtype=whitened.dtype)
                table[step.seen] = own
                given = step.reads.T @ table.reshape(len(step.reads), -1)
                later = _moved(step.moves.T, later) - given.reshape(later.shape)
        return found

    def solve(self, z: Tensor) -> Tensor:
        """W^-1 Z for Z (n, c)."""
        columns, scale = self._rounded(z)
        found = np.empty_like(columns)
        state = np.zeros((self.state, columns.shape[1]), dtype=columns.dtype)
        (solve,) = get_blas_funcs(("trsm",), (columns,))
        for chunk in self.chunks:
            for step in chunk.steps(backward=False):
                inverse, gain = step.scales
                own = columns[step.cells]
                if len(own):
                    # L z = y - H m
                    found[step.cells] = solve(float(1 / inverse), step.inverse.T, own, lower=0, trans_a=1) + self._read(
                        step, state
                    )
                state = _moved(step.moves, state) + gain * (step.gain @ own)
        return _as_given(found, scale, z)

    def _rounded(self, x: Tensor) -> tuple[Array, Tensor]:
        """Columns (n, c) divided by their largest numbers, (c,), in the precision of the arithmetic."""
        scale = x.abs().amax(dim=0)
        scale = torch.where(scale > 0, scale, torch.ones_like(scale))
        return (x / scale).to(self.dtype).cpu().numpy(), scale

    def _read(self, step: Step, state: Array) -> Array:
        """H m where something was observed, (w, c)."""
        return (step.reads @ state.reshape(len(step.moves), -1)).reshape(-1, state.shape[1])[step.seen]

    @cached_property
    def _log_diagonal(self) -> float:
        total = 0.0
        for chunk in self.chunks:
            for step in chunk.steps(backward=False):
                total += float(np.log(step.scales[0] * step.inverse.diagonal().astype(float)).sum())
        return total

    def log_diagonal(self) -> Tensor:
        """The sum of the logarithms of the diagonal of W, a scalar in float64."""
        return torch.tensor(self._log_diagonal, dtype=torch.float64)


def _moved(moves: Array, state: Array) -> Array:
    """(F (x) I) X for X (p s, c)."""
    return (moves @ state.reshape(len(moves), -1)).reshape(state.shape)


def precisions(numbers: float, noise: Tensor, variance: float) -> tuple[torch.dtype, torch.dtype]:
    """In which precision so many numbers are kept, and used; noise: the diagonal of D, (n,); variance: of f."""
    least = float(noise.min())
    if variance > LARGE_RATIO * least:
        return torch.float64, torch.float64
    even = float(noise.max()) <= LARGE_RATIO * least
    return torch.float16 if even and numbers > MOST_SINGLE_NUMBERS else torch.float32, torch.float32


def as_numpy(dtype: torch.dtype) -> np.dtype[Any]:
    """The same precision in NumPy."""
    return np.dtype(np.float64 if dtype == torch.float64 else np.float32)


def _as_given(found: Array, scale: Tensor, like: Tensor) -> Tensor:
    return torch.from_numpy(found).to(like) * scale
