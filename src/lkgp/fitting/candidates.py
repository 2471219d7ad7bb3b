"""Hyperparameters at which a search might begin: lengths from the spacing of the points to beyond their extent."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
import torch
from gpytorch.kernels import AdditiveKernel, Kernel, PeriodicKernel
from torch import Tensor

from lkgp.data.readers import Observations
from lkgp.fitting.profile import scale_parameters, set_value
from lkgp.model import LatentKroneckerGP
from lkgp.model.kernels import is_discrete

# The shortest length is the distance within which this share of the points have a neighbour: where some points are
# close to each other and others are not, the close ones tell what happens over short distances.
CLOSE = 0.25
# The longest length, in standard deviations of the points: beyond it a function is close to a straight line.
LONGEST = 3.0
# The number of lengths per kernel, if one to three kernels have lengths: then every combination is a candidate. With
# more kernels, as many combinations as with three are spread evenly.
LEVELS, MANY = {1: 6, 2: 4, 3: 3}, 27
# At this share of the distance of neighbours as the length, their correlation is below 0.1 for common kernels.
VANISHING = 0.4


@dataclass(frozen=True, eq=False)
class Lengths:
    """The lengths of one kernel.

    kernel: has a free length scale, in the units of the coordinates
    shortest, longest: the range of lengths to consider, (columns,)
    """

    kernel: Kernel
    shortest: Tensor
    longest: Tensor

    def set(self, position: float) -> None:
        """Set all lengths to a `position` from 0, the shortest, to 1, the longest."""
        length = self.shortest * (self.longest / self.shortest) ** position
        raw = self.kernel.raw_lengthscale
        if raw.numel() == 1:  # one length for all columns
            length = length.log().mean(dim=0, keepdim=True).exp()
        set_value(raw, self.kernel.raw_lengthscale_constraint, length.to(raw).view(raw.shape))

    def position(self) -> float:
        """Where the present lengths lie, from 0 to 1; lengths outside the range count as its ends."""
        length = self.kernel.lengthscale.detach().double().view(-1)
        width = (self.longest / self.shortest).log().clamp(min=1e-12)
        return float(((length / self.shortest).log() / width).clamp(0, 1).mean())

    def vanished(self) -> bool:
        """Whether no point is related to another one, so that the likelihood no longer depends on the lengths."""
        return bool((self.kernel.lengthscale.detach().double().view(-1) < VANISHING * self.shortest).all())


def find_lengths(model: LatentKroneckerGP, data: Observations) -> list[Lengths]:
    """The lengths that may change, kernel by kernel."""
    found = []
    for term in model.terms:
        for kernel, coords in zip(term.kernels, data.grid.coords, strict=True):
            for part in kernel.modules():
                # The length of a periodic kernel is a fraction of the period.
                if not isinstance(part, Kernel) or isinstance(part, PeriodicKernel) or not part.has_lengthscale:
                    continue
                if not part.raw_lengthscale.requires_grad or is_discrete(part):
                    continue
                columns = coords if part.active_dims is None else coords[:, part.active_dims]
                if part.raw_lengthscale.numel() in (1, columns.shape[1]):
                    found.append(Lengths(part, *length_range(columns.double())))
    return found


def length_range(points: Tensor) -> tuple[Tensor, Tensor]:
    """The shortest and the longest length worth trying for each column of some points (n, d), both (d,)."""
    spread = points.std(dim=0, correction=0)
    spread = torch.where(spread > 0, spread, torch.ones_like(spread))
    longest, nearest = LONGEST * points.shape[1] ** 0.5, nearest_distances(points / spread)
    shortest = float(nearest.quantile(CLOSE)) if len(nearest) else longest
    return spread * min(shortest, longest), spread * longest


def nearest_distances(points: Tensor) -> Tensor:
    """The distance of every point (n, d) from the nearest one that differs; none for points without such a one."""
    # A product of matrices would leave rounding errors as the distance of a point from itself.
    distance = torch.cdist(points, points, compute_mode="donot_use_mm_for_euclid_dist")
    nearest = distance.masked_fill(distance == 0, torch.inf).amin(dim=1)
    return nearest[torch.isfinite(nearest)]


def designs(count: int) -> list[Sequence[float]]:
    """Positions between shortest and longest lengths for `count` kernels, one list per candidate."""
    if count in LEVELS:
        return list(product(np.linspace(0, 1, LEVELS[count]).tolist(), repeat=count))
    from scipy.stats import qmc  # noqa: PLC0415  (takes a third of a second to import)

    return qmc.Halton(count, scramble=False).random(MANY + 1)[1:].tolist() if count else []


def removable_parts(model: LatentKroneckerGP) -> Iterator[list[Tensor]]:
    """The scales of every part of a sum of kernels that has one: without it a simpler model remains."""
    for term in model.terms:
        for kernel in term.kernels:
            for part in kernel.modules():
                if isinstance(part, AdditiveKernel):
                    yield from (found for one in part.kernels if (found := scale_parameters(one)))
