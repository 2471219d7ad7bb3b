"""Coordinates in which nearer means more correlated, for the search of neighbours among cells.

Each column is measured in units of the distance at which the correlation along it has dropped to one half. Categories
get the leading principal coordinates of their correlations, in which the squared distance of two is 2 (1 - rho).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lkgp.data.grid import PartialGrid
from lkgp.model.kernels import is_discrete
from lkgp.model.model import LatentKroneckerGP
from lkgp.model.term import Term

# Distances at which correlations are evaluated, as fractions of the spread of the points: the longest is longer than
# any between points, and steps of a third are fine enough to order neighbours.
DISTANCES = torch.logspace(-6, 1, 50, dtype=torch.float64)
HALF = 0.5
# Principal coordinates of categories; in more dimensions the search is slow.
MOST_COORDINATES = 3


@dataclass(frozen=True, eq=False)
class Embedding:
    """The map from cells to these coordinates.

    lengths: for each factor, the unit of every column, (d_k,)
    categories: for each factor with categories, their numbers (c,) and coordinates (c, e); None for others
    """

    lengths: list[Tensor]
    categories: list[tuple[Tensor, Tensor] | None]

    @classmethod
    @torch.no_grad()
    def of(cls, model: LatentKroneckerGP, grid: PartialGrid) -> "Embedding":
        # the term with the largest variance decides
        term = max(model.terms, key=lambda t: float(t.variance([x[:1] for x in grid.coords])))
        lengths, categories = [], []
        for k, points in enumerate(grid.coords):
            discrete = is_discrete(term.kernels[k])
            categories.append(_principal_coordinates(term, k, points) if discrete else None)
            lengths.append(torch.ones(points.shape[1]) if discrete else half_lengths(term, k, points))
        return cls(lengths, categories)

    def __call__(self, columns: Sequence[Tensor]) -> NDArray[np.float64]:
        """The coordinates of cells, (a, e), from the points (a, d_k) along every factor."""
        parts = []
        for points, length, known in zip(columns, self.lengths, self.categories, strict=True):
            if known is None:
                parts.append((points.double() / length.to(points.device)).cpu())
                continue
            numbers, places = known
            order = torch.searchsorted(numbers, points[:, 0].double().cpu()).clamp(max=len(numbers) - 1)
            parts.append(places[order])
        return torch.cat(parts, dim=1).numpy()


def half_lengths(term: Term, k: int, points: Tensor) -> Tensor:
    """The distance along each column at which the correlation of factor k drops to one half, (d_k,)."""
    spread = (points.amax(dim=0) - points.amin(dim=0)).double().cpu()
    centre, found = points[len(points) // 2 : len(points) // 2 + 1], []
    for column, width in enumerate(spread.tolist()):
        steps = DISTANCES * (width or 1.0)
        moved = centre.repeat(len(steps), 1)
        moved[:, column] += steps.to(moved)
        values = term.cross_factor(k, moved, centre)[:, 0].double().cpu()
        scales = (term.factor_variance(k, moved) * term.factor_variance(k, centre)).double().cpu().sqrt()
        below = torch.nonzero(values < HALF * scales).flatten()
        found.append(float(steps[below[0]] if len(below) else steps[-1]))
    return torch.tensor(found, dtype=torch.float64)


def _principal_coordinates(term: Term, k: int, points: Tensor) -> tuple[Tensor, Tensor]:
    """The distinct categories of a factor in ascending order, (c,), and their coordinates, (c, e)."""
    _, first = np.unique(points[:, 0].cpu().numpy(), return_index=True)
    distinct = points[torch.as_tensor(first, device=points.device)]
    covariance = term.cross_factor(k, distinct, distinct).double().cpu()
    scale = covariance.diagonal().clamp(min=1e-300).rsqrt()
    values, vectors = torch.linalg.eigh(scale[:, None] * covariance * scale)
    places = vectors * values.clamp(min=0).sqrt()
    return distinct[:, 0].double().cpu(), places[:, -MOST_COORDINATES:]
