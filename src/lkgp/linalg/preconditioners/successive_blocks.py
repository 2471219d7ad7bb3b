"""Block by block along one long axis, each block given the last cells before it, plus modes for what lasts.

    M  =  U U^T + V,      V^-1  =  W^T W;      see `rows_and_modes`.

Along the axis, part of the covariance is short-lived: the last few cells tell nearly all that earlier cells know, and
V is Vecchia's approximation by them. Cycles and slow changes last: a few modes of the axis, times those of the other
axes, hold them in U, and V approximates A - U U^T. Neither M <= A nor M >= A.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product as combinations

import numpy as np
import torch
from torch import Tensor

from lkgp.data.grid import PartialGrid
from lkgp.errors import InputError
from lkgp.linalg.block_rows import BlockRows
from lkgp.linalg.correlated_cells import factor_places
from lkgp.linalg.kronecker import LatentKronecker
from lkgp.linalg.lasting_modes import lasting_modes
from lkgp.linalg.preconditioners.base import PreconditionerSettings
from lkgp.linalg.preconditioners.rows_and_modes import ObservedModes, RowsAndModes, covariance_of_places, typical_noise
from lkgp.linalg.preconditioners.vecchia import FIRST_LOWEST
from lkgp.linalg.roots import positive_cholesky
from lkgp.linalg.successive_blocks import PlaceGroup, Succession, place_groups
from lkgp.linalg.triangular import triangular_inverse
from lkgp.settings import check_positive

# The most places, whose covariances are one dense matrix, and the fewest points of the long axis.
MOST_PLACES, FEWEST_TIMES = 1000, 256
# Blocks are treated together as long as their matrices have at most this many entries (8 MB in float64).
BLOCK_ENTRIES = 2**20
# The same for modes at the cells of blocks (8 MB in float32), which a cache holds.
MODE_ENTRIES = 2**21


def long_axis(grid: PartialGrid) -> int | None:
    """The axis along which blocks can follow one another; None if there is none."""
    axis = int(np.argmax(grid.shape))
    places = grid.num_cells // grid.shape[axis]
    one_column = grid.coords[axis].shape[1] == 1
    return axis if one_column and places <= MOST_PLACES and grid.shape[axis] >= max(FEWEST_TIMES, places) else None


class SuccessiveInverse(RowsAndModes):
    """M^-1 for one operator with a single term.

    repaired: number of blocks whose matrix needed a jitter
    """

    below = False

    def __init__(self, operator: LatentKronecker, axis: int, last: int, most_modes: int, seed: int) -> None:
        grid, self.lowest = operator.grid, FIRST_LOWEST
        succession, places = Succession.of(grid, axis), covariance_of_places(operator, axis)
        found = lasting_modes(operator.factors[axis], places, typical_noise(operator.noise), most_modes, seed)
        modes = ObservedModes.of(found.sets, succession)
        others = [k for k in range(len(grid.shape)) if k != axis]
        points = np.array(list(combinations(*[range(grid.shape[k]) for k in others])))
        where = [np.zeros((len(points), 1))]
        where += [factor_places(operator, k).places[points[:, j]] for j, k in enumerate(others)]
        groups = place_groups(np.concatenate(where, axis=1), last)
        build = BlockBuilder(operator, axis, places, modes)
        rows = BlockRows([build(group) for group in groups], grid.num_observed)
        self.repaired = build.repaired
        super().__init__(rows, modes, build.gram, grid.num_observed)


class BlockBuilder:
    """Builds the rows of W, and with them H.

    places: the covariances of the places, (s, s); modes: U
    """

    def __init__(self, operator: LatentKronecker, axis: int, places: Tensor, modes: ObservedModes) -> None:
        self.times, self.noise = operator.factors[axis], operator.noise_diagonal().double()
        self.noise = torch.cat([self.noise, self.noise.new_ones(1)])
        self.places, self.modes, self.repaired = places, modes, 0
        self.gram = torch.eye(modes.rank, dtype=torch.float64, device=places.device)

    def __call__(self, group: PlaceGroup) -> tuple[Tensor, Tensor]:
        """The columns (t, w) and the rows (t, g, w) of the blocks of a group, in float32."""
        which = torch.as_tensor(group.places, device=self.places.device)
        all_times = torch.arange(len(self.modes.succession.order), device=self.places.device)
        step = max(1, BLOCK_ENTRIES // len(which) ** 2)
        found = [self._part(group, which, some) for some in all_times.split(step)]
        return torch.cat([cells for cells, _ in found]), torch.cat([rows for _, rows in found])

    def _part(self, group: PlaceGroup, which: Tensor, some: Tensor) -> tuple[Tensor, Tensor]:
        succession = self.modes.succession
        when, cells = succession.blocks(group, some)
        present = cells < succession.absent
        points = succession.order[when]
        # A - U U^T: (K_s (x) K_t - sum of B B^T (x) Q Q^T)_ij + D
        covariance = self.places[which][:, which] * self.times.entries(points[:, :, None], points[:, None, :]).double()
        modes = [(one.others[which], one.axis[when]) for one in self.modes.sets]
        for others, axis in modes:
            covariance -= (others @ others.mT) * (axis @ axis.mT)
        covariance *= present[:, :, None] & present[:, None, :]
        covariance.diagonal(dim1=1, dim2=2).add_(self.noise[cells])
        factor, number = positive_cholesky(covariance)
        self.repaired += number
        # With L L^T = the covariance of a block and what comes before, the last rows of L^-1 are those of W.
        rows = triangular_inverse(factor)[:, -len(group.own) :].float()
        rows *= present[:, None, :] & present[:, -len(group.own) :, None]
        self._add_to_gram(rows, modes)
        return cells, rows

    def _add_to_gram(self, rows: Tensor, modes: Sequence[tuple[Tensor, Tensor]]) -> None:
        """Add (W U)^T W U of some blocks to H; modes: B (w, a) and Q (m, w, r) of every set."""
        if not modes:
            return
        step = max(1, MODE_ENTRIES // (rows.shape[2] * self.modes.rank))
        for start in range(0, len(rows), step):
            some = slice(start, start + step)
            # U at the cells of every block, (m, w, a r)
            parts = [(b.float()[:, :, None] * q[some].float()[:, :, None]).flatten(2) for b, q in modes]
            seen = (rows[some] @ torch.cat(parts, dim=2)).flatten(0, 1)
            self.gram += (seen.mT @ seen).double()


@dataclass(frozen=True)
class SuccessiveBlocks(PreconditionerSettings):
    """Blocks along the longest axis, each given the last cells before it, and modes for cycles and slow changes.

    last: the number of last cells of each place; modes: the most modes
    seed: of the random vectors with which modes are found
    """

    last: int = 2
    modes: int = 512
    seed: int = 0

    def __post_init__(self) -> None:
        check_positive(self, last=self.last, modes=self.modes)

    @staticmethod
    def obstacle(grid: PartialGrid, num_terms: int) -> str:
        """Why it cannot be built; empty if it can."""
        if num_terms > 1:
            return "successive blocks need a single term"
        if long_axis(grid) is None:
            return (
                f"successive blocks need an axis of one column with at least {FEWEST_TIMES} points, and no more than "
                f"{MOST_PLACES} combinations of the points of all other axes"
            )
        return ""

    def build(self, operator: LatentKronecker, *, columns: int = 20, product: float | None = None) -> SuccessiveInverse:
        obstacle = self.obstacle(operator.grid, len(operator.terms))
        if obstacle:
            raise InputError(f"{obstacle}; choose another preconditioner.")
        axis = long_axis(operator.grid)
        assert axis is not None
        return self.along(operator, axis)

    def along(self, operator: LatentKronecker, axis: int) -> SuccessiveInverse:
        """The same along any axis of one column."""
        return SuccessiveInverse(operator, axis, self.last, self.modes, self.seed)
