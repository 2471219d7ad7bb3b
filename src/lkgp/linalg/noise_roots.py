"""Roots R R^T = K that are applied to standard normal numbers, to draw from the prior."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from math import prod
from typing import Protocol

import numpy as np
import torch
from scipy.fft import next_fast_len
from scipy.linalg import lapack
from torch import Tensor

from lkgp.linalg.fourier import inverse, transform
from lkgp.linalg.regular import wrapped_lags

# Sums of negative eigenvalues of an embedding below this fraction of the sum of all are rounding errors; they are set
# to zero, which changes no covariance by more than that fraction of the variance.
NEGATIVE = 1e-10
# More than that is named, up to this fraction of the prior variance; beyond it, the embedding is not used. It was
# chosen so that long-range Matern-3/2 and rational quadratic kernels pass. Its effect on posterior variances that are
# much smaller than the prior variance was not measured.
TOLERATED = 1e-5
# Embeddings are tried with these multiples of the lattice along every axis, up to MOST_EMBEDDING cells, and with this
# many projections each unless the negative fraction exceeds HOPELESS.
PADDINGS = (1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
MOST_EMBEDDING = 2**23
PROJECTIONS = 6
HOPELESS = 1e-2
REFLECTED = 0.9
# The first share of the variance that is added to the diagonal before a plain Cholesky factorisation, of the size of
# rounding errors of a matrix with some ten thousand points; it grows tenfold while a factorisation fails.
FIRST_SHARE = 1e-12
# The way in which a factor without a structure of its own makes its root.
PIVOTED = "pivoted Cholesky factorisation"


class NoiseRoot(Protocol):
    """R (n_k, width) with R R^T = K.

    way: how it was made, in words
    """

    @property
    def width(self) -> int: ...

    @property
    def way(self) -> str: ...

    def times(self, z: Tensor) -> Tensor:
        """R Z for Z (width, c), (n_k, c)."""


@dataclass(frozen=True, eq=False)
class MatrixRoot:
    """R as a plain matrix (n_k, r)."""

    root: Tensor
    way: str

    @property
    def width(self) -> int:
        return self.root.shape[1]

    def times(self, z: Tensor) -> Tensor:
        return self.root.to(z.dtype) @ z


@dataclass(frozen=True, eq=False)
class SumRoot:
    """The roots of the parts of a sum side by side: with K = sum of R_i R_i^T, R = [R_1, R_2, ...]."""

    roots: Sequence[NoiseRoot]

    @property
    def width(self) -> int:
        return sum(root.width for root in self.roots)

    @property
    def way(self) -> str:
        return ", ".join(dict.fromkeys(root.way for root in self.roots))

    def times(self, z: Tensor) -> Tensor:
        parts = z.split([root.width for root in self.roots])
        return reduce(torch.add, (root.times(part) for root, part in zip(self.roots, parts, strict=True)))


def cholesky_root(blocks: Callable[[], Iterator[Tensor]], points: int, variance: float) -> MatrixRoot:
    """The Cholesky factor of K, in the memory of a single matrix in float64.

    blocks: makes blocks of rows of K, in their order, in float64, each (b, n_k)
    points, variance: n_k, and the largest variance
    """
    share, device = FIRST_SHARE, torch.device("cpu")
    while True:
        matrix = np.empty((points, points))
        start = 0
        for block in blocks():
            device = block.device
            matrix[start : start + len(block)] = block.cpu().numpy()
            start += len(block)
        matrix[np.diag_indices(points)] += share * variance
        # LAPACK reads columns: the upper triangle of the transpose is the lower one.
        factor, failed = lapack.dpotrf(matrix.T, lower=0, clean=1, overwrite_a=1)
        if not failed:
            said = f"Cholesky factorisation of {points} points, with {share:.0e} of the variance added as noise"
            return MatrixRoot(torch.from_numpy(factor.T).to(device), said)
        if share > TOLERATED / 10:
            raise torch.linalg.LinAlgError("a factor is not positive definite")
        share *= 10


@dataclass(frozen=True, eq=False)
class CirculantRoot:
    """Rows of the symmetric root of a circulant matrix over a periodic lattice, of which K is a submatrix.

    spectrum: the eigenvalues, (L_1, ..., L_d / 2 + 1), not negative
    lengths: L_1, ..., L_d
    shape: that of the corner of the lattice with the points, (m_1, ..., m_d)
    index: the points in that corner, in C order, (n_k,)
    negative: the sum of the negative eigenvalues that were set to zero, as a fraction of the sum of all
    """

    spectrum: Tensor
    lengths: tuple[int, ...]
    shape: tuple[int, ...]
    index: Tensor
    negative: float

    @property
    def width(self) -> int:
        return prod(self.lengths)

    @property
    def way(self) -> str:
        said = f"circulant embedding in {' x '.join(map(str, self.lengths))} cells"
        if self.negative <= NEGATIVE:
            return said
        return f"{said}, with covariances off by up to {self.negative:.0e} of the variance"

    def times(self, z: Tensor) -> Tensor:
        # F^H sqrt(S) F z, the symmetric root
        spectra = transform(z.mT.reshape(-1, *self.lengths), self.lengths)
        spectra *= self.spectrum.sqrt().to(z.dtype)
        return inverse(spectra, self.lengths, self.shape).reshape(z.shape[1], -1).index_select(1, self.index).mT


def embedded_spectrum(
    evaluate: Callable[[Tensor], Tensor],
    shape: Sequence[int],
    lengths: Sequence[int],
    steps: Sequence[float],
    like: Tensor,
) -> tuple[Tensor, float]:
    """The eigenvalues of a periodic lattice, (L_1, ..., L_d / 2 + 1), and the sum of negative ones over that of all.

    Only covariances at lags within the lattice of the points matter. The others start as those of the kernel, the
    shortest way around, and are then chosen by projections onto the matrices without negative eigenvalues.

    evaluate: covariances at differences of points (a, d), (a,)
    shape, lengths: numbers of cells m_j of the lattice of the points, and L_j >= 2 m_j - 1 of the periodic one
    """
    away = wrapped_lags(lengths, steps, like)
    values = evaluate(away).detach().double().reshape(1, *lengths)
    reach = torch.tensor([(m - 0.5) * step for m, step in zip(shape, steps, strict=True)], device=like.device)
    needed = (away.abs() < reach.to(away)).all(dim=1).reshape(values.shape)
    given = values[needed]
    # A real transform holds every eigenvalue twice, but for the first and, if the length is even, the last.
    counts = torch.full((lengths[-1] // 2 + 1,), 2.0, dtype=torch.float64, device=like.device)
    counts[0] = 1.0
    if lengths[-1] % 2 == 0:
        counts[-1] = 1.0
    best, least = values, math.inf
    for _ in range(PROJECTIONS + 1):
        spectrum = transform(values, lengths)[0].real
        negative = -float((spectrum.clamp(max=0.0) * counts).sum()) / float((spectrum.abs() * counts).sum())
        if negative < least:
            best, least = spectrum, negative
        if negative <= NEGATIVE or negative > HOPELESS:
            break
        # Reflecting most of what is negative converges faster than setting it to zero.
        mirrored = torch.where(spectrum < 0, -REFLECTED * spectrum, spectrum)
        values = inverse(mirrored.to(torch.complex128)[None], lengths, lengths).clone()
        values[needed] = given
    return best.clamp(min=0.0), least


def circulant_root(
    evaluate: Callable[[Tensor], Tensor], shape: tuple[int, ...], steps: Sequence[float], index: Tensor, like: Tensor
) -> CirculantRoot | None:
    """The root by circulant embedding, with more and more padding until it is positive; None if it is not by far.

    evaluate: covariances at differences of points (a, d), (a,)
    shape, steps: numbers of cells and steps of the lattice; index: the points in it, (n_k,)
    """
    best = None
    for padding in PADDINGS:
        lengths = tuple(next_fast_len(2 * math.ceil(padding * (m - 1)) + 1, real=True) for m in shape)
        if prod(lengths) > MOST_EMBEDDING and padding > 1:
            break
        spectrum, negative = embedded_spectrum(evaluate, shape, lengths, steps, like)
        if best is None or negative < best.negative:
            best = CirculantRoot(spectrum, lengths, shape, index, negative)
        if negative <= TOLERATED:
            break
    return best if best is not None and best.negative <= TOLERATED else None
