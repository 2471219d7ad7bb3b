"""The triangular matrix W of a filter, of which only the steps are kept: W y is a run through them.

    forward:    z = L^-1 (y - H m),          m' = F m + G z
    backward:   v = L^-T (z + G^T l'),       l = F^T l' - H^T v         for v = W^T z

H = h (x) I and F (x) I are tiny. All is in single precision, whatever that of the numbers.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.linalg.blas import strsm
from torch import Tensor

from lkgp.linalg.state_filter import FilterStep, StateFilter

Array = NDArray[np.float32]

# Steps are kept in chunks of about this many numbers (16 MB).
CHUNK_NUMBERS = 2**22
# Above this many numbers in all (3 GB in single precision), they are kept in half precision.
MOST_SINGLE_NUMBERS = 7.5e8


@dataclass(frozen=True, eq=False)
class Step:
    """One block: as in `FilterStep`; inverse and gain are to be multiplied by `scales`."""

    seen: NDArray[np.int64]
    cells: NDArray[np.int64]
    reads: Array
    moves: Array
    inverse: Array
    gain: Array
    scales: tuple[np.float32, np.float32]


class Chunk:
    """Some consecutive steps.

    widths: w of every step; state: p s
    small: for every step, the cells that were seen, which observations these are, h and F
    numbers: L^-1 of all steps, then G of all steps, flat, each divided by its number of `scales`
    """

    def __init__(self, widths: list[int], state: int, scales: tuple[np.float32, np.float32], half: bool) -> None:
        self.widths, self.state, self.scales = widths, state, scales
        self.small: list[tuple[NDArray[np.int64], NDArray[np.int64], Array, Array]] = []
        self._squares = np.concatenate([[0], np.cumsum(np.square(widths))])
        self._lengths = np.concatenate([[0], np.cumsum(np.multiply(widths, state))])
        # All at once: memory that is taken step by step lies scattered among what is given back.
        dtype = torch.float16 if half else torch.float32
        self.numbers = [torch.empty(int(ends[-1]), dtype=dtype) for ends in (self._squares, self._lengths)]

    def add(self, step: FilterStep) -> None:
        """Add the next step."""
        k = len(self.small)
        for numbers, ends, matrix, scale in zip(
            self.numbers, (self._squares, self._lengths), (step.inverse, step.gain), self.scales, strict=True
        ):
            numbers[ends[k] : ends[k + 1]] = (matrix / float(scale)).flatten()
        places = step.seen.cpu().numpy(), step.cells.cpu().numpy()
        self.small.append((*places, step.reads.float().cpu().numpy(), step.moves.float().cpu().numpy()))

    def steps(self, backward: bool) -> Iterator[Step]:
        inverses, gains = (x.float().numpy() for x in self.numbers)
        order = range(len(self.widths) - 1, -1, -1) if backward else range(len(self.widths))
        for k in order:
            w = self.widths[k]
            inverse = inverses[self._squares[k] : self._squares[k + 1]].reshape(w, w)
            gain = gains[self._lengths[k] : self._lengths[k + 1]].reshape(self.state, w)
            yield Step(*self.small[k], inverse, gain, self.scales)


class FilterRows:
    """W, (n, n).

    places: s; size: n
    half: whether the steps are kept in half precision
    """

    def __init__(self, filter_: StateFilter, size: int) -> None:
        self.places, self.size = filter_.blocks.places, size
        self.state = len(filter_.start)
        widths = (filter_.blocks.cells < size).sum(dim=1)
        numbers = widths.double().square() + self.state * widths.double()
        self.half = float(numbers.sum()) > MOST_SINGLE_NUMBERS
        scales = np.float32(1.0), np.float32(1.0)
        if self.half:
            # Half precision loses digits below 6e-5. No entry of L^-1 exceeds the root of the largest precision of the
            # noise, and none of G a standard deviation of the state, because L L^T >= D and G G^T <= F P F^T + w K_s.
            largest = filter_.noise[:-1].min().rsqrt(), filter_.start.diagonal().max().sqrt()
            scales = np.float32(largest[0]), np.float32(largest[1])
        self.chunks: list[Chunk] = []
        which = (numbers.cumsum(0) / CHUNK_NUMBERS).long()
        steps = filter_.steps(0, len(widths), filter_.start)
        for count in torch.unique_consecutive(which, return_counts=True)[1].tolist():
            start = sum(len(chunk.widths) for chunk in self.chunks)
            chunk = Chunk(widths[start : start + count].tolist(), self.state, scales, self.half)
            for _ in range(count):
                chunk.add(next(steps)[1])
            self.chunks.append(chunk)

    def whiten(self, given: Callable[[int, Step], Array], columns: int) -> Iterator[tuple[Step, Array]]:
        """z (w, c) of every block, from y (w, c); given: makes y from the number of the block and its step."""
        state, block = np.zeros((self.state, columns), dtype=np.float32), 0
        for chunk in self.chunks:
            for step in chunk.steps(backward=False):
                inverse, gain = step.scales
                z = inverse * (step.inverse @ (given(block, step) - self._read(step, state)))
                state = _moved(step.moves, state) + gain * (step.gain @ z)
                block += 1
                yield step, z

    def squared_times(self, x: Tensor) -> Tensor:
        """W^T W X for X (n, c)."""
        columns, scale = _as_single(x)
        whitened = np.empty_like(columns)
        for step, z in self.whiten(lambda _, step: columns[step.cells], columns.shape[1]):
            whitened[step.cells] = z
        return _as_given(self._transposed(whitened), scale, x)

    def _transposed(self, whitened: Array) -> Array:
        """W^T Z for Z (n, c)."""
        found, columns = np.empty_like(whitened), whitened.shape[1]
        later = np.zeros((self.state, columns), dtype=np.float32)
        for chunk in reversed(self.chunks):
            for step in chunk.steps(backward=True):
                inverse, gain = step.scales
                own = inverse * (step.inverse.T @ (whitened[step.cells] + gain * (step.gain.T @ later)))
                found[step.cells] = own
                # H^T v, with zeros where nothing was observed
                table = np.zeros((len(step.reads) * self.places, columns), dtype=np.float32)
                table[step.seen] = own
                given = step.reads.T @ table.reshape(len(step.reads), -1)
                later = _moved(step.moves.T, later) - given.reshape(later.shape)
        return found

    def solve(self, z: Tensor) -> Tensor:
        """W^-1 Z for Z (n, c)."""
        columns, scale = _as_single(z)
        found = np.empty_like(columns)
        state = np.zeros((self.state, columns.shape[1]), dtype=np.float32)
        for chunk in self.chunks:
            for step in chunk.steps(backward=False):
                inverse, gain = step.scales
                own = columns[step.cells]
                if len(own):
                    # L z = y - H m
                    found[step.cells] = strsm(float(1 / inverse), step.inverse.T, own, lower=0, trans_a=1) + self._read(
                        step, state
                    )
                state = _moved(step.moves, state) + gain * (step.gain @ own)
        return _as_given(found, scale, z)

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


def _as_single(x: Tensor) -> tuple[Array, Tensor]:
    """Columns (n, c) divided by their largest numbers, (c,)."""
    scale = x.abs().amax(dim=0)
    scale = torch.where(scale > 0, scale, torch.ones_like(scale))
    return (x / scale).float().cpu().numpy(), scale


def _as_given(found: Array, scale: Tensor, like: Tensor) -> Tensor:
    return torch.from_numpy(found).to(like) * scale
