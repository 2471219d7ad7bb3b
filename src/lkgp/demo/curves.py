"""Real learning curves, most of them cut early; their continuation and its scores."""

from collections.abc import Callable
from dataclasses import dataclass
from importlib.resources import files

import numpy as np
import torch
from gpytorch.kernels import MaternKernel, RBFKernel, ScaleKernel

from lkgp import metrics
from lkgp.gp import LKGP

LEVELS = (0.5, 0.8, 0.95)


@dataclass(frozen=True)
class Scores:
    """On the withheld cells. coverage: the share inside the central 50, 80 and 95 % intervals."""

    rmse: float
    nll: float
    coverage: tuple[float, ...]

    @classmethod
    def of(cls, truth: np.ndarray, mean: np.ndarray, std: np.ndarray) -> "Scores":
        y, m, s = (torch.as_tensor(np.ascontiguousarray(a)) for a in (truth, mean, std))
        return cls(
            metrics.rmse(y, m), metrics.nll(y, m, s), tuple(metrics.coverage(y, m, s, level) for level in LEVELS)
        )


@dataclass(frozen=True)
class Forecast:
    """settings: (networks, hyperparameters); all curves: (networks, epochs)

    seen: NaN where a curve was cut; mean, std: the prediction, noise included; last: the naive forecast, the last value seen
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
        """The withheld cells, boolean (networks, epochs)."""
        return np.isnan(self.seen)


def load_curves() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Settings (networks, hyperparameters), epochs (epochs,) and validation accuracies (networks, epochs) that ship with lkgp."""
    with files("lkgp.demo").joinpath("digits_curves.npz").open("rb") as file, np.load(file) as table:
        return table["settings"].astype(float), table["epochs"].astype(float), table["accuracy"].astype(float)


def cut(curves: np.ndarray, share: float, seed: int) -> np.ndarray:
    """Stop `share` of the curves after 2 to 20 epochs: NaN from there on."""
    rng = np.random.default_rng(seed)
    seen = curves.copy()
    for i in rng.permutation(len(curves))[: int(share * len(curves))]:
        seen[i, rng.integers(2, 21) :] = np.nan
    return seen


def last_value(seen: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The naive forecast: every curve stays where it was last seen. Its spread is that of the complete curves, by horizon.

    Returns mean and standard deviation, both (networks, epochs).
    """
    lengths = np.isfinite(seen).sum(axis=1)
    mean = np.repeat(seen[np.arange(len(seen)), lengths - 1][:, None], seen.shape[1], axis=1)
    complete = seen[lengths == seen.shape[1]]
    horizons = np.arange(1, seen.shape[1])
    spread = np.array([np.sqrt(np.mean((complete[:, h:] - complete[:, :-h]) ** 2)) for h in horizons])
    ahead = np.clip(np.arange(seen.shape[1])[None, :] - lengths[:, None], 0, len(spread) - 1)
    return mean, spread[ahead]


def run(seed: int = 0, progress: Callable[[int, float], None] | bool = False) -> Forecast:
    """Cut 80 % of the curves, fit, continue them, and score what was withheld."""
    settings, epochs, truth = load_curves()
    seen = cut(truth, share=0.8, seed=seed)
    kernels = [ScaleKernel(MaternKernel(nu=2.5, ard_num_dims=settings.shape[1])), RBFKernel()]
    gp = LKGP(kernels, seed=seed, progress=progress).fit([settings, np.log(epochs)], seen)
    mean, std = gp.predict(observation_noise=True)
    last, spread = last_value(seen)
    hidden = np.isnan(seen)
    ours = Scores.of(truth[hidden], mean[hidden], std[hidden])
    naive = Scores.of(truth[hidden], last[hidden], spread[hidden])
    return Forecast(epochs, truth, seen, mean, std, last, gp, ours, naive)
