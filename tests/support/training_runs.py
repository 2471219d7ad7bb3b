"""Simulated training runs, and the dense twin of the model of learning curves."""

import numpy as np
from oracle import Oracle, matern52

EPOCHS = 20


def simulated(runs, seed=0, noise=0.01):
    """Configurations of runs and loss curves (runs, EPOCHS) that fall to a level and at a speed that depend on them."""
    rng = np.random.default_rng(seed)
    rates, widths, kinds = (
        10 ** rng.uniform(-4, -1, runs),
        rng.integers(16, 512, runs),
        rng.choice(["adam", "sgd"], runs),
    )
    level = 0.2 + 0.15 * (np.log10(rates) + 2.5) ** 2 + 0.1 * (kinds == "sgd")
    speed = 0.1 + 0.3 * (widths / 512)
    curves = (
        level[:, None] + np.exp(-speed[:, None] * np.arange(1, EPOCHS + 1)) + noise * rng.normal(size=(runs, EPOCHS))
    )
    configurations = [
        {"rate": r, "width": int(w), "optimizer": str(k)} for r, w, k in zip(rates, widths, kinds, strict=True)
    ]
    return configurations, curves


def dense_twin(gp, points, times, values):
    """The model of learning curves as a dense oracle.

    gp: LatentKroneckerGP with the kernels of `lkgp.curves`
    points: (runs, columns + 1); times: (epochs,); values: (runs, epochs)
    """
    own, alike = gp.kernels[0].kernels
    lengths = alike.base_kernel.lengthscale.detach().numpy()
    weights = own.outputscale.item(), alike.outputscale.item()
    trend, wander = gp.kernels[1].kernels
    along, apart = trend.lengthscale.item(), wander.base_kernel.lengthscale.item()
    share = wander.outputscale.item()

    def epochs(x, z):
        return matern52(x, z, along) + share * np.exp(-np.abs(x - z.T) / apart)

    def runs(x, z):
        same = (x[:, None, -1] == z[None, :, -1]).astype(float)
        return weights[0] * same + weights[1] * matern52(x[:, :-1], z[:, :-1], lengths)

    noise, mean = gp.noise_variance().item(), gp.mean.constant.item()
    return Oracle([runs, epochs], [points, times[:, None]], values, noise, mean)
