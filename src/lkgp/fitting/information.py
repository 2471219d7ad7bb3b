"""The average information: a curvature of the log-likelihood that needs one solve per hyperparameter.

    I_ij  =  1/2 a^T dA_i A^-1 dA_j a,     a = A^-1 r

is the mean of the observed and the expected information of the hyperparameters of A, up to a term of mean zero, and is
positive semidefinite (Gilmour, Thompson and Cullis, 1995). The information of a constant mean is 1^T A^-1 1.
"""

from collections.abc import Callable
from functools import lru_cache

import torch
from torch import Tensor

from lkgp.data.readers import Observations
from lkgp.fitting.contrast import Contrast
from lkgp.linalg.factors import Factor
from lkgp.model import LatentKroneckerGP

# Step of the finite differences that approximate kernel derivatives: three correct digits are enough for a curvature.
STEP = 1e-4


@torch.no_grad()
def average_information(
    model: LatentKroneckerGP,
    contrast: Contrast,
    weights: Tensor,
    solve: Callable[[Tensor], Tensor],
    parameters: list[Tensor],
) -> Tensor:
    """The information of all entries of `parameters`, in their order, including that of the priors, (P, P).

    contrast: of the data; weights: a, (n,); solve: X -> A^-1 X for X (n, P)
    """
    weights = weights.to(contrast.data.values.dtype)
    columns = _directions(model, contrast.data, weights, parameters)
    return information_along(model, contrast, weights, columns, solve, parameters)


@torch.no_grad()
def information_along(
    model: LatentKroneckerGP,
    contrast: Contrast,
    weights: Tensor,
    columns: Tensor,
    solve: Callable[[Tensor], Tensor],
    parameters: list[Tensor],
) -> Tensor:
    """The same, given dA_j a for each entry, or sqrt(2) dm_j if it belongs to the mean, `columns` (n, P)."""
    data, is_mean = contrast.data, of_mean(model, parameters)
    information = 0.5 * columns.double().mT @ solve(columns).double()
    # If the data are further from the mean than the model expects, a and hence the information are too large by that
    # factor.
    spread = float((model.residuals(data) * weights).sum()) / len(weights)
    information = (information + information.mT) / (2 * max(spread, 1.0))
    # The expected information between parameters of the mean and of the covariance is zero.
    information[is_mean[:, None] != is_mean] = 0.0
    return information + _prior_information(model, contrast, parameters) + _scatter_information(model, data, parameters)


def of_mean(model: LatentKroneckerGP, parameters: list[Tensor]) -> Tensor:
    """Whether each entry of some parameters belongs to the mean, (P,)."""
    own = {id(p) for p in model.mean.parameters()}
    found = [id(p) in own for p in parameters for _ in range(p.numel())]
    return torch.tensor(found, dtype=torch.bool, device=parameters[0].device)


def owners(model: LatentKroneckerGP, parameter: Tensor) -> list[tuple[int, int]]:
    """The terms t and factors k whose kernels have a parameter."""
    return [
        (t, k)
        for t, term in enumerate(model.terms)
        for k, kernel in enumerate(term.kernels)
        if any(one is parameter for one in kernel.parameters())
    ]


def _directions(model: LatentKroneckerGP, data: Observations, weights: Tensor, parameters: list[Tensor]) -> Tensor:
    """dA_j a for each parameter, or sqrt(2) dm_j if it belongs to the mean, (n, P)."""
    coords, index, shape = data.grid.coords, data.grid.index, data.grid.shape
    factors = [term.factors(coords) for term in model.terms]
    noise, mean = model.noise_diagonal(data).clone(), model.mean.of(data).clone()
    cells = data.grid.scatter(weights[:, None]).view(shape)
    mean_parameters = {id(p) for p in model.mean.parameters()}

    # Parameters of one factor follow one another, and only that factor differs between them.
    @lru_cache(maxsize=1)
    def others(t: int, k: int) -> Tensor:
        product = cells
        for j, factor in enumerate(factors[t]):
            product = product if j == k else along(factor, product, j)
        return product

    @lru_cache(maxsize=1)
    def unchanged(t: int, k: int) -> Tensor:
        return along(factors[t][k], others(t, k), k)

    columns = []
    for p in parameters:
        flat = p.data.view(-1)
        owned = owners(model, p)
        for i in range(len(flat)):
            before = flat[i].clone()
            flat[i] += STEP
            if id(p) in mean_parameters:
                column = 2**0.5 * (model.mean.of(data) - mean).expand(len(weights))
            else:
                column = (model.noise_diagonal(data) - noise) * weights
            for t, k in owned:
                changed = model.terms[t].factor(k, coords[k], factors[t][k].kind)
                # A difference of factors keeps more digits than one of products.
                difference = changed.difference(factors[t][k])
                if difference is not None:
                    product = along(difference, others(t, k), k)
                else:
                    product = along(changed, others(t, k), k) - unchanged(t, k)
                column = column + product.reshape(-1)[index]
            flat[i] = before
            columns.append(column / STEP)
    return torch.stack(columns, dim=1)


def along(factor: Factor, cells: Tensor, k: int) -> Tensor:
    """The product of a factor with axis k of cells (n_1, ..., n_d), in the same shape."""
    moved = cells.movedim(k, -1)
    rows = moved.reshape(-1, moved.shape[-1])
    return factor.transposed_product(rows.mT).view(moved.shape).movedim(-1, k)


def _scatter_information(model: LatentKroneckerGP, data: Observations, parameters: list[Tensor]) -> Tensor:
    """The information in the scatter of measurements about their means, (P, P): 1/2 (d log s^2)^2 each."""
    total = sum(p.numel() for p in parameters)
    if data.scatter is None:
        return torch.zeros(total, total, dtype=torch.float64, device=data.values.device)
    more = (data.counts - 1).double()
    before = model.noise.measurement_variance(data).log().expand(len(more)).clone()
    of_noise = {id(p) for p in model.noise.parameters()}
    slopes = more.new_zeros(len(more), total)
    column = 0
    for p in parameters:
        flat = p.data.view(-1)
        for i in range(len(flat)):
            if id(p) in of_noise:
                value = flat[i].clone()
                flat[i] += STEP
                slopes[:, column] = (model.noise.measurement_variance(data).log() - before).double() / STEP
                flat[i] = value
            column += 1
    return 0.5 * slopes.mT @ (more[:, None] * slopes)


def _prior_information(model: LatentKroneckerGP, contrast: Contrast, parameters: list[Tensor]) -> Tensor:
    """The positive semidefinite part of minus the second derivatives of the log priors, (P, P)."""
    total = sum(p.numel() for p in parameters)
    with torch.enable_grad():
        density = contrast.log_prior(model)
        if not density.requires_grad:
            return torch.zeros(total, total, dtype=torch.float64, device=parameters[0].device)
        first = torch.autograd.grad(density, parameters, create_graph=True, allow_unused=True)
        rows = []
        for p, gradient in zip(parameters, first, strict=True):
            for i in range(p.numel()):
                if gradient is None or not gradient.requires_grad:
                    rows.append(torch.zeros(total, dtype=torch.float64, device=p.device))
                    continue
                second = torch.autograd.grad(gradient.reshape(-1)[i], parameters, retain_graph=True, allow_unused=True)
                rows.append(
                    torch.cat(
                        [
                            (torch.zeros_like(q) if s is None else s).reshape(-1).double()
                            for q, s in zip(parameters, second, strict=True)
                        ]
                    )
                )
    values, vectors = torch.linalg.eigh(-torch.stack(rows))
    return (vectors * values.clamp(min=0)) @ vectors.mT
