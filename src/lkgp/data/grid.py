"""The partial grid: a product of coordinates, only some of whose cells are observed."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lkgp.errors import InputError

# What a grid computes once about its observed cells, whatever their coordinates.
ABOUT_CELLS = ("index", "axis_index", "counts")


def first_repeat(coords: Tensor) -> tuple[int, int] | None:
    """Return the positions of the first two equal rows of `coords` (n_k, d_k), or None if all rows differ."""
    # Equal rows have equal weighted sums. To sort these takes a tenth of the time of sorting rows.
    sums = torch.zeros(len(coords), dtype=torch.float64, device=coords.device)
    for k in range(coords.shape[1]):
        sums += coords[:, k].double() / math.sqrt(k + 1)
    ordered = sums.sort().values
    if bool((ordered[1:] > ordered[:-1]).all()):
        return None
    _, label, count = torch.unique(coords, dim=0, return_inverse=True, return_counts=True)
    if bool((count == 1).all()):
        return None
    repeated = int(label[count[label] > 1][0])
    first, second = torch.nonzero(label == repeated).flatten()[:2].tolist()
    return first, second


def as_factor_coords(coords: Tensor, place: str) -> Tensor:
    """Check the coordinates of one factor, (n_k,) or (n_k, d_k), and return them as (n_k, d_k)."""
    if coords.ndim == 1:
        coords = coords[:, None]
    if coords.ndim != 2 or coords.numel() == 0:
        raise InputError(
            f"{place} must be a list of points, shape (n,) or (n, columns), not {tuple(coords.shape)}; give one point "
            "per row."
        )
    bad = torch.nonzero(~torch.isfinite(coords).all(dim=1)).flatten()
    if len(bad):
        raise InputError(f"row {int(bad[0])} of {place} has a NaN or infinite value; remove that row or fix it.")
    return coords


@dataclass(frozen=True, eq=False)
class PartialGrid:
    """A grid with d factors, and the set of its observed cells.

    coords: d tensors; factor k has n_k points of d_k columns, (n_k, d_k), or (n_k,) for one column
    observed: boolean, (n_1, ..., n_d), True where a cell was observed

    Cells are numbered in C order: factor k is axis k of the grid, as in `torch.kron`.
    """

    coords: tuple[Tensor, ...]
    observed: Tensor

    def __post_init__(self) -> None:
        coords = tuple(as_factor_coords(x, f"the coordinates of factor {k}") for k, x in enumerate(self.coords))
        object.__setattr__(self, "coords", coords)
        if self.observed.dtype != torch.bool:
            raise InputError(f"`observed` must be boolean (True = observed), not {self.observed.dtype}.")
        expected = tuple(len(x) for x in coords)
        if tuple(self.observed.shape) != expected:
            raise InputError(
                f"the values have shape {tuple(self.observed.shape)} but the coordinates make a grid of {expected}; "
                "axis k of the values must have one entry for each point of factor k."
            )
        for k, x in enumerate(coords):
            repeat = first_repeat(x)
            if repeat is not None:
                raise InputError(
                    f"the coordinates of factor {k} are not unique: rows {repeat[0]} and {repeat[1]} are both "
                    f"{x[repeat[0]].tolist()}; merge those slices, or read the data as a table with duplicates='mean'."
                )
        if not bool(self.observed.any()):
            raise InputError("nothing is observed: every value is NaN; at least one cell must have a value.")

    def __getstate__(self) -> dict[str, Any]:
        """A copy that stays as it is while another thread computes an index for the first time."""
        return dict(vars(self))

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.observed.shape)

    @property
    def num_cells(self) -> int:
        """N, the number of all cells, observed or not."""
        return prod(self.shape)

    @cached_property
    def index(self) -> Tensor:
        """The indices of the observed cells in ascending order, (n,)."""
        # NumPy is several times as fast here, and below.
        return torch.from_numpy(np.flatnonzero(self.observed.cpu().numpy())).to(self.observed.device)

    @cached_property
    def counts(self) -> tuple[Tensor, ...]:
        """The number of observed cells at every point of each factor: d tensors (n_k,)."""
        observed, axes = self.observed.cpu().numpy(), range(self.observed.ndim)
        found = [np.count_nonzero(observed, axis=tuple(axis for axis in axes if axis != k)) for k in axes]
        return tuple(torch.from_numpy(np.asarray(count)).to(self.observed.device) for count in found)

    @property
    def num_observed(self) -> int:
        """n, the number of observed cells."""
        return len(self.index)

    @cached_property
    def axis_index(self) -> tuple[Tensor, ...]:
        """The position of each observed cell along each axis: d tensors (n,)."""
        return torch.unravel_index(self.index, self.shape)

    def gather(self, cells: Tensor) -> Tensor:
        """P x: select the observed rows of `cells` (N, ...), giving (n, ...)."""
        return cells.index_select(0, self.index)

    def scatter(self, values: Tensor, fill: float = 0.0) -> Tensor:
        """P^T x: put `values` (n, ...) into their cells, (N, ...), with `fill` elsewhere."""
        cells = values.new_full((self.num_cells, *values.shape[1:]), fill)
        return (
            cells.index_copy(0, self.index, values)
            if values.requires_grad
            else cells.index_copy_(0, self.index, values)
        )

    def with_coords(self, coords: Sequence[Tensor]) -> "PartialGrid":
        """Return the same cells at other coordinates, on the device of these."""
        found = PartialGrid(tuple(coords), self.observed.to(coords[0].device))
        if found.observed is self.observed:  # what was found out about the cells stays true
            vars(found).update({name: vars(self)[name] for name in ABOUT_CELLS if name in vars(self)})
        return found

    def to(self, *, dtype: torch.dtype | None = None, device: torch.device | str | None = None) -> "PartialGrid":
        """Return the same grid with its coordinates in another dtype or on another device."""
        return self.with_coords([x.to(dtype=dtype, device=device) for x in self.coords])
