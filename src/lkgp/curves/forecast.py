"""How a training run will go on, in numbers and in a sentence."""

import math
from dataclasses import dataclass

import numpy as np
from scipy.stats import t as student

from lkgp.curves.values import ValueScale

# Probabilities below this are not told apart in words.
SMALLEST = 1e-6


@dataclass(frozen=True, eq=False)
class Forecast:
    """One run.

    seen: its epochs and values so far, both (epochs seen,)
    epochs: of the forecast, (epochs,); median, lower, upper: of the value there, with the central interval of probability `level`
    final, interval: the same at the last epoch
    best: what it is compared with: the best last value of the others, or a threshold; None where there is neither
    probability: that its last value will be better than that
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
        return float(self.median[-1])

    @property
    def interval(self) -> tuple[float, float]:
        return float(self.lower[-1]), float(self.upper[-1])

    @property
    def chance(self) -> str:
        """The probability in words; far tails are no more than a manner of speaking."""
        return f"{self.probability:.2g}" if self.probability >= SMALLEST else f"below {SMALLEST:g}"

    @property
    def why(self) -> str:
        """The forecast in one sentence."""
        epochs, values = self.seen
        so_far = f"after epoch {int(epochs[-1])} it is at {values[-1]:.4g}" if len(epochs) else "nothing of it was seen"
        low, high = self.interval
        sentence = f"{so_far}; at epoch {int(self.epochs[-1])} it is expected at {self.final:.4g} ({self.level:.0%}: {low:.4g} to {high:.4g})"
        if self.best is None:
            return f"{sentence}."
        return f"{sentence}, better than {self.best:.4g} with probability {self.chance}."


def forecast_from(
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
    """epochs, mean and std in units of the model: (epochs,); degrees: of freedom of Student's t; without end for a normal distribution."""
    value = student(degrees)
    reach = float(value.ppf(0.5 + level / 2))
    ends = [scale.undo(mean - reach * std), scale.undo(mean + reach * std)]
    probability = np.nan
    if best is not None:
        # smaller is better in units of the model
        probability = float(value.cdf((scale.apply(np.array(best)) - mean[-1]) / std[-1]))
    return Forecast(run, seen, epochs, scale.undo(mean), np.minimum(*ends), np.maximum(*ends), level, best, probability)
