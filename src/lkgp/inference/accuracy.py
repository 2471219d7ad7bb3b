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


def worst_share(residual: Tensor, deviations: Tensor, noise: Tensor) -> float:
    """The error of draws, root mean square over them, over the posterior standard deviation, in the worst cell.

    It is the smaller of a bound for every cell and the largest ratio over the observed cells.

    residual: b - A x of every draw, (n, s)
    deviations: draws minus mean at the observed cells, with all their errors, (n, s)
    noise: the diagonal of D, (n,)
    """
    weighted = residual.double() / noise.sqrt()[:, None]
    bound = torch.linalg.eigvalsh(weighted.mT @ weighted)[-1].clamp(min=0) / weighted.shape[1]
    ratio = residual.double().square().sum(dim=1) / sums_of_squares(deviations)
    return float(torch.minimum(bound, ratio.max()).sqrt())


def unresolved_share(deviations: Tensor, rounding: float) -> float:
    """The rounding error of a prior covariance over the posterior variance, in the worst observed cell.

    deviations: as in `worst_share`, (n, s)
    """
    return rounding * deviations.shape[1] / float(sums_of_squares(deviations).min()) if rounding else 0.0


def sums_of_squares(deviations: Tensor) -> Tensor:
    """Over the columns of (n, s), (n,), and never zero."""
    return deviations.double().square().sum(dim=1).clamp(min=torch.finfo(torch.float64).tiny)
