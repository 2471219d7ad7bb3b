"""The average information: a curvature of the log-likelihood that needs one solve a hyperparameter.

    I_ij  =  1/2 a^T dA_i A^-1 dA_j a,     a = A^-1 r

is the mean of the observed and the expected information of the hyperparameters of A, up to a term of mean zero, and positive
semidefinite (Gilmour, Thompson and Cullis, 1995). The mean has information 1^T A^-1 1 of its own.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from lkgp.data.readers import Observations
from lkgp.linalg import kronecker_matmul
from lkgp.model.model import LatentKroneckerGP, evaluate

# Step of the differences that stand for derivatives of the kernels: a curvature needs no more than three digits.
STEP = 1e-4


@torch.no_grad()
def average_information(
    model: LatentKroneckerGP,
    data: Observations,
    weights: Tensor,
    solve: Callable[[Tensor], Tensor],
    parameters: list[Tensor],
) -> Tensor:
    """The information of all entries of `parameters`, in their order, priors included, (P, P).

    weights: a, (n,); solve: X -> A^-1 X for X (n, P)
    """
    weights = weights.to(data.values.dtype)
    columns, is_mean = _directions(model, data, weights, parameters)
    information = 0.5 * columns.double().mT @ solve(columns).double()
    # Where the data are further from the mean than the model expects, a carries that factor, and so does the information.
    spread = float((model.residuals(data) * weights).sum()) / len(weights)
    information = (information + information.mT) / (2 * max(spread, 1.0))
    # The expected information of mean and covariance together is zero.
    information[is_mean[:, None] != is_mean] = 0.0
    return information + _prior_information(model, parameters) + _scatter_information(model, data, parameters)


def _directions(
    model: LatentKroneckerGP, data: Observations, weights: Tensor, parameters: list[Tensor]
) -> tuple[Tensor, Tensor]:
    """dA_j a for every parameter, (n, P), and for the mean sqrt(2) 1; and which of them are the mean's, (P,)."""
    factors = [evaluate(kernel, x) for kernel, x in zip(model.kernels, data.grid.coords, strict=True)]
    noise = model.noise_diagonal(data)
    cells = data.grid.scatter(weights[:, None])
    owners = [{id(p) for p in kernel.parameters()} for kernel in model.kernels]
    of_mean = {id(p) for p in model.mean.parameters()}
    columns, is_mean = [], []
    for p in parameters:
        flat = p.data.view(-1)
        for i in range(len(flat)):
            is_mean.append(id(p) in of_mean)
            if is_mean[-1]:
                columns.append(torch.full_like(weights, 2**0.5))
                continue
            before = flat[i].clone()
            flat[i] += STEP
            column = (model.noise_diagonal(data) - noise) * weights
            for k, owned in enumerate(owners):
                if id(p) in owned:
                    change = evaluate(model.kernels[k], data.grid.coords[k]) - factors[k]
                    changed = tuple(change if other == k else factor for other, factor in enumerate(factors))
                    column = column + kronecker_matmul(changed, cells)[0, data.grid.index]
            flat[i] = before
            columns.append(column / STEP)
    return torch.stack(columns, dim=1), torch.tensor(is_mean, device=weights.device)


def _scatter_information(model: LatentKroneckerGP, data: Observations, parameters: list[Tensor]) -> Tensor:
    """What measurements tell of the noise beyond their means, (P, P): 1/2 (d log s^2)^2 each."""
    more = data.num_measured - len(data.values)
    with torch.enable_grad():
        noise = model.noise_variance().log()
        slopes = (
            torch.autograd.grad(noise, parameters, allow_unused=True)
            if more and noise.requires_grad
            else [None] * len(parameters)
        )
    found = zip(parameters, slopes, strict=True)
    slope = torch.cat([torch.zeros(p.numel()).to(p) if g is None else g.flatten() for p, g in found]).double()
    return 0.5 * more * torch.outer(slope, slope)


def _prior_information(model: LatentKroneckerGP, parameters: list[Tensor]) -> Tensor:
    """Minus the second derivatives of the log priors, as far as they are positive, (P, P)."""
    total = sum(p.numel() for p in parameters)
    with torch.enable_grad():
        density = model.log_prior()
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
