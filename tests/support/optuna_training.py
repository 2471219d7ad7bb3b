"""A simulated training for Optuna, which other processes import, too."""

import numpy as np
import optuna

STEPS = 15


def train(trial, sign=1.0):
    """A training that ends well for rates near 10^-2.5, and reports its loss."""
    rate = trial.suggest_float("rate", 1e-4, 1e-1, log=True)
    layers = trial.suggest_int("layers", 1, 3)
    kind = trial.suggest_categorical("kind", ["adam", "sgd"])
    momentum = trial.suggest_float("momentum", 0.0, 1.0) if kind == "sgd" else 0.5
    level = 0.2 + 0.2 * (np.log10(rate) + 2.5) ** 2 + 0.05 * layers + 0.1 * abs(momentum - 0.5)
    rng = np.random.default_rng(trial.number)
    for step in range(STEPS):
        value = sign * (level + np.exp(-0.4 * (step + 1)) + 0.005 * rng.normal())
        trial.report(value, step)
        if trial.should_prune():
            raise optuna.TrialPruned
    return value
