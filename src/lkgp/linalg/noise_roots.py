"""Roots R R^T = K that are applied to standard normal numbers, to draw from the prior."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Protocol

import torch
from torch import Tensor

from lkgp.linalg.fourier import inverse, transform
from lkgp.linalg.regular import wrapped_lags

# Sums of negative eigenvalues of an embedding below this fraction of the sum of all are rounding errors; they are set
# to zero, which changes no covariance by more than that fraction of the variance.
NEGATIVE = 1e-10
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
class CirculantRoot:
    """Rows of the symmetric root of a circulant matrix over a periodic lattice, of which K is a submatrix.

    spectrum: the eigenvalues, (L_1, ..., L_d / 2 + 1), not negative
    lengths: L_1, ..., L_d
    shape: that of the corner of the lattice with the points, (m_1, ..., m_d)
    index: the points in that corner, in C order, (n_k,)
    """

    spectrum: Tensor
    lengths: tuple[int, ...]
    shape: tuple[int, ...]
    index: Tensor

    @property
    def width(self) -> int:
        return prod(self.lengths)

    @property
    def way(self) -> str:
        return f"circulant embedding in {' x '.join(map(str, self.lengths))} cells"

    def times(self, z: Tensor) -> Tensor:
        # F^H sqrt(S) F z, the symmetric root
        spectra = transform(z.mT.reshape(-1, *self.lengths), self.lengths)
        spectra *= self.spectrum.sqrt().to(z.dtype)
        return inverse(spectra, self.lengths, self.shape).reshape(z.shape[1], -1).index_select(1, self.index).mT


def embedded_spectrum(
    evaluate: Callable[[Tensor], Tensor], lengths: Sequence[int], steps: Sequence[float], like: Tensor
) -> tuple[Tensor, float]:
    """The eigenvalues of the periodic lattice, (L_1, ..., L_d / 2 + 1), and the share of the negative ones.

    evaluate: covariances at differences of points (a, d), (a,)
    lengths, steps: numbers of points and steps of the axes of the lattice
    """
    values = evaluate(wrapped_lags(lengths, steps, like)).detach().double().reshape(1, *lengths)
    spectrum = transform(values, lengths)[0].real
    # A real transform holds every eigenvalue twice, but for the first and, if the length is even, the last.
    counts = torch.full((spectrum.shape[-1],), 2.0, dtype=torch.float64, device=spectrum.device)
    counts[0] = 1.0
    if lengths[-1] % 2 == 0:
        counts[-1] = 1.0
    below = float((spectrum.clamp(max=0.0) * counts).sum())
    return spectrum.clamp(min=0.0), -below / float((spectrum.abs() * counts).sum())
