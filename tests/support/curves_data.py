"""Smooth learning curves that are cut at random."""

import numpy as np


def curves(rows=14, columns=10, noise=0.02, seed=0):
    """Smooth curves of two hyperparameters, cut at random."""
    rng = np.random.default_rng(seed)
    X, T = rng.uniform(-1, 1, (rows, 2)), np.linspace(0, 1, columns)
    truth = np.sin(2 * X[:, :1]) + np.exp(-3 * T) * X[:, 1:] + 10
    Y = truth + noise * rng.normal(size=truth.shape)
    for i in range(rows):
        Y[i, rng.integers(2, columns + 1) :] = np.nan
    return X, T, Y, truth
