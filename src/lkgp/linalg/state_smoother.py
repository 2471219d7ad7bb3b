"""Posterior variances of Matern processes along an axis at every cell, observed or not, given all observations.

Of a block, let f be all cells and z its whitened observations; see `state_filter`. Later observations tell of f through
the state x_1 at the end of the block, whose error given all so far has the covariance X^T with that of f:

    Var(f | all)  =  diag(Cov(f) - J J^T - X B' X^T),      J = Cov(f, z),   X = Cov(f, x_1) - J G^T,
    B  =  E^T B' E + C^T C,                                C = L^-1 H,      E = F - G C,

from the last block, where B' = 0, to the first.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from lkgp.linalg.state_filter import BlockMotion, FilterStep, StateFilter


@dataclass(frozen=True, eq=False)
class Piece:
    """A block, given all observations up to its end.

    variance: of f, (b s,); onward: X, (b s, p s); known: C, (w, p s); moves: E, (p s, p s)
    """

    variance: Tensor
    onward: Tensor
    known: Tensor
    moves: Tensor


def smoothed_variances(filter_: StateFilter) -> Tensor:
    """The variances of f at all times of the blocks, in ascending order, and places, (B b, s)."""
    count = len(filter_.blocks.cells)
    # The filter runs twice: states are kept at the beginning of every span of blocks, and again within one span.
    span = math.isqrt(count - 1) + 1
    starts, covariance = {}, filter_.start
    for block, (before, *_) in enumerate(filter_.steps(0, count, covariance)):
        if block % span == 0:
            starts[block] = before
    later = torch.zeros_like(covariance)
    found = covariance.new_empty(filter_.blocks.cells.shape)
    for start in sorted(starts, reverse=True):
        stop = min(start + span, count)
        pieces = [_piece(filter_, *one) for one in filter_.steps(start, stop, starts[start])]
        for block in range(stop - 1, start - 1, -1):
            piece = pieces.pop()
            found[block] = piece.variance - ((piece.onward @ later) * piece.onward).sum(dim=1)
            later = piece.moves.mT @ later @ piece.moves + piece.known.mT @ piece.known
            later = (later + later.mT) / 2
    return found.view(-1, filter_.blocks.places)


def _piece(filter_: StateFilter, covariance: Tensor, step: FilterStep, motion: BlockMotion, k: int) -> Piece:
    seen, places = step.seen, filter_.places
    held = filter_.read(step.reads, covariance)  # H P for all cells
    prior = filter_.read(step.reads, held.mT) + torch.kron(motion.within[k], places)
    told = prior[:, seen] @ step.inverse.mT
    cross = filter_.move(step.moves, held.mT) + torch.kron(motion.ahead[k], places)
    eye = torch.eye(len(covariance), dtype=covariance.dtype, device=covariance.device)
    known = step.inverse @ filter_.read(step.reads, eye)[seen]
    return Piece(
        prior.diagonal() - told.square().sum(dim=1),
        cross.mT - told @ step.gain.mT,
        known,
        filter_.move(step.moves, eye) - step.gain @ known,
    )
