"""The exact filter of the Matern parts along an axis, plus modes for what lasts.

Along the axis, the covariance is a sum. V holds the parts that are Matern processes, with the noise, exactly: a filter
runs through the states of all places. Of the other parts, such as cycles, a few modes of the axis, times those of the
other axes, are held in U. What they leave is positive semidefinite, so that M <= A; see `rows_and_modes`.
"""

from dataclasses import dataclass

import numpy as np
import torch
from scipy.linalg.blas import get_blas_funcs
from torch import Tensor

from lkgp.data.grid import PartialGrid
from lkgp.errors import InputError
from lkgp.linalg.filter_rows import FilterRows, Step
from lkgp.linalg.kronecker import LatentKronecker
from lkgp.linalg.lasting_modes import lasting_modes
from lkgp.linalg.markov_processes import JointProcess, Process
from lkgp.linalg.preconditioners.base import PreconditionerSettings
from lkgp.linalg.preconditioners.rows_and_modes import ObservedModes, RowsAndModes, covariance_of_places, typical_noise
from lkgp.linalg.preconditioners.successive_blocks import long_axis
from lkgp.linalg.preconditioners.vecchia import FIRST_LOWEST
from lkgp.linalg.state_filter import StateFilter, TimeBlocks
from lkgp.linalg.successive_blocks import Succession
from lkgp.settings import check_positive

# The most numbers in the states of all places together, whose covariance is a dense matrix.
MOST_STATES = 1000
# Whitened modes are collected for about this many cells before they are multiplied with each other.
CELLS_AT_ONCE = 8192


def processes_along(operator: LatentKronecker, axis: int) -> list[Process]:
    """The Matern processes among the parts of a factor."""
    return [process for part in operator.factors[axis].summands() for process in part.processes]


class FilteredInverse(RowsAndModes):
    """M^-1 for one operator with a single term.

    filter: that of V; lasting: the modes, and what they leave
    """

    def __init__(self, operator: LatentKronecker, axis: int, most_modes: int, seed: int) -> None:
        self.operator, self.axis = operator, axis
        processes = processes_along(operator, axis)
        places, noise = covariance_of_places(operator, axis), operator.noise_diagonal().double()
        states = len(places) * sum(process.order for process in processes)
        if not processes or states > MOST_STATES:
            raise InputError(
                f"a filter needs a Matern kernel with nu = 0.5, 1.5 or 2.5, or a sum with one, along axis {axis}, and "
                f"at most {MOST_STATES} numbers in the states of all places (here {states}); choose another "
                "preconditioner."
            )
        succession = Succession.of(operator.grid, axis)
        blocks = TimeBlocks.of(succession, operator.grid.coords[axis][:, 0])
        self.filter = StateFilter(JointProcess(processes), places, torch.cat([noise, noise.new_ones(1)]), blocks)
        rows = FilterRows(self.filter, operator.grid.num_observed, float(operator.latent_diagonal().max()))
        self.lasting = lasting_modes(
            operator.factors[axis], places, typical_noise(noise), most_modes, seed, except_processes=True
        )
        modes = ObservedModes.of(self.lasting.sets, succession)
        super().__init__(rows, modes, gram_of(rows, modes, len(blocks.times.mT)), operator.grid.num_observed)
        if rows.half:
            # Rounding makes some eigenvalues of M^-1 A smaller than 1.
            self.below, self.lowest = False, FIRST_LOWEST


def gram_of(rows: FilterRows, modes: ObservedModes, size: int) -> Tensor:
    """H = I + (W U)^T W U, (rank, rank); size: the number of times of a block."""
    if modes.rank == 0:
        return torch.eye(0, dtype=torch.float64)
    sets = [(one.others.to(rows.dtype), one.axis.to(rows.dtype)) for one in modes.sets]

    def given(block: int, step: Step) -> np.ndarray:
        # U at the cells of a block, (w, a r)
        time, place = step.seen // rows.places + block * size, step.seen % rows.places
        parts = [(others[place][:, :, None] * axis[time][:, None]).flatten(1) for others, axis in sets]
        return torch.cat(parts, dim=1).numpy()

    half = np.zeros((modes.rank, modes.rank))
    waiting: list[np.ndarray] = []
    for _, z in rows.whiten(given, modes.rank):
        waiting.append(z)
        if sum(map(len, waiting)) >= CELLS_AT_ONCE:
            half += _upper_squares(waiting)
            waiting = []
    if waiting:
        half += _upper_squares(waiting)
    upper = torch.from_numpy(np.triu(half, 1))
    return torch.diag(torch.from_numpy(1.0 + half.diagonal())) + upper + upper.mT


def _upper_squares(parts: list[np.ndarray]) -> np.ndarray:
    """The upper triangle of Z^T Z for the parts Z (w, rank) of a matrix, one above the other."""
    whole = np.concatenate(parts).T
    (squares,) = get_blas_funcs(("syrk",), (whole,))
    return np.asarray(squares(1.0, whole))


@dataclass(frozen=True)
class KalmanFilter(PreconditionerSettings):
    """The exact filter of Matern kernels along the longest axis, and modes for what lasts, such as cycles.

    modes: the most modes; seed: of the random vectors with which modes are found
    """

    modes: int = 512
    seed: int = 0

    def __post_init__(self) -> None:
        check_positive(self, modes=self.modes)

    @staticmethod
    def obstacle(grid: PartialGrid, num_terms: int, processes: list[Process]) -> str:
        """Why it cannot be built; empty if it can. processes: those along the longest axis."""
        if num_terms > 1:
            return "a filter needs a single term"
        axis = long_axis(grid)
        if axis is None:
            return "a filter needs a long axis of one column, and not too many places"
        states = grid.num_cells // grid.shape[axis] * sum(process.order for process in processes)
        if not processes:
            return "a filter needs a Matern kernel with nu = 0.5, 1.5 or 2.5 along the longest axis"
        return f"the states of all places have {states} numbers, at most {MOST_STATES}" if states > MOST_STATES else ""

    def build(self, operator: LatentKronecker, *, columns: int = 20, product: float | None = None) -> FilteredInverse:
        axis = long_axis(operator.grid)
        known = [] if axis is None else processes_along(operator, axis)
        obstacle = self.obstacle(operator.grid, len(operator.terms), known)
        if obstacle:
            raise InputError(f"{obstacle}; choose another preconditioner.")
        assert axis is not None
        return self.along(operator, axis)

    def along(self, operator: LatentKronecker, axis: int) -> FilteredInverse:
        """The same along any axis of one column."""
        return FilteredInverse(operator, axis, self.modes, self.seed)
