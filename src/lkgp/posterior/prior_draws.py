"""Draws from the prior, as functions of coordinates.

A draw of one term on a product of points is (R_1 (x) ... (x) R_d) w with R_k R_k^T = K_k and w standard normal; a draw
of the model is the sum over its terms. When new points are requested, R_k is extended to [[R, 0], [C, S]], and w gets
new entries, so that the joint covariance of old and new points is exact in every combination of factors, and earlier
values do not change.

Every new point is therefore remembered, and makes the next one more expensive: there is a limit on the numbers kept.

What the draws know is one immutable record. Threads read it without a lock; one at a time replaces it by a larger one.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf, prod
from typing import Any

import torch
from torch import Tensor

from lkgp.concurrency import Lock
from lkgp.errors import InputError
from lkgp.linalg.kronecker import sum_of
from lkgp.model import LatentKroneckerGP
from lkgp.posterior.factor_roots import FactorRoot, StructuredRoot, locate, new_points, root_of
from lkgp.posterior.normals import Normals, draw_normals


def draw_numbers(
    num: int,
    roots: Sequence[FactorRoot | StructuredRoot],
    generator: torch.Generator,
    shape: Sequence[int],
    axis: int | None = None,
    added: int | None = None,
) -> Tensor:
    """What is kept for `num` draws of a term, (num, w_1, ..., w_d): standard normal numbers, or values at points.

    shape: w_1, ..., w_d
    axis, added: for an extension, the axis and the number of its new columns
    """
    sizes = [added if k == axis and added is not None else size for k, size in enumerate(shape)]
    structured = {k: root for k, root in enumerate(roots) if k != axis and isinstance(root, StructuredRoot)}
    like = roots[0].like
    if not structured:
        return draw_normals([num, *sizes], generator, like)
    # Values at points depend on more normal numbers than there are points: these are drawn for one draw at a time, into
    # the order in which they are kept.
    kept = like.new_empty(*sizes, num).movedim(-1, 0)
    widths = [structured[k].noise_width() if k in structured else size for k, size in enumerate(sizes)]
    for one in kept:
        cells = draw_normals(widths, generator, like)
        for k, root in structured.items():
            along = cells.movedim(k, 0)
            values = root.first_numbers(along.reshape(len(along), -1))
            cells = values.reshape(-1, *along.shape[1:]).movedim(0, k)
        one.copy_(cells)
    return kept


@dataclass(frozen=True, eq=False)
class TermDraws:
    """The draws of one term: R_k of every factor, and the standard normal numbers."""

    roots: tuple[FactorRoot | StructuredRoot, ...]
    normals: Normals

    def extended(self, new: Sequence[Tensor], generator: torch.Generator) -> "TermDraws":
        """The same draws with further points of the factors, (a_k, d_k) each."""
        roots, normals = list(self.roots), self.normals
        for k, points in enumerate(new):
            if not len(points):
                continue
            roots[k] = roots[k].extended(points)
            added = roots[k].width - normals.shape[k]
            if added:
                numbers = draw_numbers(normals.num, roots, generator, normals.shape, k, added)
                normals = normals.extended(k, numbers)
        return TermDraws(tuple(roots), normals)

    def largest_numbers(self, added: Sequence[int]) -> int:
        """The most numbers that are kept with `added` further points of the factors."""
        widths = [root.width + a for root, a in zip(self.roots, added, strict=True)]
        grown = sum(root.stored_numbers + 2 * a * w for root, a, w in zip(self.roots, added, widths, strict=True))
        return grown + self.normals.num * prod(widths)

    def given_first(
        self, coords: Sequence[Tensor], places: Sequence[Tensor]
    ) -> tuple[Callable[[slice], Tensor], Tensor]:
        """The draws at other cells, conditional on the first points; see `PriorDraws.given_training`."""
        given, normals = [], self.normals
        told, total = (torch.ones((), dtype=coords[0].dtype, device=coords[0].device) for _ in range(2))
        for k, (root, points, index) in enumerate(zip(self.roots, coords, places, strict=True)):
            rows, explained = root.given_first(points, index)
            given.append(rows)
            told = told[..., None] * explained
            total = total[..., None] * root.term.factor_variance(k, points)
        return lambda columns: normals.times(given, columns), (total - told).clamp(min=0)


@dataclass(frozen=True, eq=False)
class KnownDraws:
    """What is known of the draws so far.

    points: all points so far, (u_k, d_k) for each factor; the first ones are those of the fitted grid
    terms: the draws of every term
    generator: the state of the random number generator
    """

    points: tuple[Tensor, ...]
    terms: tuple[TermDraws, ...]
    generator: Tensor

    def extended(self, new: Sequence[Tensor]) -> "KnownDraws":
        """The same draws with further points, (a_k, d_k) for each factor."""
        generator = torch.Generator(self.points[0].device)
        generator.set_state(self.generator)
        terms = tuple(term.extended(new, generator) for term in self.terms)
        points = tuple(torch.cat(pair) for pair in zip(self.points, new, strict=True))
        return KnownDraws(points, terms, generator.get_state())

    def largest_bytes(self, new: Sequence[Tensor]) -> float:
        """The most bytes that are kept with further points."""
        numbers = sum(term.largest_numbers([len(points) for points in new]) for term in self.terms)
        return float(numbers) * self.points[0].element_size()


class PriorDraws:
    """`num` draws of f - mean from the prior: functions with consistent values wherever they are evaluated.

    max_bytes: limit on the memory of the points outside the fitted grid. The first request for such points is always
        accepted, and those after it as long as they at most double the memory.
    max_memory: limit in bytes on the memory of a root over the fitted points
    replay_log: the new points of the requests that had any, in order; for a factor without new points, one known point
    closed: why no further points can be added; empty if they can
    """

    @torch.no_grad()
    def __init__(
        self,
        model: LatentKroneckerGP,
        coords: Sequence[Tensor],
        num: int,
        generator: torch.Generator,
        max_bytes: float = inf,
        max_memory: float = inf,
    ) -> None:
        self.num, self.max_bytes, self.closed = num, max_bytes, ""
        terms = []
        for term in model.terms:
            roots = tuple(root_of(term, k, points, max_memory) for k, points in enumerate(coords))
            numbers = draw_numbers(num, roots, generator, [root.width for root in roots])
            terms.append(TermDraws(roots, Normals.of(numbers)))
        self.training = tuple(coords)
        self.known = KnownDraws(self.training, tuple(terms), generator.get_state())
        self.begun = self.known.largest_bytes([x[:0] for x in coords])
        self.replay_log: list[Sequence[Tensor]] = []
        self._lock = Lock()

    def __getstate__(self) -> dict[str, Any]:
        """A consistent copy of what is known, also while another thread adds points."""
        with self._lock:
            return {**vars(self), "replay_log": list(self.replay_log)}

    @property
    def num_new(self) -> int:
        """The number of remembered points outside the fitted grid, over all factors."""
        return sum(len(x) - len(own) for x, own in zip(self.known.points, self.training, strict=True))

    @property
    def bytes_of_new(self) -> float:
        """The memory that these points take."""
        return self.known.largest_bytes([x[:0] for x in self.training]) - self.begun

    @torch.no_grad()
    def at(self, coords: Sequence[Tensor]) -> Callable[[slice], Tensor]:
        """The draws at every cell of the product of `coords`: a function from a slice of them to values (N', c)."""
        known = self.known
        places = self._places(coords, known)
        if any(bool((index < 0).any()) for index in places):
            known = self._remember(coords)
            places = self._places(coords, known)
        found = []
        for term in known.terms:
            rows = [root.rows(index) for root, index in zip(term.roots, places, strict=True)]
            found.append((term.normals, rows))
        return lambda columns: sum_of(normals.times(rows, columns) for normals, rows in found)

    def __call__(self, coords: Sequence[Tensor], columns: slice = slice(None)) -> Tensor:
        """The draws, or those in `columns`, at every cell of the product of `coords`, (N', num)."""
        return self.at(coords)(columns)

    def _places(self, coords: Sequence[Tensor], known: KnownDraws) -> list[Tensor]:
        """Which of the known points each of `coords` is, or -1, (n'_k,) for each factor."""
        triples = zip(coords, self.training, known.points, strict=True)
        return [locate(x, own if x is own else every) for x, own, every in triples]

    def _remember(self, coords: Sequence[Tensor]) -> KnownDraws:
        """Add the new ones of the requested points, all threads one after the other."""
        with self._lock:
            new = new_points(coords, self.known.points)
            if any(map(len, new)):
                self._check_room(new)
                self._add(new)
            return self.known

    def _check_room(self, new: Sequence[Tensor]) -> None:
        if self.closed:
            raise InputError(self.closed)
        needed = self.known.largest_bytes(new) - self.begun
        if self.replay_log and needed > self.max_bytes:
            raise InputError(
                f"these draws remember {self.num_new} points outside the fitted grid, so that their functions are "
                f"consistent, and {sum(map(len, new))} more would take {needed / 1e9:.2g} GB, more than the limit of "
                f"{self.max_bytes / 1e9:.2g} GB; request all points in one call, use another seed, or raise max_memory."
            )

    def _add(self, new: Sequence[Tensor]) -> None:
        self.known = self.known.extended(new)
        if not self.replay_log:
            self.max_bytes = max(self.max_bytes, 2 * self.bytes_of_new)
        pairs = zip(new, self.training, strict=True)
        self.replay_log.append([points if len(points) else own[:1] for points, own in pairs])

    @torch.no_grad()
    def replay(self, log: Sequence[Sequence[Tensor]]) -> None:
        """Repeat earlier requests, so that these draws equal earlier draws with the same seed."""
        with self._lock:
            for coords in log:
                new = new_points(coords, self.known.points)
                if any(map(len, new)):
                    self._add(new)

    @torch.no_grad()
    def given_training(self, coords: Sequence[Tensor]) -> tuple[Callable[[slice], Tensor], Tensor]:
        """The draws at other cells, conditional on the first points, without drawing any new numbers.

        Returns a function from a slice of the draws to their conditional means (N', c), and the conditional variance,
        (n'_1, ..., n'_d). Neither depends on which other cells were requested before.
        """
        places = [locate(x, own) for x, own in zip(coords, self.training, strict=True)]
        found = [term.given_first(coords, places) for term in self.known.terms]
        means = [mean for mean, _ in found]
        return lambda columns: sum_of(mean(columns) for mean in means), sum_of(left for _, left in found)
