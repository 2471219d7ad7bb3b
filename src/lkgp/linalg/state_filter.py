"""The exact filter of Matern processes along an axis whose states are correlated over places, block by block.

The state x of all places at one time has the covariance S (x) K_s before anything is observed, with the stationary
covariance S of a `JointProcess` and that of the places, K_s. Of a block of times, let y be the observed cells; given
the state x_0 at the end of the block before,

    f  =  (h (x) I) x_0 + noise of covariance q (x) K_s,        y = f + noise of covariance D,
    x_1 = (F (x) I) x_0 + noise of covariance w (x) K_s, and c (x) K_s with that of f.

With x_0 ~ N(m, P) given all blocks before, y ~ N(H m, L L^T), and

    z = L^-1 (y - H m),     m_1 = F m + G z,     P_1 = F P F^T + w (x) K_s - G G^T,     G = Cov(x_1, y) L^-T:

z are independent standard normal numbers, and z = W y with a triangular W, W V W^T = I.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from lkgp.linalg.markov_processes import JointProcess
from lkgp.linalg.roots import positive_cholesky
from lkgp.linalg.successive_blocks import Succession

# A block has as many times as make about this many cells, and at least one: larger blocks have longer rows, smaller
# ones take longer for all that is done once per block.
BLOCK_CELLS = 128
# What follows from times alone is computed for this many blocks at a time.
BLOCKS_AT_ONCE = 256


@dataclass(frozen=True, eq=False)
class TimeBlocks:
    """Consecutive times in blocks of b, the last of which is filled with repetitions of the last time.

    times: in ascending order, (B, b); before: the time at which the block before ends, (B,)
    cells: the observed cells, (B, b s); n where nothing was observed
    places: s
    """

    times: Tensor
    before: Tensor
    cells: Tensor
    places: int

    @classmethod
    def of(cls, succession: Succession, coordinates: Tensor) -> "TimeBlocks":
        """Blocks of the times of a succession; coordinates: of its axis, (t,)."""
        cells = succession.cells
        count, places = cells.shape
        size = max(1, min(count, BLOCK_CELLS // places))
        missing = -count % size
        times = coordinates.double()[succession.order]
        times = torch.cat([times, times[-1:].expand(missing)]).view(-1, size)
        cells = torch.cat([cells, cells.new_full((missing, places), succession.absent)])
        before = torch.cat([times[:1, 0], times[:-1, -1]])
        return cls(times, before, cells.reshape(len(times), -1), places)


@dataclass(frozen=True, eq=False)
class BlockMotion:
    """What follows from the times of some blocks alone, with p numbers in a state.

    reads: h, (m, b, p); moves: F, (m, p, p); within: q, (m, b, b); ahead: c, (m, p, b); added: w, (m, p, p)
    """

    reads: Tensor
    moves: Tensor
    within: Tensor
    ahead: Tensor
    added: Tensor

    @classmethod
    def of(cls, process: JointProcess, times: Tensor, before: Tensor) -> "BlockMotion":
        readout, known = process.readout.to(times), process.stationary.to(times)
        to_each = process.transitions(times - before[:, None])
        reads, moves = readout @ to_each, to_each[:, -1]
        within = process.covariance((times[:, :, None] - times[:, None, :]).abs()) - reads @ known @ reads.mT
        seen = process.transitions(times[:, -1:] - times) @ (known @ readout)
        ahead = seen.mT - moves @ known @ reads.mT
        return cls(reads, moves, within, ahead.contiguous(), known - moves @ known @ moves.mT)


@dataclass(frozen=True, eq=False)
class FilterStep:
    """One block, of which w cells are observed.

    seen: which ones, (w,); cells: the observed cells, (w,)
    reads, moves: h, (b, p), and F, (p, p)
    inverse: L^-1, (w, w); gain: G, (p s, w)
    """

    seen: Tensor
    cells: Tensor
    reads: Tensor
    moves: Tensor
    inverse: Tensor
    gain: Tensor


@dataclass(frozen=True, eq=False)
class StateFilter:
    """The steps of the filter, one block after the other.

    process: along the axis; places: K_s, (s, s); noise: the diagonal of D, (n + 1,), with any number for absent cells
    """

    process: JointProcess
    places: Tensor
    noise: Tensor
    blocks: TimeBlocks

    @property
    def start(self) -> Tensor:
        """P before the first block, (p s, p s)."""
        return torch.kron(self.process.stationary.to(self.places), self.places)

    def steps(self, first: int, stop: int, covariance: Tensor) -> Iterator[tuple[Tensor, FilterStep, BlockMotion, int]]:
        """The blocks from `first` to `stop`; `covariance`: P before them.

        Yields P before each block, its step, and the motion of some blocks with the place of the block among them.
        """
        for begin in range(first, stop, BLOCKS_AT_ONCE):
            some = slice(begin, min(begin + BLOCKS_AT_ONCE, stop))
            motion = BlockMotion.of(self.process, self.blocks.times[some], self.blocks.before[some])
            for k in range(some.stop - some.start):
                step, after = self._step(begin + k, motion, k, covariance)
                yield covariance, step, motion, k
                covariance = after

    def _step(self, block: int, motion: BlockMotion, k: int, covariance: Tensor) -> tuple[FilterStep, Tensor]:
        cells = self.blocks.cells[block]
        seen = torch.nonzero(cells < len(self.noise) - 1).flatten()
        own = cells[seen]
        time, place = seen // self.blocks.places, seen % self.blocks.places
        reads, moves = motion.reads[k], motion.moves[k]
        held = self.read(reads, covariance)[seen]  # H P, (w, p s)
        # S = H P H^T + q (x) K_s + D
        predicted = self.read(reads, held.mT)[seen]
        predicted += motion.within[k][time][:, time] * self.places[place][:, place]
        predicted.diagonal().add_(self.noise[own])
        # S = L L^T
        root = positive_cholesky((predicted + predicted.mT)[None] / 2)[0][0]
        inverse = torch.linalg.solve_triangular(
            root, torch.eye(len(own), dtype=root.dtype, device=root.device), upper=False
        )
        # Cov(x_1, y) = F P H^T + c (x) K_s
        cross = self.move(moves, held.mT)
        cross = cross + (motion.ahead[k][:, time][:, None] * self.places[:, place]).reshape(cross.shape)
        gain = cross @ inverse.mT
        after = self.move(moves, self.move(moves, covariance).mT)
        after = after + torch.kron(motion.added[k], self.places) - gain @ gain.mT
        return FilterStep(seen, own, reads, moves, inverse, gain), (after + after.mT) / 2

    def read(self, reads: Tensor, states: Tensor) -> Tensor:
        """(h (x) I) X for X (p s, c), (b s, c)."""
        places, columns = len(self.places), states.shape[1]
        return (reads @ states.reshape(reads.shape[1], places * columns)).view(len(reads) * places, columns)

    def move(self, moves: Tensor, states: Tensor) -> Tensor:
        """(F (x) I) X for X (p s, c), (p s, c)."""
        return (moves @ states.reshape(len(moves), len(self.places) * states.shape[1])).view(states.shape)
