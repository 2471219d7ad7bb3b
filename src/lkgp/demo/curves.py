"""Real learning curves, most of them stopped early; their forecasts, and the scores of these."""

from collections.abc import Callable
from dataclasses import dataclass
from importlib.resources import files

import numpy as np
import torch
from gpytorch.kernels import MaternKernel, RBFKernel, ScaleKernel

from lkgp import LKGP, metrics

# Probabilities of the central intervals that are scored and drawn.
LEVELS = (0.5, 0.8, 0.95)
# The fraction of curves that are stopped, after 2 to 20 of 40 epochs (the upper bound is excluded): a minority is
# complete, as in a search that stops most runs early.
STOPPED_FRACTION, STOPPED_AFTER = 0.8, (2, 21)


@dataclass(frozen=True)
class Scores:
    """Scores on the withheld values.

    rmse: root mean square error
    nll: mean negative log-density
    coverage: fraction of the values inside the central intervals of `LEVELS`
    """

    rmse: float
    nll: float
    coverage: tuple[float, ...]

    @classmethod
    def of(cls, truth: np.ndarray, mean: np.ndarray, std: np.ndarray) -> "Scores":
        """Scores of normal predictions, each (values,)."""
        y, m, s = (torch.as_tensor(np.ascontiguousarray(a)) for a in (truth, mean, std))
        return cls(
            metrics.rmse(y, m), metrics.nll(y, m, s), tuple(metrics.coverage(y, m, s, level) for level in LEVELS)
        )


@dataclass(frozen=True)
class Forecast:
    """The forecasts of all curves; arrays are (networks, epochs), except `epochs`.

    epochs: (epochs,)
    truth: the complete curves
    seen: what the model saw of them, NaN where a curve was stopped
    mean, std: the forecast, noise included
    last: the naive forecast, the last value seen
    gp: the fitted model
    ours, naive: scores of the forecast and of the naive one
    """

    epochs: np.ndarray
    truth: np.ndarray
    seen: np.ndarray
    mean: np.ndarray
    std: np.ndarray
    last: np.ndarray
    gp: LKGP
    ours: Scores
    naive: Scores

    @property
    def hidden(self) -> np.ndarray:
        """Which values were withheld, boolean (networks, epochs)."""
        return np.isnan(self.seen)


def load_curves() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The curves that come with lkgp.

    Returns settings (networks, hyperparameters), epochs (epochs,) and validation accuracies (networks, epochs).
    """
    with files("lkgp.demo").joinpath("digits_curves.npz").open("rb") as file, np.load(file) as table:
        return table["settings"].astype(float), table["epochs"].astype(float), table["accuracy"].astype(float)


def stop_early(curves: np.ndarray, seed: int) -> np.ndarray:
    """Curves (networks, epochs) of which most are stopped early: NaN from there on."""
    rng = np.random.default_rng(seed)
    seen = curves.copy()
    for i in rng.permutation(len(curves))[: int(STOPPED_FRACTION * len(curves))]:
        seen[i, rng.integers(*STOPPED_AFTER) :] = np.nan
    return seen


def last_value(seen: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The naive forecast: every curve stays at its last value, with the spread of complete curves that far ahead.

    seen: (networks, epochs), NaN where a curve was stopped

    Returns mean and standard deviation, both (networks, epochs).
    """
    lengths = np.isfinite(seen).sum(axis=1)
    mean = np.repeat(seen[np.arange(len(seen)), lengths - 1][:, None], seen.shape[1], axis=1)
    complete = seen[lengths == seen.shape[1]]
    horizons = np.arange(1, seen.shape[1])
    # sd(h) = sqrt(mean((y[t + h] - y[t])^2)) over complete curves
    spread = np.array([np.sqrt(np.mean((complete[:, h:] - complete[:, :-h]) ** 2)) for h in horizons])
    ahead = np.clip(np.arange(seen.shape[1])[None, :] - lengths[:, None], 0, len(spread) - 1)
    return mean, spread[ahead]


def run(seed: int = 0, progress: Callable[[int, float], None] | bool = False) -> Forecast:
    """Stop 80 % of the curves early, fit, forecast how they continue, and score what was withheld.

    seed: random seed
    progress: as in LKGP
    """
    settings, epochs, truth = load_curves()
    seen = stop_early(truth, seed)
    kernels = [ScaleKernel(MaternKernel(nu=2.5, ard_num_dims=settings.shape[1])), RBFKernel()]
    gp = LKGP(kernels, seed=seed, progress=progress).fit([settings, np.log(epochs)], seen)
    mean, std = gp.predict(observation_noise=True)
    last, spread = last_value(seen)
    hidden = np.isnan(seen)
    ours = Scores.of(truth[hidden], mean[hidden], std[hidden])
    naive = Scores.of(truth[hidden], last[hidden], spread[hidden])
    return Forecast(epochs, truth, seen, mean, std, last, gp, ours, naive)
