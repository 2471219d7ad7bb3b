"""The root of a covariance over rows of points around circles, for draws from the prior."""

from dataclasses import dataclass

import torch
from torch import Tensor

from lkgp.linalg.fourier import inverse, transform
from lkgp.linalg.noise_roots import NEGATIVE


@dataclass(frozen=True, eq=False)
class RowsRoot:
    """Rows of a matrix that multiplies the Fourier transforms around all circles by a root at every frequency.

    roots: of the matrices over the rows, (frequencies, r, r)
    period: places around the circles; length: those among them that hold the points
    index: the points among the r x length places, in C order, (n_k,)
    negative: the sum of the negative eigenvalues that were set to zero, as a fraction of the sum of all
    """

    roots: Tensor
    period: int
    length: int
    index: Tensor
    negative: float

    @property
    def width(self) -> int:
        return self.roots.shape[1] * self.period

    @property
    def way(self) -> str:
        said = f"circulant embedding in {self.roots.shape[1]} circles of {self.period} places"
        if self.negative <= NEGATIVE:
            return said
        return f"{said}, with covariances off by up to {self.negative:.0e} of the variance"

    def times(self, z: Tensor) -> Tensor:
        """R Z for Z (width, c), (n_k, c)."""
        rows = self.roots.shape[1]
        spectra = transform(z.mT.reshape(-1, self.period), (self.period,)).view(z.shape[1], rows, -1)
        turned = torch.view_as_real(spectra.permute(2, 1, 0).contiguous()).flatten(2)
        product = torch.bmm(self.roots.to(z.dtype), turned).view(-1, rows, z.shape[1], 2)
        back = torch.view_as_complex(product).permute(2, 1, 0).reshape(z.shape[1] * rows, -1)
        cells = inverse(back, (self.period,), (self.length,)).reshape(z.shape[1], -1)
        return cells.index_select(1, self.index).mT


def root_over_rows(spectrum: Tensor, counts: Tensor, period: int, length: int, index: Tensor) -> RowsRoot:
    """The root of circulant covariances with these matrices over the rows, (frequencies, r, r), in float64.

    counts: how often each frequency occurs, (frequencies,)
    """
    values, vectors = torch.linalg.eigh((spectrum + spectrum.mT) / 2)
    every = float((values.abs().sum(dim=1) * counts).sum())
    below = -float((values.clamp(max=0.0).sum(dim=1) * counts).sum())
    return RowsRoot(vectors * values.clamp(min=0.0).sqrt()[:, None, :], period, length, index, below / every)
