"""The units in which a method takes values to be Gaussian, and what its predictions are worth in those of the data."""

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from scipy.special import ndtri

from lkgp import metrics
from lkgp.curves.values import ValueScale

# Levels at which the CRPS of a distribution that is not Gaussian is averaged.
QUANTILES = (np.arange(200) + 0.5) / 200


class Units(Protocol):
    """An increasing function of the data, y -> z; arrays of any shape."""

    def apply(self, values: np.ndarray) -> np.ndarray:
        """z of y; NaN stays NaN."""

    def undo(self, z: np.ndarray) -> np.ndarray:
        """y of z."""

    def log_slope(self, values: np.ndarray) -> np.ndarray:
        """log dz/dy at y."""


@dataclass(frozen=True)
class Plain:
    """Those of the data."""

    def apply(self, values: np.ndarray) -> np.ndarray:
        return values

    def undo(self, z: np.ndarray) -> np.ndarray:
        return z

    def log_slope(self, values: np.ndarray) -> np.ndarray:
        return np.zeros_like(values)


@dataclass(frozen=True)
class CurveUnits:
    """Those of `lkgp.curves`, in which a few wild runs do not set the scale.

    y -> scale(shift + width y)
    """

    scale: ValueScale
    shift: float
    width: float

    def apply(self, values: np.ndarray) -> np.ndarray:
        return self.scale.apply(self.shift + self.width * values)

    def undo(self, z: np.ndarray) -> np.ndarray:
        return (self.scale.undo(z) - self.shift) / self.width

    def log_slope(self, values: np.ndarray) -> np.ndarray:
        return self.scale.log_slope(self.shift + self.width * values) + math.log(self.width)


def scores(
    units: Units, truth: np.ndarray, mean: np.ndarray, std: np.ndarray, levels: tuple[float, ...]
) -> dict[str, float]:
    """RMSE of the median, NLL, CRPS and coverage, all in the units of the data.

    truth: (cells,) in the units of the data; mean, std: (cells,) of the Gaussian in `units`
    """
    z, m, s = (torch.as_tensor(a, dtype=torch.float64) for a in (units.apply(truth), mean, std))
    found = {
        "rmse": metrics.rmse(torch.as_tensor(truth), torch.as_tensor(units.undo(mean))),
        # p(y) = N(z(y); m, s^2) dz/dy
        "nll": metrics.nll(z, m, s) - float(units.log_slope(truth).mean()),
        "crps": metrics.crps(z, m, s) if isinstance(units, Plain) else crps_by_quantiles(units, truth, mean, std),
    }
    return found | {f"in_{100 * level:.0f}": metrics.coverage(z, m, s, level) for level in levels}


def crps_by_quantiles(units: Units, truth: np.ndarray, mean: np.ndarray, std: np.ndarray) -> float:
    """The same arguments. CRPS = 2 int_0^1 (1[y < q_a] - a) (q_a - y) da over the quantiles q_a."""
    total = 0.0
    for level in QUANTILES:
        quantile = units.undo(mean + std * ndtri(level))
        total += 2 * float(np.mean(((truth < quantile) - level) * (quantile - truth)))
    return total / len(QUANTILES)
