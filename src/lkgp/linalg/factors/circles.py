"""A kernel over rows of equally spaced points: dense over pairs of rows, and Toeplitz or circulant along them.

The rows may be circles of latitude with isotropic distances on the sphere, or lines in a plane at irregular distances.
"""

import math
from collections.abc import Callable

import torch
from scipy.fft import next_fast_len
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from lkgp.errors import InputError
from lkgp.linalg.circles import Circles
from lkgp.linalg.factors.base import WORK_ENTRIES, CovarianceFunction, Factor, looked_up
from lkgp.linalg.factors.structured import StructuredFactor
from lkgp.linalg.fourier import inverse, transform
from lkgp.linalg.noise_roots import PIVOTED, TOLERATED, MatrixRoot, NoiseRoot
from lkgp.linalg.regular import Lattice
from lkgp.linalg.row_roots import RowsRoot, root_over_rows

# Below this many points, the factor is dense: products already are faster from about 1000 points on, but everything
# else is simpler with a matrix.
CIRCLES_PAY = 3000
# There are at most this many places per point, so that products do not mostly multiply zeros; and at most this many
# covariances between rows are kept (1 GB in float64).
MOST_PLACES_PER_POINT = 8
MOST_NUMBERS = 2**27
# Draws from rows that are not closed are tried with these multiples of their length.
PADDINGS = (1.0, 1.5, 2.0, 3.0)


def circles_of(function: CovarianceFunction, coords: Tensor) -> Circles | None:
    """The rows to which the points (n_k, d_k) belong, if the kernel depends on two rows and a lag only."""
    most = MOST_PLACES_PER_POINT * max(len(coords), 100)
    if function.isotropic and coords.shape[1] == 3:
        found = Circles.on_sphere(coords, most)
    elif function.stationary and coords.shape[1] == 2:
        found = Circles.in_plane(coords, most)
        found = found if found is None or _is_even(function, found) else None
    else:
        return None
    if found is None or len(found.rows) ** 2 * found.length > MOST_NUMBERS:
        return None
    return found


def _is_even(function: CovarianceFunction, circles: Circles) -> bool:
    """Whether lags forward and backward have the same covariances, as they do if they are functions of distances."""
    lag = torch.tensor([1.0, circles.length / 2])
    with torch.no_grad():
        forward, backward = (function(*circles.points(sign * lag)) for sign in (1, -1))
    return bool(torch.allclose(forward, backward, rtol=1e-10, atol=0.0))


