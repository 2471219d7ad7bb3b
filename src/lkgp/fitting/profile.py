"""The likelihood of few observations at the best output scale and noise, from one eigendecomposition.

    A = s K + g D:   D^-1/2 K D^-1/2 = U L U^T,   z = U^T D^-1/2 r
    log p  =  -1/2 sum(log(s L + g) + z^2 / (s L + g)) - 1/2 log det D - n/2 log 2 pi

Given K, a whole range of s and g costs hardly more than one pair, so that many length scales can be compared.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from gpytorch import Module
from gpytorch.kernels import AdditiveKernel, ConstantKernel, Kernel, LinearKernel, ProductKernel, ScaleKernel
from torch import Tensor

from lkgp.data.readers import Observations
from lkgp.model import LatentKroneckerGP

# The ratios of noise to signal, and the factors of a noise or an output scale alone, that are compared: eight decades,
# with steps of 20 %, which cost at most 0.005 nats per observation.
RATIOS = torch.logspace(-7, 1, 100, dtype=torch.float64)
FACTORS = torch.logspace(-4, 4, 101, dtype=torch.float64)
# A search can reduce a noise that is too large, but hardly raise one that no longer matters: it should not begin with
# less than this share of the variance of the function.
LEAST_NOISE = 1e-4


@dataclass(frozen=True)
class Profile:
    """The largest log likelihood plus log prior, and the factors of output scale and noise at which it is reached.

    least_noise: the smallest factor of the noise with which a search should begin
    """

    value: float
    scale: float
    noise: float
    least_noise: float


@torch.no_grad()
def profile(model: LatentKroneckerGP, data: Observations, free_scale: bool, free_noise: bool) -> Profile:
    """The best output scale and noise, as factors of those of the model, for the other hyperparameters as they are.

    free_scale, free_noise: whether the output scale and the noise may change
    """
    grid, diagonal = data.grid, model.noise_diagonal(data).double()
    covariance = torch.zeros(len(diagonal), len(diagonal), dtype=torch.float64, device=diagonal.device)
    for term in model.terms:
        product = torch.ones_like(covariance)
        for k, (x, index) in enumerate(zip(grid.coords, grid.axis_index, strict=True)):
            product *= term.cross_factor(k, x, x).double()[index][:, index]
        covariance += product
    root = diagonal.sqrt()
    values, vectors = torch.linalg.eigh(covariance / root / root[:, None])
    values, squares = values.clamp(min=0), (vectors.mT @ (model.residuals(data).double() / root)).square()
    # Repeated measurements in a cell tell the noise, too: log p has - 1/2 (m log g + w / g); see `Noise.log_scatter`.
    repeats, scatter = 0.0, 0.0
    if data.scatter is not None:
        repeats = float((data.counts - 1).sum())
        scatter = float((data.scatter / model.noise.measurement_variance(data)).sum())
    one = torch.ones(1, dtype=torch.float64, device=values.device)
    if free_scale and free_noise:
        ratios = RATIOS.to(values.device) * values.mean().clamp(min=1e-300)
        # For a given ratio q = g / s, the best s is the mean of z^2 / (L + q).
        total = (squares / (values + ratios[:, None])).sum(dim=1) + scatter / ratios
        scale = total / (len(values) + repeats)
        noise = ratios * scale
    else:
        scale = FACTORS.to(values.device) if free_scale else one
        noise = FACTORS.to(values.device) if free_noise else one
    variance = scale[:, None] * values + noise[:, None]
    terms = variance.log().sum(dim=1) + (squares / variance).sum(dim=1) + repeats * noise.log() + scatter / noise
    found = -0.5 * (terms + diagonal.log().sum() + len(values) * math.log(2 * math.pi))
    best = int(found.argmax())
    scale, noise = scale.expand(len(found)), noise.expand(len(found))
    least = LEAST_NOISE * float(scale[best] * values.mean())
    return Profile(float(found[best] + model.log_prior()), float(scale[best]), float(noise[best]), least)


def scale_parameters(kernel: Kernel) -> list[Tensor]:
    """The free parameters that together multiply the kernel; empty if there are none."""
    if isinstance(kernel, ScaleKernel):
        return [kernel.raw_outputscale] if kernel.raw_outputscale.requires_grad else []
    if isinstance(kernel, ConstantKernel):
        return [kernel.raw_constant] if kernel.raw_constant.requires_grad else []
    if isinstance(kernel, LinearKernel):
        return [kernel.raw_variance] if kernel.raw_variance.requires_grad else []
    if isinstance(kernel, ProductKernel):
        return next((found for part in kernel.kernels if (found := scale_parameters(part))), [])
    if isinstance(kernel, AdditiveKernel):
        each = [scale_parameters(part) for part in kernel.kernels]
        return [p for found in each for p in found] if all(each) else []
    return []


def output_scales(model: LatentKroneckerGP) -> list[Tensor]:
    """The free parameters that together multiply the whole covariance of the function; empty if there are none."""
    each = []
    for term in model.terms:
        each.append(next((found for kernel in term.kernels if (found := scale_parameters(kernel))), []))
    return [p for found in each for p in found] if all(each) else []


@torch.no_grad()
def multiply(model: LatentKroneckerGP, parameters: Sequence[Tensor], factor: float) -> None:
    """Multiply the values of positive parameters by a factor, as far as their constraints allow."""
    for module in model.modules():
        if not isinstance(module, Module):
            continue
        for name, p in module.named_parameters(recurse=False):
            constraint = module.constraint_for_parameter_name(name)
            if constraint is not None and any(p is given for given in parameters):
                set_value(p, constraint, constraint.transform(p) * factor)


@torch.no_grad()
def set_value(parameter: Tensor, constraint: Module, value: Tensor) -> None:
    """Set a raw parameter so that its constrained value is `value`, or the closest that lies inside the bounds."""
    lower, upper = constraint.lower_bound.to(value), constraint.upper_bound.to(value)
    # Bounds themselves have infinite raw parameters.
    width = torch.where(torch.isfinite(upper), upper - lower, value.abs())
    inside = torch.minimum(torch.maximum(value, lower + 1e-6 * width), upper - 1e-6 * width)
    parameter.copy_(constraint.inverse_transform(inside).view(parameter.shape))
