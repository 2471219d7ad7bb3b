"""The likelihood as a dense function of a model's hyperparameters, for gradients."""

import numpy as np
import torch


def dense_log_likelihood(model, case, data):
    """The oracle's likelihood as a function of the parameters of `model`, by dense autograd through GPyTorch's
    kernels only.
    """
    matrix = torch.ones(1, 1, dtype=torch.float64)
    for kernel, x in zip(model.kernels, case.coords, strict=True):
        matrix = torch.kron(matrix, kernel(torch.as_tensor(x)).to_dense())
    index = np.flatnonzero(~np.isnan(case.y).ravel())
    known = case.cell_variance
    noise = model.noise_variance().expand(len(index)) if known is None else torch.as_tensor(known.ravel()[index])
    matrix = matrix[index][:, index] + torch.diag(noise)
    mean = model.mean.constant.expand(len(index))
    return torch.distributions.MultivariateNormal(mean, matrix).log_prob(torch.as_tensor(case.y.ravel()[index]))


def gradients(objective, model):
    found = torch.autograd.grad(objective, list(model.parameters()), allow_unused=True)
    return torch.cat(
        [
            torch.zeros_like(p).flatten() if g is None else g.flatten()
            for g, p in zip(found, model.parameters(), strict=True)
        ]
    )
