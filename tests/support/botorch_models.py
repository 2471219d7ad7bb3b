"""Data for the BoTorch model, and its dense twin."""

import numpy as np
import torch
from oracle import Oracle, matern52

N, STEPS = 6, 4


def data(seed=0, shape=(N, STEPS), batch=()):
    """X, points of the other factors, and values with gaps, in units of hundreds."""
    generator = torch.Generator().manual_seed(seed)
    X = torch.rand(*batch, shape[0], 2, generator=generator, dtype=torch.float64)
    others = [torch.rand(n, 1, generator=generator, dtype=torch.float64).cumsum(0) for n in shape[1:]]
    Y = 300 + 40 * torch.randn(*batch, *shape, generator=generator, dtype=torch.float64)
    Y[torch.rand(Y.shape, generator=generator) < 0.3] = torch.nan
    return X, others, Y


def oracle_of(model, X, others, Y, noise=None, batch=0):
    """The dense twin of one batch, its units, and how X and the others are scaled."""
    core, values = model.models[batch], Y[torch.isfinite(Y)]
    shift, unit = values.mean().item(), values.std(correction=0).item()
    coords = [x.numpy() for x in (X, *others)]
    centre, spread = [x.mean(0) for x in coords], [x.std(0) for x in coords]
    lengths = [
        kernel.lengthscale.detach().numpy() if k else kernel.base_kernel.lengthscale.detach().numpy()
        for k, kernel in enumerate(core.kernels)
    ]
    scale = core.kernels[0].outputscale.item()

    def kernel(k):
        return lambda x, z: (scale if k == 0 else 1.0) * matern52(x, z, lengths[k])

    def scaled(x, k):
        return (x - centre[k]) / spread[k]

    known = core.noise_variance().item() if noise is None else (noise / unit**2).numpy()
    oracle = Oracle(
        [kernel(k) for k in range(len(coords))],
        [scaled(x, k) for k, x in enumerate(coords)],
        (Y.numpy() - shift) / unit,
        known,
        core.mean.constant.item(),
    )
    return oracle, shift, unit, scaled


def check_moments(posterior, oracle, shift, unit, at):
    mean = shift + unit * oracle.mean_at(at)
    covariance = unit**2 * oracle.covariance_at(at)
    q = len(at[0])
    np.testing.assert_allclose(posterior.mean.detach().numpy(), mean.reshape(q, -1), rtol=1e-6)
    np.testing.assert_allclose(
        posterior.variance.detach().numpy(), np.diag(covariance).reshape(q, -1), rtol=1e-5, atol=1e-6
    )
    np.testing.assert_allclose(
        posterior.distribution.covariance_matrix.detach().numpy(), covariance, atol=1e-5 * unit**2
    )
