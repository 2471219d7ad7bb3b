"""Find the rows of equally spaced points to which points belong: lines in a plane, or circles around an axis."""

from dataclasses import dataclass

import torch
from torch import Tensor

from lkgp.linalg.regular import OFF_LATTICE, SAME, RegularAxis

# Angles around the axis lose digits near the poles; those of circles with at least this fraction of the largest radius
# tell the step.
LARGE = 0.01


@dataclass(frozen=True, eq=False)
class Circles:
    """Rows of points at multiples of one step, along straight lines or around a common axis.

    rows: for each row, its place across the rows, (r, 1); or its distance from the axis and its height, (r, 2)
    step: between neighbours in a row, a length or, around an axis, an angle
    length: number of places in a row
    closed: whether the last place in a row is a neighbour of the first
    index: the position of each point among all rows, in C order, (n,)
    regular: which column runs along straight lines; none around an axis
    """

    rows: Tensor
    step: float
    length: int
    closed: bool
    index: Tensor
    regular: int | None

    @classmethod
    def in_plane(cls, coords: Tensor, most: float) -> "Circles | None":
        """The rows of points (n, 2) of which one column is regular, with at most `most` places."""
        if coords.shape[1] != 2:
            return None
        found = []
        for regular in (0, 1):
            rows, label = distinct(coords[:, 1 - regular])
            axis = RegularAxis.of(coords[:, regular], most / len(rows))
            if axis is not None and axis.length * len(rows) <= most:
                index = label * axis.length + axis.place
                found.append(cls(rows[:, None], axis.step, axis.length, False, index, regular))
        # Fewer rows mean smaller matrices.
        return min(found, key=lambda circles: len(circles.rows), default=None)

    @classmethod
    def on_sphere(cls, coords: Tensor, most: float) -> "Circles | None":
        """The circles of latitude of points (n, 3) on a sphere, at most `most` places; the third column is its axis."""
        if coords.shape[1] != 3 or len(coords) < 4:
            return None
        precise = coords.detach().double()
        centre = centre_of_sphere(precise)
        if centre is None:
            return None
        heights, label = distinct(precise[:, 2])
        across = precise[:, :2] - centre[:2]
        distance = across.norm(dim=1)
        counts = torch.bincount(label, minlength=len(heights))
        mean = torch.zeros_like(heights).index_add(0, label, distance) / counts
        largest = float(mean.max())
        angle = torch.atan2(across[:, 1], across[:, 0])
        around = _around(angle, distance > LARGE * largest, most / len(heights))
        if around is None:
            return None
        start, step, length, closed = around
        place = (torch.remainder(angle - start + step / 2, 2 * torch.pi) / step - 0.5).round().long()
        # How far points are from their places, along and across the circle
        along = torch.remainder(angle - start - step * place + torch.pi, 2 * torch.pi) - torch.pi
        off = torch.maximum(along.abs() * distance, (distance - mean[label]).abs())
        if int(place.max()) >= length or bool((off > OFF_LATTICE * step * distance + SAME * largest).any()):
            return None
        rows = torch.stack([mean, heights], dim=1).to(coords.dtype)
        return cls(rows, step, length, closed, label * length + place, None)

    def points(self, lags: Tensor) -> tuple[Tensor, Tensor]:
        """The first point of every row, (r, d), and the points `lags` (l,) steps further in every row, (l r, d)."""
        along = (self.step * lags).to(self.rows)
        return self._at(along.new_zeros(1)), self._at(along)

    def _at(self, along: Tensor) -> Tensor:
        """The points of all rows at the places `along` (l,), place by place, (l r, d)."""
        if self.regular is not None:
            pair = torch.broadcast_tensors(self.rows[:, 0], along[:, None])
            return torch.stack(pair if self.regular == 1 else pair[::-1], dim=-1).reshape(-1, 2)
        distance, height = self.rows.mT
        x, y = along.cos()[:, None] * distance, along.sin()[:, None] * distance
        return torch.stack([x, y, height.expand_as(x)], dim=-1).reshape(-1, 3)


def distinct(numbers: Tensor) -> tuple[Tensor, Tensor]:
    """The distinct ones of the numbers (n,), ascending, (r,), and which of them each number is, (n,)."""
    values, label = torch.unique(numbers.detach(), return_inverse=True)
    new = torch.cat([values.new_ones(1, dtype=torch.bool), values.diff() > SAME * (values[-1] - values[0])])
    return values[new], (new.long().cumsum(0) - 1)[label]


def centre_of_sphere(points: Tensor) -> Tensor | None:
    """The centre (3,) of the sphere through the points (n, 3); None if they are on no sphere.

    |p|^2 = 2 c^T p + (r^2 - |c|^2) is linear in the unknowns.
    """
    mean = points.mean(dim=0)
    away = points - mean
    squares = away.square().sum(dim=1)
    known = torch.cat([2 * away, torch.ones_like(away[:, :1])], dim=1)
    # Places on one circle of latitude determine the axis but not the centre; the shortest solution is then as good.
    found = torch.linalg.lstsq(known, squares[:, None], driver="gelsd").solution[:, 0]
    if float((known @ found - squares).abs().max()) > 1e-8 * float(squares.max()):
        return None
    return mean + found[:3]


def _around(angle: Tensor, certain: Tensor, most: float) -> tuple[float, float, int, bool] | None:
    """The first of angles (n,), their step, the number of places, and whether these close a circle.

    certain: which of them are known with all digits, boolean (n,)
    """
    turn = 2 * torch.pi
    ascending = angle[certain].sort().values
    gaps = torch.cat([ascending.diff(), ascending[:1] + turn - ascending[-1:]])
    # The widest gap is put at the ends.
    start = float(ascending[(int(gaps.argmax()) + 1) % len(ascending)])
    tiny = turn * SAME
    axis = RegularAxis.of(torch.remainder(angle[certain] - start + tiny, turn), most)
    if axis is None or axis.length < 3:
        return None
    first, whole = start + axis.start - tiny, turn / axis.step
    # The circle is closed if it holds a whole number of steps, and not many more than those with points.
    if abs(whole - round(whole)) <= OFF_LATTICE * whole / axis.length and round(whole) <= 2 * axis.length:
        return first, turn / round(whole), round(whole), True
    return first, axis.step, axis.length, False
