"""Blocks of cells along one axis, each with the last observed cells before it.

The cells of a grid are points of one long axis, here called times, and places: the combinations of the points of all
other axes. Places form groups of neighbours. The cells of a group at one time are a block; they are predicted from

    - the last observed cells of each place of the group, and the last one of some places nearby,
    - the cells at the same time of the nearest places in earlier groups.

A place that was not observed for a while is so predicted from what was known before its gap.
"""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lkgp.data.grid import PartialGrid
from lkgp.linalg.neighbours import compact_groups, nearest

Index = NDArray[np.int64]

# The most places in a group, and how many places outside it are used: of the last cells, and at the same time. With few
# places outside, solves for hundreds of places take more iterations; larger groups have longer rows.
GROUP, LAST_NEARBY, NOW_NEARBY = 32, 32, 32


@dataclass(frozen=True, eq=False)
class PlaceGroup:
    """The places of a block and of the cells before it.

    own: the places of the group, (g,)
    before: places whose last cells are used, (b,), each as often as cells of it are used
    back: how many observed cells of that place are between that cell and the block, and itself, (b,): 1 for the last
    now: places of earlier groups that are used at the same time, (a,)
    """

    own: Index
    before: Index
    back: Index
    now: Index

    @property
    def places(self) -> Index:
        """The places of all cells, those of the block last, (b + a + g,)."""
        return np.concatenate([self.before, self.now, self.own])


def place_groups(places: NDArray[np.floating], last: int) -> list[PlaceGroup]:
    """Divide places (s, e), near ones being more correlated, into groups.

    last: the number of last cells of each place of the group
    """
    count = len(places)
    if count <= GROUP:
        every = np.arange(count)
        return [_group(every, every[:0], every[:0], last)]
    groups, taken = [], np.zeros(count, dtype=bool)
    for members in compact_groups(places, GROUP):
        own = np.unique(members)
        own = own[~taken[own]]
        centre = places[own].mean(axis=0, keepdims=True)
        order = nearest(centre, places, count)[0]
        others = order[~np.isin(order, own)]
        earlier = others[taken[others]]
        groups.append(_group(own, others[:LAST_NEARBY], earlier[:NOW_NEARBY], last))
        taken[own] = True
    return groups


def _group(own: Index, nearby: Index, now: Index, last: int) -> PlaceGroup:
    before = np.concatenate([nearby, *([own] * last)])
    back = np.concatenate([np.ones(len(nearby), dtype=np.int64), *(np.full(len(own), i + 1) for i in range(last))])
    return PlaceGroup(own, before, back, now)


@dataclass(frozen=True, eq=False)
class Succession:
    """The observed cells of a grid as times and places.

    axis: the long axis
    order: its points in ascending order, (t,)
    cells: the observed cell at each time and place, in that order, (t, s); n where nothing was observed
    last: the time at which a place was observed last before each time, (t, s); -1 for none
    absent: n
    """

    axis: int
    order: Tensor
    cells: Tensor
    last: Tensor
    absent: int

    @classmethod
    def of(cls, grid: PartialGrid, axis: int) -> "Succession":
        order = torch.argsort(grid.coords[axis][:, 0])
        rank = torch.argsort(order)
        others = [n for k, n in enumerate(grid.shape) if k != axis]
        place = torch.zeros_like(grid.index)
        for k, index in enumerate(grid.axis_index):
            if k != axis:
                place = place * grid.shape[k] + index
        cells = torch.full((len(order), int(np.prod(others))), grid.num_observed, device=grid.index.device)
        cells[rank[grid.axis_index[axis]], place] = torch.arange(grid.num_observed, device=grid.index.device)
        times = torch.arange(len(order), device=cells.device)[:, None]
        seen = torch.where(cells < grid.num_observed, times, -1)
        last = torch.cat([torch.full_like(seen[:1], -1), torch.cummax(seen, dim=0).values[:-1]])
        return cls(axis, order, cells, last, grid.num_observed)

    def on_grid(self, values: Tensor) -> Tensor:
        """Numbers at the observed cells, (n, c), at all times and places with zeros elsewhere, (t, s, c)."""
        padded = torch.cat([values, values.new_zeros(1, values.shape[1])])
        return padded[self.cells.reshape(-1)].view(*self.cells.shape, values.shape[1])

    def observed(self, table: Tensor) -> Tensor:
        """Those of the numbers at all times and places, (t, s, c), that are at the observed cells, (n, c)."""
        found = table.new_empty(self.absent + 1, table.shape[2])
        found[self.cells.reshape(-1)] = table.reshape(-1, table.shape[2])
        return found[:-1]

    def blocks(self, group: PlaceGroup, times: Tensor) -> tuple[Tensor, Tensor]:
        """The times and the cells of the blocks of a group at some times (m,), each (m, w); see `PlaceGroup.places`.

        The time of an absent cell is any, and its cell is n.
        """
        before = torch.as_tensor(group.before, device=times.device)
        when = times[:, None].expand(-1, len(before))
        for step in range(int(group.back.max(initial=0))):
            # one observed cell further back, where that is wanted
            further = torch.as_tensor(group.back > step, device=times.device)
            when = torch.where(further, self.last[when.clamp(min=0), before].masked_fill(when < 0, -1), when)
        cells = torch.where(when >= 0, self.cells[when.clamp(min=0), before], self.absent)
        columns = [(when.clamp(min=0), cells)]
        for places in (group.now, group.own):
            now = times[:, None].expand(-1, len(places))
            columns.append((now, self.cells[now, torch.as_tensor(places, device=times.device)]))
        return torch.cat([t for t, _ in columns], dim=1), torch.cat([c for _, c in columns], dim=1)
