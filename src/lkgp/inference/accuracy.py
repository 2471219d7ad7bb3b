"""How accurate a solve must be so that its error is small compared with the posterior standard deviation everywhere.

An approximate solution of A x = b with the residual r = b - A x changes the function K(., X) x by
e(.) = K(., X) A^-1 r, whatever the cell. With D^-1 - A^-1 = D^-1 K A^-1, that is at any cell, observed or not,

    |e(c)|  <=  s_c sqrt(r^T (D^-1 - A^-1) r)  <=  s_c |D^-1/2 r|,      s_c: the posterior standard deviation at c.

So the noise-weighted norm of the residual bounds the error in units of the posterior standard deviation. The error of a
standard deviation from draws is the error of a mean square over draws, which is smaller if the errors of the draws
point in different directions: in any direction u the mean square of u^T D^-1/2 r_j is at most the largest eigenvalue of
the Gram matrix r_i^T D^-1 r_j over the number of draws. That bound is safe but strict if there are far more cells than
draws. There, the mean square of the residual of each observed cell is compared with that of the deviations of the draws
in the same cell.

Kernels rounded to float32 are those of a slightly different model, and the variance by which they differ cannot be
told from the variance of the function.
"""

import math

import torch
from torch import Tensor

from lkgp.data.readers import Observations
from lkgp.model import LatentKroneckerGP


@torch.no_grad()
def kernel_rounding(model: LatentKroneckerGP, data: Observations) -> float:
    """The largest rounding error of a prior covariance in the dtype of the data; 0 in float64.

    Kernels are evaluated in float64, and the values of every factor are rounded once.
    """
    if data.values.dtype == torch.float64:
        return 0.0
    each = 0.5 * torch.finfo(data.values.dtype).eps
    return len(data.grid.coords) * each * float(model.largest_variance(data.grid.coords))


class DrawErrors:
    """The errors of s draws, from the residuals of their solves, added up over blocks of observed cells."""

    def __init__(self, draws: int, device: torch.device) -> None:
        self.draws = draws
        self.gram = torch.zeros(draws, draws, dtype=torch.float64, device=device)
        self.largest_ratio, self.least_squares = 0.0, math.inf

    def add(self, residual: Tensor, deviations: Tensor, noise: Tensor) -> None:
        """Add some cells.

        residual: b - A x of every draw, (m, s)
        deviations: draws minus mean, with all their errors, (m, s)
        noise: the diagonal of D, (m,)
        """
        residual = residual.double()
        # never zero
        squares = deviations.double().square().sum(dim=1).clamp(min=torch.finfo(torch.float64).tiny)
        self.largest_ratio = max(self.largest_ratio, float((residual.square().sum(dim=1) / squares).max()))
        self.least_squares = min(self.least_squares, float(squares.min()))
        weighted = residual / noise.sqrt()[:, None]
        self.gram += weighted.mT @ weighted

    @property
    def worst_share(self) -> float:
        """The error, root mean square over draws, over the posterior standard deviation, in the worst cell.

        It is the smaller of a bound for every cell and the largest ratio over the observed cells.
        """
        bound = float(torch.linalg.eigvalsh(self.gram)[-1].clamp(min=0)) / self.draws
        return math.sqrt(min(bound, self.largest_ratio))

    @property
    def norms(self) -> Tensor:
        """|D^-1/2 r| of every draw, (s,)."""
        return self.gram.diagonal().clamp(min=0).sqrt()

    def unresolved_share(self, rounding: float) -> float:
        """The rounding error of a prior covariance over the posterior variance, in the worst observed cell."""
        return rounding * self.draws / self.least_squares if rounding else 0.0
