"""The forecast of one training run, in numbers and in a sentence."""

import math
from dataclasses import dataclass

import numpy as np
from scipy.stats import t as student

from lkgp.curves.values import ValueScale

# Smaller probabilities are printed as "below 1e-06": so far out, a tail says more about the model than about the run.
SMALLEST_PROBABILITY = 1e-6


@dataclass(frozen=True, eq=False)
class Forecast:
    """How one run will continue.

    run: its number, if it has one
    seen: its epochs and values so far, both (epochs seen,)
    epochs: epochs of the forecast, (epochs,)
    median, lower, upper: median and central interval of the value at those epochs, each (epochs,)
    level: probability of the interval
    best: what the run is compared with: the best last value of the others, or a threshold; None if there is neither
    probability: probability that its last value will be better than `best`; NaN if there is none
    """

    run: int | None
    seen: tuple[np.ndarray, np.ndarray]
    epochs: np.ndarray
    median: np.ndarray
    lower: np.ndarray
    upper: np.ndarray
    level: float
    best: float | None
    probability: float

    @property
    def final(self) -> float:
        """The median at the last epoch."""
        return float(self.median[-1])

    @property
    def interval(self) -> tuple[float, float]:
        """The interval at the last epoch."""
        return float(self.lower[-1]), float(self.upper[-1])

    @property
    def chance(self) -> str:
        """The probability as text."""
        if self.probability >= SMALLEST_PROBABILITY:
            return f"{self.probability:.2g}"
        return f"below {SMALLEST_PROBABILITY:g}"

    @property
    def why(self) -> str:
        """The forecast in one sentence."""
        epochs, values = self.seen
        so_far = (
            f"its value after epoch {int(epochs[-1])} is {values[-1]:.4g}" if len(epochs) else "it has no values yet"
        )
        low, high = self.interval
        sentence = (
            f"{so_far}; the forecast for epoch {int(self.epochs[-1])} is {self.final:.4g} "
            f"({self.level:.0%} interval {low:.4g} to {high:.4g})"
        )
        if self.best is None:
            return f"{sentence}."
        return f"{sentence}, better than {self.best:.4g} with probability {self.chance}."


def make_forecast(
    scale: ValueScale,
    epochs: np.ndarray,
    mean: np.ndarray,
    std: np.ndarray,
    seen: tuple[np.ndarray, np.ndarray],
    best: float | None,
    level: float,
    run: int | None = None,
    degrees: float = math.inf,
) -> Forecast:
    """The forecast in the caller's units from the one in the units of the model.

    epochs: of the forecast, (epochs,)
    mean, std: of the encoded value at those epochs, each (epochs,)
    seen, best, level, run: as in Forecast
    degrees: degrees of freedom of Student's t; infinite for a normal distribution
    """
    distribution = student(degrees)
    quantile = float(distribution.ppf(0.5 + level / 2))
    ends = [scale.undo(mean - quantile * std), scale.undo(mean + quantile * std)]
    probability = np.nan
    if best is not None:
        # Smaller is better in the units of the model: P(z < z_best) = F((z_best - m) / s).
        probability = float(distribution.cdf((scale.apply(np.array(best)) - mean[-1]) / std[-1]))
    return Forecast(run, seen, epochs, scale.undo(mean), np.minimum(*ends), np.maximum(*ends), level, best, probability)
