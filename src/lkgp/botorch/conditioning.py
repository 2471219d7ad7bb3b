"""Observations that are added to a model, for example fantasies, in closed form and with gradients."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from linear_operator.utils.cholesky import psd_safe_cholesky
from torch import Tensor

# Relative size of what rounding may leave of a variance, which is a difference of nearly equal numbers: double
# precision (2e-16) less about seven digits. Larger values would blur observations that are nearly without noise.
RELATIVE_JITTER = 1e-9


class AddedObservations(NamedTuple):
    """Observations that a model was conditioned on after its training data.

    X: transformed inputs, (*batch, q, d)
    outputs: indices of the outputs that were observed
    Y: (*batch, q, outputs)
    noise: noise variances, of the shape of Y
    """

    X: Tensor
    outputs: list[int]
    Y: Tensor
    noise: Tensor


def add_observations(
    mean: Tensor, covariance: Tensor, asked: int, added: Sequence[AddedObservations]
) -> tuple[Tensor, Tensor]:
    """Mean (*shape, asked) and covariance (*shape, asked, asked) given the added observations.

    mean: of the cells asked for and of those added, in this order, (*shape, c)
    covariance: of all of them, without noise, (*shape, c, c)
    asked: how many cells are asked for
    """
    shape = mean.shape[:-1]
    values = torch.cat([a.Y.expand(*shape, *a.Y.shape[-2:]).flatten(-2) for a in added], dim=-1).double()
    noise = torch.cat([a.noise.expand(*shape, *a.noise.shape[-2:]).flatten(-2) for a in added], dim=-1).double()
    cross = covariance[..., asked:, :asked]
    known = covariance[..., asked:, asked:] + torch.diag_embed(noise)
    # Observations that repeat nearly without noise make this matrix singular up to rounding.
    root = psd_safe_cholesky(known + RELATIVE_JITTER * torch.diag_embed(torch.diagonal(known, dim1=-2, dim2=-1)))
    gain = torch.cholesky_solve(cross, root).mT
    # m' = m + C_*n (C_nn + S)^-1 (y_n - m_n),      C' = C_** - C_*n (C_nn + S)^-1 C_n*
    return (
        mean[..., :asked] + (gain @ (values - mean[..., asked:])[..., None])[..., 0],
        covariance[..., :asked, :asked] - gain @ cross,
    )
