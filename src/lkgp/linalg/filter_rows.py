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


@dataclass(frozen=True, eq=False)
class Chunk:
    """Some steps.

    small: for every step, the cells that were seen, which observations these are, h and F
    shapes: w of every step, and p s
    numbers: L^-1 of all steps, then G of all steps, flat, each divided by its number of `scales` if in half precision
    """

    small: list[tuple[NDArray[np.int64], NDArray[np.int64], Array, Array]]
    widths: list[int]
    state: int
    numbers: tuple[Tensor, Tensor]
    scales: tuple[np.float32, np.float32]

    @classmethod
    def of(cls, steps: list[FilterStep], half: bool) -> "Chunk":
        flat = [
            torch.cat([x.flatten() for x in kind]) for kind in ([s.inverse for s in steps], [s.gain for s in steps])
        ]
        # Half precision holds numbers up to 65504, and loses digits below 6e-5.
        scales = [max(float(x.abs().max()), 1e-30) if half and len(x) else 1.0 for x in flat]
        dtype = torch.float16 if half else torch.float32
        inverse, gain = ((x / scale).to(dtype) for x, scale in zip(flat, scales, strict=True))
        small = [
            (s.seen.cpu().numpy(), s.cells.cpu().numpy(), s.reads.float().cpu().numpy(), s.moves.float().cpu().numpy())
            for s in steps
        ]
        widths = [len(s.seen) for s in steps]
        return cls(
            small, widths, steps[0].gain.shape[0], (inverse, gain), (np.float32(scales[0]), np.float32(scales[1]))
        )

    def steps(self, backward: bool) -> Iterator[Step]:
        inverses, gains = (x.float().cpu().numpy() for x in self.numbers)
        squares = np.concatenate([[0], np.cumsum(np.square(self.widths))])
        lengths = np.concatenate([[0], np.cumsum(np.multiply(self.widths, self.state))])
        order = range(len(self.widths) - 1, -1, -1) if backward else range(len(self.widths))
        for k in order:
            w = self.widths[k]
            inverse = inverses[squares[k] : squares[k + 1]].reshape(w, w)
            gain = gains[lengths[k] : lengths[k + 1]].reshape(self.state, w)
            yield Step(*self.small[k], inverse, gain, self.scales)


class FilterRows:
    """W, (n, n).

    places: s; size: n
    half: whether the steps are kept in half precision
    """

    def __init__(self, filter_: StateFilter, size: int) -> None:
        self.places, self.size = filter_.blocks.places, size
        self.state = len(filter_.start)
        observed = (filter_.blocks.cells < size).sum(dim=1).double()
        self.half = float((observed.square() + self.state * observed).sum()) > MOST_SINGLE_NUMBERS
        self.chunks: list[Chunk] = []
        waiting: list[FilterStep] = []
        numbers = 0
        for _, step, _, _ in filter_.steps(0, len(filter_.blocks.cells), filter_.start):
            waiting.append(step)
            numbers += step.inverse.numel() + step.gain.numel()
            if numbers > CHUNK_NUMBERS:
                self.chunks.append(Chunk.of(waiting, self.half))
                waiting, numbers = [], 0
        if waiting:
            self.chunks.append(Chunk.of(waiting, self.half))

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
