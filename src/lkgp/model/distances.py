"""Distances from differences of coordinates.

GPyTorch and `torch.cdist` compute distances between many points from |x|^2 + |x'|^2 - 2 x^T x', which loses half of the
digits where points nearly coincide: Matern-1/2 is then wrong by 1e-8, differently for each set of points.
"""

from functools import partial

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

# As in GPyTorch: a derivative by the coordinates must not divide by a distance of zero.
LEAST_DISTANCE = 1e-15


def use_exact_distances(kernel: Kernel) -> None:
    """Let all parts of a kernel compute their distances from differences, from now on."""
    for part in kernel.modules():
        # Once and for all: threads may share a kernel, and copy it, while another one evaluates it.
        if isinstance(part, Kernel) and type(part).covar_dist is Kernel.covar_dist and "covar_dist" not in vars(part):
            vars(part)["covar_dist"] = partial(distances, part)


def distances(
    kernel: Kernel,
    x1: Tensor,
    x2: Tensor,
    diag: bool = False,
    last_dim_is_batch: bool = False,
    square_dist: bool = False,
) -> Tensor:
    """|x - x'| of all pairs of `x1` (..., a, d) and `x2` (..., b, d), (..., a, b); see `Kernel.covar_dist`."""
    if diag or last_dim_is_batch:
        return Kernel.covar_dist(kernel, x1, x2, diag, last_dim_is_batch, square_dist)
    found = torch.cdist(x1, x2, compute_mode="donot_use_mm_for_euclid_dist")
    return found.square() if square_dist else found.clamp_min(LEAST_DISTANCE)
