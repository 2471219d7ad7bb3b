"""Matern kernels of smoothness 1/2, 3/2 and 5/2, and sums of them, over one column: products in linear time.

f is then one entry of a state of at most three numbers, whose future depends on its past through the present only.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from lkgp.errors import InputError
from lkgp.linalg.factors.base import WORK_ENTRIES, CovarianceFunction
from lkgp.linalg.factors.structured import StructuredFactor
from lkgp.linalg.markov_processes import Process, components
from lkgp.linalg.noise_roots import NoiseRoot
from lkgp.linalg.state_space import innovations, scan, stationary, transitions

# Below this many points, the factor is dense: products already are as fast from about 1000 points on, but everything
# else is simpler with a matrix.
MARKOV_PAYS = 2000
# Multiplications per cell that take as long as a product. Measured with Matern-3/2 and 32 columns in float64 on one
# core while other programs ran: 3.4 ms for 4096 points and 5.5 ms for 6400, and 39 and 89 ms for dense matrices.
PRODUCT = 400.0
# Covariances among this many neighbours are kept as dense matrices; only those between such blocks go through states.
BLOCK = 64


class MarkovFactor(StructuredFactor):
    """K_ij = sum_c variance_c m_c(a_c |t_i - t_j|) with the Matern function m_c of order p_c = nu_c + 1/2.

    numbers: variance_c and a_c, (c, 2)
    times: the points, in any order and possibly repeated, (n_k,), in float64
    orders: p_c
    """

    kind = "markov"

    def __init__(self, numbers: Tensor, *, times: Tensor, orders: tuple[int, ...]) -> None:
        super().__init__(numbers, times=times, orders=orders)
        self.numbers, self.times, self.orders = numbers, times, orders
        self._known_blocks: Blocks | None = None

    @classmethod
    def of(cls, function: CovarianceFunction, coords: Tensor) -> "MarkovFactor":
        parts = components(function.kernel)
        if parts is None or coords.shape[1] != 1:
            raise InputError(
                "a markov factor needs one column and Matern kernels with nu = 0.5, 1.5 or 2.5 or sums of them; choose "
                "another structure."
            )
        numbers = torch.stack([torch.stack([variance.double(), a]) for _, variance, a in parts])
        return cls(numbers.to(coords), times=coords[:, 0].detach().double(), orders=tuple(p for p, _, _ in parts))

    @classmethod
    def suits(cls, function: CovarianceFunction, coords: Tensor) -> bool:
        return len(coords) >= MARKOV_PAYS and coords.shape[1] == 1 and components(function.kernel) is not None

    @classmethod
    def product_cost(cls, points: int) -> float:
        return PRODUCT

    @classmethod
    def stored_numbers(cls, points: int) -> float:
        # the dense blocks, and the states at both of their ends
        return (BLOCK + 16.0) * points

    def rows_at(self, index: Tensor) -> Tensor:
        return self.entries(index[:, None], torch.arange(len(self.times), device=index.device))

    def largest_row_sum(self) -> float:
        # All covariances are positive.
        return float(self.transposed_product(self.numbers.new_ones(len(self.times), 1)).max())

    def rounded(self, dtype: torch.dtype) -> "MarkovFactor":
        return MarkovFactor(self.numbers.to(dtype), times=self.times, orders=self.orders)

    @property
    def processes(self) -> Sequence[Process]:
        numbers = self.numbers.detach().double().tolist()
        return [Process(p, variance, a) for p, (variance, a) in zip(self.orders, numbers, strict=True)]

    # Products

    def transposed_product(self, z: Tensor) -> Tensor:
        columns = z.reshape(-1, *z.shape[-2:]).movedim(1, 0).flatten(1)  # (n_k, ... c)
        blocks = self._blocks()
        parts = [blocks.times(part) for part in columns.split(max(1, WORK_ENTRIES // len(columns)), dim=1)]
        return torch.cat(parts, dim=1).mT.reshape(*z.shape[:-2], z.shape[-1], z.shape[-2])

    def transposed_product_into(self, z: Tensor, out: Tensor) -> Tensor:
        return out.copy_(self.transposed_product(z))

    def _blocks(self) -> "Blocks":
        if self._known_blocks is not None and not self.numbers.requires_grad:
            return self._known_blocks
        blocks = Blocks.of(self.numbers, self.orders, self.times)
        if not self.numbers.requires_grad:
            self._known_blocks = blocks
        return blocks

    # Gradients

    def pull_back(self, left: Tensor, right: Tensor) -> Tensor:
        """v - g^T numbers and g, (1 + 2 c,), for the value v of tr(left^T K right) and its derivative g."""
        numbers = self.numbers.detach().double().requires_grad_()
        value, slope = 0.0, torch.zeros_like(numbers)
        width = max(1, WORK_ENTRIES // len(left))
        for a, b in zip(left.split(width, dim=1), right.split(width, dim=1), strict=True):
            with torch.enable_grad():
                part = (a.double() * Blocks.of(numbers, self.orders, self.times).times(b.double())).sum()
            slope += torch.autograd.grad(part, numbers)[0]
            value += float(part.detach())
        return self._tangent(value, slope)

    def gather_weights(self, rows: Tensor, columns: Tensor, weights: Tensor) -> Tensor:
        numbers = self.numbers.detach().double().requires_grad_()
        value, slope = 0.0, torch.zeros_like(numbers)
        for i, j, w in zip(*(x.split(WORK_ENTRIES) for x in (rows, columns, weights)), strict=True):
            with torch.enable_grad():
                part = (w * covariances(numbers, self.orders, (self.times[i] - self.times[j]).abs())).sum()
            slope += torch.autograd.grad(part, numbers)[0]
            value += float(part.detach())
        return self._tangent(value, slope)

    def _tangent(self, value: float, slope: Tensor) -> Tensor:
        # The value is linear in the variances but not in a: a tangent has the same value and the same derivatives.
        offset = value - (slope * self.numbers.detach().double()).sum()
        return torch.cat([offset[None], slope.flatten()])

    def inner(self, weights: Tensor) -> Tensor:
        return weights[0] + (weights[1:] * self.numbers.double().flatten()).sum()

    # Draws

    def noise_root(self) -> NoiseRoot:
        return ForwardRoot(self.numbers.detach().double(), self.orders, self.times)

    @property
    def num_points(self) -> int:
        return len(self.times)

    # Methods that `LinearOperator` requires of its subclasses.

    def _diagonal(self) -> Tensor:
        return self.numbers[:, 0].sum().expand(len(self.times))

    def _get_indices(self, row_index: Tensor, col_index: Tensor, *batch_indices: Tensor) -> Tensor:
        apart = (self.times[row_index] - self.times[col_index]).abs()
        return covariances(self.numbers, self.orders, apart).to(self.numbers.dtype)


def covariances(numbers: Tensor, orders: Sequence[int], apart: Tensor) -> Tensor:
    """The covariance at distances in time, in their shape and in float64."""
    total: Any = 0.0
    for (variance, a), p in zip(numbers.double(), orders, strict=True):
        u = a * apart
        # 1, 1 + u, and 1 + u + u^2 / 3, times exp(-u)
        polynomial = 1 + u * (p > 1) + u.square() / 3 * (p > 2)
        total = total + variance * polynomial * torch.exp(-u)
    return total


@dataclass(frozen=True, eq=False)
class Blocks:
    """K in blocks of neighbouring points: dense inside, through the states at their ends elsewhere.

    order: the points by time, (n_k,)
    inside: covariances within the blocks, (b, BLOCK, BLOCK)
    passes: forward and backward in time, for every component: its order, the times at which the blocks end (b,), the
        state there given numbers at the points (b, p, BLOCK), and the values given the state before (b, BLOCK, p)
    """

    order: Tensor
    inside: Tensor
    passes: list[tuple[bool, int, Tensor, Tensor, Tensor]]

    @classmethod
    def of(cls, numbers: Tensor, orders: Sequence[int], times: Tensor) -> "Blocks":
        sorted_times, order = times.sort()
        count = -(-len(times) // BLOCK)
        # The last block is filled with repetitions of the last time, at which there are no numbers.
        last = sorted_times[-1:].expand(count * BLOCK - len(times))
        t = torch.cat([sorted_times, last]).view(count, BLOCK)
        inside = covariances(numbers, orders, (t[:, :, None] - t[:, None, :]).abs()).to(numbers.dtype)
        passes = []
        for backward, ahead in ((False, t), (True, -t.flip(0, 1))):
            for (variance, a), p in zip(numbers.double(), orders, strict=True):
                end = ahead[:, -1]
                gain = transitions(p, a * (end[:, None] - ahead)) @ (variance * stationary(p, ahead)[:, :1])
                before = torch.cat([ahead[:1, 0], end[:-1]])
                seen = transitions(p, a * (ahead - before[:, None]))[..., 0, :]
                pieces = (a * end, gain[..., 0].mT.to(numbers.dtype), seen.to(numbers.dtype))
                passes.append((backward, p, *pieces))
        return cls(order, inside, passes)

    def times(self, x: Tensor) -> Tensor:
        """K X for X (n_k, c), (n_k, c)."""
        count, width = len(self.inside), x.shape[1]
        blocks = x.new_zeros(count * BLOCK, width).index_copy(0, torch.arange(len(x), device=x.device), x[self.order])
        blocks = blocks.view(count, BLOCK, width)
        total = self.inside @ blocks
        for backward, p, end, gain, seen in self.passes:
            given = blocks.flip(0, 1) if backward else blocks
            state = scan(p, end, gain @ given)
            values = seen[1:] @ state[:-1]
            values = torch.cat([torch.zeros_like(total[:1]), values])
            total = total + (values.flip(0, 1) if backward else values)
        return torch.empty_like(x).index_copy(0, self.order, total.view(-1, width)[: len(x)])


@dataclass(frozen=True, eq=False)
class ForwardRoot:
    """The states one after the other, each from the one before and p standard normal numbers."""

    numbers: Tensor
    orders: tuple[int, ...]
    times_of_points: Tensor

    @property
    def width(self) -> int:
        return len(self.times_of_points) * sum(self.orders)

    @property
    def way(self) -> str:
        return "states forward in time"

    def times(self, z: Tensor) -> Tensor:
        """R Z for Z (width, c), (n_k, c)."""
        ascending, order = self.times_of_points.sort()
        n, columns = len(ascending), z.shape[1]
        total, start = z.new_zeros(n, columns), 0
        for (variance, a), p in zip(self.numbers, self.orders, strict=True):
            t = a * (ascending - ascending[0])
            # The first state is stationary, as after an infinite time.
            elapsed = torch.cat([torch.full_like(t[:1], 1e3), t.diff()])
            roots = (variance.sqrt() * innovations(p, elapsed)).to(z.dtype)
            noise = z[start : start + n * p].view(n, p, columns)
            total += scan(p, t, roots @ noise)[:, 0]
            start += n * p
        return torch.empty_like(total).index_copy(0, order, total)
