"""A stationary kernel over points of a regular lattice in one or more dimensions, not all of which need be present."""

import math
from collections.abc import Callable, Sequence
from functools import partial
from math import prod
from typing import Any

import torch
from torch import Tensor

from lkgp.errors import InputError
from lkgp.linalg.factors.base import WORK_ENTRIES, CovarianceFunction, Factor, all_processes, looked_up
from lkgp.linalg.factors.structured import StructuredFactor
from lkgp.linalg.factors.toeplitz import is_regular
from lkgp.linalg.fourier import fast_lengths, inverse, transform
from lkgp.linalg.markov_processes import Process, processes_of
from lkgp.linalg.noise_roots import PIVOTED, MatrixRoot, NoiseRoot, SumRoot, circulant_root
from lkgp.linalg.regular import Lattice, lags

# Below this many points, the factor is dense: products already are as fast from about 1000 points on, but everything
# else is simpler with a matrix.
LATTICE_PAYS = 3000
# Multiplications per cell that take as long as a product with 64 x 64 points. Measured with 32 columns in float64 on
# one core while other programs ran: 7 ms, and 39 ms for a dense matrix of 4096 points.
AT_4096_POINTS = 700.0
# The lattice has at most this many cells per point, so that transforms do not mostly transform zeros.
MOST_CELLS_PER_POINT = 16