class CirclesFactor(StructuredFactor):
    """K between place p of row i and place q of row j is table[|p - q|, i, j].

    table: (m, r, r), covariances of rows at the lags 0, ..., m - 1; around a closed circle of L places, m = L // 2 + 1
    index: the points of the factor among the r x length places, in C order, (n_k,)
    length: number of places in a row
    closed: whether the last place is a neighbour of the first
    evaluate: lags (l,) -> covariances (l, r, r), for lags beyond the table; none if they are unknown
    """

    kind = "circles"

    def __init__(
        self,
        table: Tensor,
        *,
        index: Tensor,
        length: int,
        closed: bool,
        evaluate: Callable[[Tensor], Tensor] | None = None,
    ) -> None:
        super().__init__(table, index=index, length=length, closed=closed, evaluate=evaluate)
        self.table, self.index, self.length, self.closed, self.evaluate = table, index, length, closed, evaluate
        # The length of the Fourier transforms: that of the circle, or of one of which the row is less than half.
        self.period = length if closed else next_fast_len(2 * length - 1, real=True)
        self._known_spectrum: Tensor | None = None

    @classmethod
    def of(cls, function: CovarianceFunction, coords: Tensor) -> "CirclesFactor":
        circles = circles_of(function, coords)
        if circles is None:
            raise InputError(
                "a circles factor needs rows of equally spaced points, in a plane with a stationary kernel or on a "
                "sphere with an isotropic one; choose another structure."
            )

        def evaluate(lags: Tensor) -> Tensor:
            rows = len(circles.rows)

            def block(some: Tensor) -> Tensor:
                first, others = circles.points(some)
                return function(first, others).view(rows, len(some), rows).movedim(0, 1)

            blocks = lags.split(max(1, WORK_ENTRIES // rows**2))
            if not torch.is_grad_enabled():
                return torch.cat([block(some) for some in blocks])
            # Checkpointing recomputes each block in the backward pass, whose intermediate results would take far more
            # memory than the table.
            return torch.cat([checkpoint(block, some, use_reentrant=False) for some in blocks])

        count = circles.length // 2 + 1 if circles.closed else circles.length
        lags = torch.arange(count, dtype=torch.float64, device=coords.device)
        return cls(evaluate(lags), index=circles.index, length=circles.length, closed=circles.closed, evaluate=evaluate)

    @classmethod
    def suits(cls, function: CovarianceFunction, coords: Tensor) -> bool:
        if len(coords) < CIRCLES_PAY or circles_of(function, coords) is None:
            return False
        # Where both columns of a plane are regular, a lattice keeps far fewer numbers.
        return coords.shape[1] == 3 or Lattice.of(coords, MOST_PLACES_PER_POINT * len(coords)) is None

    @classmethod
    def product_cost(cls, points: int) -> float:
        # Every number is multiplied by a row of a matrix over the rows, about as many as there are places. With
        # 64 circles of 64 places, 2.2 ms were measured where a dense matrix took 39 ms: as many as 230 multiplications.
        return 4 * math.sqrt(points)

    @classmethod
    def stored_numbers(cls, points: int) -> float:
        # the table and its spectrum, for as many rows as places
        return 2.0 * points**1.5

    @property
    def num_rows(self) -> int:
        return self.table.shape[-1]

    def rows_at(self, index: Tensor) -> Tensor:
        return self.entries(index[:, None], torch.arange(len(self.index), device=index.device))

    def largest_row_sum(self) -> float:
        absolute = self._with_table(self.table.detach().abs())
        return float(absolute.transposed_product(self.table.new_ones(len(self.index), 1)).max())

    def rounded(self, dtype: torch.dtype) -> "CirclesFactor":
        return self._with_table(self.table.to(dtype), self.evaluate)

    def difference(self, other: Factor) -> "CirclesFactor | None":
        if not isinstance(other, CirclesFactor) or other.table.shape != self.table.shape:
            return None
        return self._with_table(self.table - other.table)

    def _with_table(self, table: Tensor, evaluate: Callable[[Tensor], Tensor] | None = None) -> "CirclesFactor":
        return CirclesFactor(table, index=self.index, length=self.length, closed=self.closed, evaluate=evaluate)

    # Products

    def transposed_product(self, z: Tensor) -> Tensor:
        columns = z.mT  # (..., c, n_k)
        flat = columns.reshape(-1, columns.shape[-1])
        spectrum = self._spectrum()
        parts = []
        for part in flat.split(self._columns_at_once):
            # At each frequency, the matrix over the rows is real: it multiplies real and imaginary parts alike.
            product = torch.bmm(spectrum, self._frequencies(part))
            rows = torch.view_as_complex(product.view(*product.shape[:2], len(part), 2)).permute(2, 1, 0)
            cells = inverse(rows.reshape(-1, rows.shape[-1]), (self.period,), (self.length,))
            parts.append(cells.reshape(len(part), -1).index_select(1, self.index))
        return torch.cat(parts).reshape(columns.shape)

    def transposed_product_into(self, z: Tensor, out: Tensor) -> Tensor:
        return out.copy_(self.transposed_product(z))

    @property
    def _columns_at_once(self) -> int:
        return max(1, WORK_ENTRIES // (self.num_rows * self.period))

    def _frequencies(self, columns: Tensor) -> Tensor:
        """The transforms along the rows of numbers at the points (c, n_k), (frequencies, r, 2 c)."""
        cells = columns.new_zeros(len(columns), self.num_rows * self.length).index_add(1, self.index, columns)
        spectra = transform(cells.view(-1, self.length), (self.period,))
        spectra = spectra.view(len(columns), self.num_rows, -1).permute(2, 1, 0).contiguous()
        return torch.view_as_real(spectra).flatten(2)

    def _spectrum(self) -> Tensor:
        """The matrices over the rows at every frequency, (frequencies, r, r), real."""
        if self._known_spectrum is not None and not self.table.requires_grad:
            return self._known_spectrum
        spectrum = spectrum_of(self.table, self.period)
        if not self.table.requires_grad:
            self._known_spectrum = spectrum
        return spectrum

    # Gradients

    def pull_back(self, left: Tensor, right: Tensor) -> Tensor:
        # tr(left^T K right) = 1 / L sum_f tr(S_f Re(B_f A_f^H)) over all frequencies, of which half are transformed
        total = left.new_zeros(self.period // 2 + 1, self.num_rows, self.num_rows)
        width = self._columns_at_once
        for a, b in zip(left.mT.split(width), right.mT.split(width), strict=True):
            total.baddbmm_(self._frequencies(a), self._frequencies(b).mT)
        return total * (frequency_counts(self.period, total) / self.period)[:, None, None]

    def gather_weights(self, rows: Tensor, columns: Tensor, weights: Tensor) -> Tensor:
        places = self._places(rows, columns)
        of_table = torch.bincount(places, weights, minlength=self.table.numel()).view(self.table.shape)
        # T_l = 1 / L sum_f c_f cos(2 pi f l / L) S_f over half of the frequencies, each of which counts c_f times
        lags = torch.arange(len(of_table), device=of_table.device)
        counts = frequency_counts(self.period, of_table)
        turns = (torch.arange(len(counts), device=lags.device)[:, None] * lags % self.period).double() / self.period
        return torch.einsum("fl,lab->fab", counts[:, None] / self.period * torch.cos(2 * torch.pi * turns), of_table)

    def inner(self, weights: Tensor) -> Tensor:
        return (weights.to(self.table.dtype) * self._spectrum()).sum()

    # Draws

    def noise_root(self) -> NoiseRoot:
        if self.evaluate is not None:
            for padding in (1.0,) if self.closed else PADDINGS:
                root = self._embedded(padding)
                if root is not None and root.negative <= TOLERATED:
                    return root
        return MatrixRoot(self.triangular_root().root, f"{PIVOTED}, because the embedding in circles is not positive")

    def _embedded(self, padding: float) -> RowsRoot | None:
        """The root over circles that are longer than the rows; None if it would be too large."""
        assert self.evaluate is not None
        period = self.period
        if not self.closed:
            period = next_fast_len(2 * math.ceil(padding * (self.length - 1)) + 1, real=True)
        if period // 2 * self.num_rows**2 > MOST_NUMBERS:
            return None
        with torch.no_grad():
            lags = torch.arange(period // 2 + 1, dtype=torch.float64, device=self.table.device)
            spectrum = spectrum_of(self.evaluate(lags).double(), period)
        return root_over_rows(spectrum, frequency_counts(period, spectrum), period, self.length, self.index)

    @property
    def num_points(self) -> int:
        return len(self.index)

    # Methods that `LinearOperator` requires of its subclasses.

    def _diagonal(self) -> Tensor:
        return self.table[0].diagonal()[self.index // self.length]

    def _get_indices(self, row_index: Tensor, col_index: Tensor, *batch_indices: Tensor) -> Tensor:
        return looked_up(self.table.flatten(), self._places(row_index, col_index))

    def _places(self, rows: Tensor, columns: Tensor) -> Tensor:
        """The places in the flattened table of the lags between points and the circles on which they lie."""
        first, second = self.index[rows], self.index[columns]
        lag = (first % self.length - second % self.length).abs()
        if self.closed:
            lag = torch.minimum(lag, self.length - lag)
        return (lag * self.num_rows + first // self.length).mul_(self.num_rows).add_(second // self.length)


def frequency_counts(period: int, like: Tensor) -> Tensor:
    """How often a real transform of this length holds each of its frequencies, (period / 2 + 1,)."""
    counts = torch.full((period // 2 + 1,), 2.0, dtype=like.dtype, device=like.device)
    counts[0] = 1.0
    if period % 2 == 0:
        counts[-1] = 1.0
    return counts


def spectrum_of(table: Tensor, period: int) -> Tensor:
    """S_f = sum_l c_l cos(2 pi f l / L) T_l for a table (m, r, r), over all lags l and -l, (L / 2 + 1, r, r)."""
    lags = torch.arange(len(table), device=table.device)
    frequencies = torch.arange(period // 2 + 1, device=table.device)
    turns = (frequencies[:, None] * lags % period).double() / period
    cosines = torch.cos(2 * torch.pi * turns)
    # A lag of half the circle is the same forward and backward.
    both = (lags > 0) & (2 * lags != period)
    cosines = torch.where(both, 2.0, 1.0) * cosines
    return (cosines.to(table.dtype) @ table.flatten(1)).view(-1, *table.shape[1:])