class LatticeFactor(StructuredFactor):
    """K_ij = table at the lag between points i and j; products take O(M log M) for a lattice of M cells, by FFT.

    table: (m_1, 2 m_2 - 1, ..., 2 m_d - 1), covariances at all lags that are not negative along the first axis; the
        others follow from k(x, x') = k(x', x)
    index: the points of the factor in the lattice of m_1 x ... x m_d cells, in C order, (n_k,)
    evaluate: covariances at lags (a, d), (a,), for lags beyond the table; none if they are unknown
    steps: of the lattice
    parts: as `evaluate`, for every part of a sum of kernels; of_parts: the processes of each part
    """

    kind = "lattice"

    def __init__(
        self,
        table: Tensor,
        *,
        index: Tensor,
        evaluate: Callable[[Tensor], Tensor] | None = None,
        steps: tuple[float, ...] = (),
        parts: Sequence[Callable[[Tensor], Tensor]] = (),
        of_parts: Sequence[Sequence[Process]] = (),
    ) -> None:
        super().__init__(table, index=index, evaluate=evaluate, steps=steps, parts=parts, of_parts=of_parts)
        self.table, self.index, self.evaluate, self.steps = table, index, evaluate, steps
        self.parts, self.of_parts = parts, of_parts
        first, *others = table.shape
        self.cells = (first, *((size + 1) // 2 for size in others))
        self._known_spectrum: Tensor | None = None
        self._known_numbers: Tensor | None = None

    @classmethod
    def of(cls, function: CovarianceFunction, coords: Tensor) -> "LatticeFactor":
        lattice = Lattice.of(coords, MOST_CELLS_PER_POINT * max(len(coords), LATTICE_PAYS))
        if lattice is None or not function.stationary:
            raise InputError(
                "a lattice factor needs a stationary kernel and points of a regular lattice; choose another structure."
            )
        table = table_of(partial(at_lags, function), lattice.shape, lattice.steps, coords)
        known = [processes_of(part, coords.shape[1]) for part in function.summands]
        parts = [partial(at_lags, part) for part in function.summands]
        evaluate = partial(at_lags, function)
        return cls(table, index=lattice.index, evaluate=evaluate, steps=lattice.steps, parts=parts, of_parts=known)

    @classmethod
    def suits(cls, function: CovarianceFunction, coords: Tensor) -> bool:
        # A whole regular column is a Toeplitz factor.
        if len(coords) < LATTICE_PAYS or not function.stationary or is_regular(coords):
            return False
        return Lattice.of(coords, MOST_CELLS_PER_POINT * len(coords)) is not None

    @classmethod
    def product_cost(cls, points: int) -> float:
        # The cost of a Fourier transform per cell grows with the logarithm.
        return AT_4096_POINTS * math.log(max(points, 2)) / math.log(4096)

    @classmethod
    def stored_numbers(cls, points: int) -> float:
        # the table, its spectrum, and the index
        return 7.0 * points

    def rows_at(self, index: Tensor) -> Tensor:
        return self.entries(index[:, None], torch.arange(len(self.index), device=index.device))

    def largest_row_sum(self) -> float:
        absolute = LatticeFactor(self.table.detach().abs(), index=self.index)
        return float(absolute.transposed_product(self.table.new_ones(len(self.index), 1)).max())

    def rounded(self, dtype: torch.dtype) -> "LatticeFactor":
        return self._with_table(self.table.to(dtype))

    def difference(self, other: Factor) -> "LatticeFactor | None":
        if not isinstance(other, LatticeFactor) or other.table.shape != self.table.shape:
            return None
        return LatticeFactor(self.table - other.table, index=self.index)

    def _with_table(self, table: Tensor) -> "LatticeFactor":
        known: dict[str, Any] = {
            "evaluate": self.evaluate,
            "steps": self.steps,
            "parts": self.parts,
            "of_parts": self.of_parts,
        }
        return LatticeFactor(table, index=self.index, **known)

    @torch.no_grad()
    def summands(self) -> Sequence[Factor]:
        if len(self.parts) < 2:
            return [self]
        like = self.table.double()
        return [
            LatticeFactor(
                table_of(part, self.cells, self.steps, like),
                index=self.index,
                evaluate=part,
                steps=self.steps,
                of_parts=[known],
            )
            for part, known in zip(self.parts, self.of_parts, strict=True)
        ]

    @property
    def processes(self) -> Sequence[Process]:
        return all_processes(self.of_parts)

    # Products

    def transposed_product(self, z: Tensor) -> Tensor:
        columns = z.mT  # (..., c, n_k)
        flat = columns.reshape(-1, columns.shape[-1])
        lengths = fast_lengths(self.cells)
        spectrum = self._spectrum(lengths)
        parts = []
        for part in flat.split(max(1, WORK_ENTRIES // prod(lengths))):
            spectra = transform(self._on_lattice(part), lengths) * spectrum
            parts.append(inverse(spectra, lengths, self.cells).reshape(len(part), -1).index_select(1, self.index))
        return torch.cat(parts).reshape(columns.shape)

    def transposed_product_into(self, z: Tensor, out: Tensor) -> Tensor:
        return out.copy_(self.transposed_product(z))

    def _on_lattice(self, columns: Tensor) -> Tensor:
        """Numbers at the points, (c, n_k), as arrays with zeros elsewhere, (c, m_1, ..., m_d)."""
        cells = columns.new_zeros(len(columns), prod(self.cells))
        # Repeated points are added, as they are in the product with a matrix.
        return cells.index_add(1, self.index, columns).reshape(-1, *self.cells)

    def _spectrum(self, lengths: Sequence[int]) -> Tensor:
        """The eigenvalues of the circulant matrix of which K is a submatrix, (L_1, ..., L_d / 2 + 1), real."""
        if self._known_spectrum is not None and not self.table.requires_grad:
            return self._known_spectrum
        circulant = self.table.double()
        for axis in range(1, len(self.cells)):
            # lags 0 to m - 1, then zeros, then lags -(m - 1) to -1
            negative, positive = circulant.split([self.cells[axis] - 1, self.cells[axis]], dim=axis)
            circulant = torch.cat([_padded(positive, axis, lengths[axis], negative), negative], dim=axis)
        # k(-lag) = k(lag): along the first axis, the negative lags are the positive ones with all other signs changed.
        others = tuple(range(1, len(self.cells)))
        mirrored = (
            circulant[1:].flip((0, *others)).roll((1,) * len(others), others) if others else circulant[1:].flip(0)
        )
        circulant = torch.cat([_padded(circulant, 0, lengths[0], mirrored), mirrored])
        spectrum = transform(circulant[None], lengths)[0].real.to(self.table.dtype)
        if not self.table.requires_grad:
            self._known_spectrum = spectrum
        return spectrum

    # Gradients

    def pull_back(self, left: Tensor, right: Tensor) -> Tensor:
        # The weight of lag l is the sum over i - j = l of left_i right_j: a correlation, which is a product of Fourier
        # transforms.
        lengths = fast_lengths(self.cells)
        total = left.new_zeros(lengths)
        width = max(1, WORK_ENTRIES // prod(lengths))
        for a, b in zip(left.split(width, dim=1), right.split(width, dim=1), strict=True):
            spectra = transform(self._on_lattice(a.mT), lengths) * transform(self._on_lattice(b.mT), lengths).conj()
            total += inverse(spectra.sum(dim=0, keepdim=True), lengths, lengths)[0]
        for axis in range(1, len(self.cells)):
            m = self.cells[axis]
            negative = total.narrow(axis, lengths[axis] - m + 1, m - 1)
            total = torch.cat([negative, total.narrow(axis, 0, m)], dim=axis)
        m = self.cells[0]
        weights = total[:m].clone()
        weights[1:] += total[len(total) - m + 1 :].flip(tuple(range(total.ndim)))
        return weights

    def gather_weights(self, rows: Tensor, columns: Tensor, weights: Tensor) -> Tensor:
        total = torch.bincount(self._places(rows, columns), weights, minlength=self.table.numel())
        return total.view(self.table.shape)

    def inner(self, weights: Tensor) -> Tensor:
        return (weights.to(self.table.dtype) * self.table).sum()

    # Draws

    def noise_root(self) -> NoiseRoot:
        if len(self.parts) > 1:
            return SumRoot([part.noise_root() for part in self.summands()])
        if self.evaluate is not None:
            root = circulant_root(self.evaluate, self.cells, self.steps, self.index, self.table)
            if root is not None:
                return root
        return MatrixRoot(self.triangular_root().root, f"{PIVOTED}, because the circulant embedding is not positive")

    @property
    def num_points(self) -> int:
        return len(self.index)

    # Methods that `LinearOperator` requires of its subclasses.

    def _diagonal(self) -> Tensor:
        origin = (0, *(m - 1 for m in self.cells[1:]))
        return self.table[origin].expand(len(self.index))

    def _get_indices(self, row_index: Tensor, col_index: Tensor, *batch_indices: Tensor) -> Tensor:
        return looked_up(self.table.flatten(), self._places(row_index, col_index))

    def _places(self, rows: Tensor, columns: Tensor) -> Tensor:
        """The places in the flattened table of the lags between points, in the shape of these indices."""
        # A point is numbered as if the lattice had as many cells as the table. The difference of two numbers then has
        # the sign of the first lag that is not zero, and a lag of the other sign has the same covariance.
        if self._known_numbers is None:
            along = torch.unravel_index(self.index, self.cells)
            number = along[0]
            for position, size in zip(along[1:], self.table.shape[1:], strict=True):
                number = number * size + position
            self._known_numbers = number
        middle = 0
        for m, size in zip(self.cells[1:], self.table.shape[1:], strict=True):
            middle = middle * size + m - 1
        return (self._known_numbers[rows] - self._known_numbers[columns]).abs_().add_(middle)


def at_lags(function: CovarianceFunction, differences: Tensor) -> Tensor:
    """Covariances at differences of points (a, d), (a,)."""
    origin = torch.zeros_like(differences[:1])
    return torch.cat([function(block, origin)[:, 0] for block in differences.split(WORK_ENTRIES)])


def table_of(
    evaluate: Callable[[Tensor], Tensor], shape: tuple[int, ...], steps: tuple[float, ...], like: Tensor
) -> Tensor:
    """The table of a `LatticeFactor` with a lattice of this shape."""
    signed = [False] + [True] * (len(shape) - 1)
    sizes = [2 * m - 1 if both else m for m, both in zip(shape, signed, strict=True)]
    return evaluate(lags(shape, steps, like, signed)).reshape(sizes)


def _padded(positive: Tensor, axis: int, length: int, negative: Tensor) -> Tensor:
    """`positive` continued by zeros along an axis so that with `negative` it has the given length."""
    shape = list(positive.shape)
    shape[axis] = length - positive.shape[axis] - negative.shape[axis]
    return torch.cat([positive, positive.new_zeros(shape)], dim=axis)
