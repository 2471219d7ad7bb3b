"""Values of learning curves as the model sees them: smaller is better, in standard units, bad values compressed."""

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from lkgp.errors import InputError

Direction = Literal["minimize", "maximize"]
Transform = Literal["auto", "none", "log", "logit"]

# transform="auto" takes logarithms of positive values if the 90th percentile of last values is more than this many
# times the 10th. With a larger ratio the worst runs would set the unit; with a smaller one logarithms are taken where
# they change little.
LOG_RATIO = 3.0
# transform="auto" takes log-odds of values in [0, 1] if a last value is above this or below one minus this: there 0.98
# and 0.99 differ as much as 0.5 and 0.67, while in the middle of the range log-odds and values are nearly proportional.
EXTREME_FRACTION = 0.9
# Bounds that keep the transforms finite. Log-odds are taken in [margin, 1 - margin], which is the resolution of an
# accuracy on a million examples; logarithms of later values are bounded from below at this fraction of the smallest
# value seen.
LOGIT_MARGIN, LOG_MARGIN = 1e-6, 1e-3
# A standard deviation below this fraction of the largest value is rounding, not a difference.
RELATIVE_ROUNDING = 1e-9
# exp(x) overflows in double precision at x = 709.8.
MAX_EXPONENT = 700.0


@dataclass(frozen=True)
class ValueScale:
    """v -> z: a transform, a sign, a logarithm above a knee, and standard units.

    u = sign t(max(v, least))
    w = u                                               where u <= knee
    w = knee + width log(1 + (u - knee) / width)        where u > knee
    z = (w - shift) / scale
    """

    direction: Direction
    transform: Transform
    least: float
    knee: float
    width: float
    shift: float
    scale: float

    @classmethod
    def of(
        cls,
        last: np.ndarray,
        direction: Direction = "minimize",
        transform: Transform = "auto",
        every: np.ndarray | None = None,
    ) -> "ValueScale":
        """The scale that suits some curves.

        last: finite last value of every run, (runs,)
        every: all finite values of all runs, (values,); `last` by default
        """
        every = last if every is None else every
        if direction not in get_args(Direction):
            raise InputError(f"direction must be 'minimize' or 'maximize', not {direction!r}.")
        if transform not in get_args(Transform):
            raise InputError(f"transform must be one of {', '.join(get_args(Transform))}, not {transform!r}.")
        if transform == "auto":
            transform = choose_transform(last, every)
        if transform == "log" and not (every > 0).all():
            raise InputError(
                f"transform='log' needs positive values, but the smallest is {every.min():g}; use transform='none'."
            )
        if transform == "logit" and not ((every >= 0) & (every <= 1)).all():
            raise InputError(
                f"transform='logit' needs values from 0 to 1, but they range from {every.min():g} to {every.max():g}; "
                "use transform='none'."
            )
        least = {"log": LOG_MARGIN * float(every.min()), "logit": LOGIT_MARGIN}.get(transform, -np.inf)
        plain = cls(direction, transform, least, np.inf, 1.0, 0.0, 1.0)
        u = plain.apply(last)
        # Better than the median nothing is compressed; above it, in units of how far the best tenth is from the median.
        knee, good = float(np.median(u)), float(np.quantile(u, 0.1))
        width = knee - good if knee > good else fallback_width(u, plain.apply(every), transform)
        bent = cls(direction, transform, least, knee, width, 0.0, 1.0).apply(last)
        spread = float(np.std(bent))
        return cls(direction, transform, least, knee, width, float(np.mean(bent)), spread if spread > 0 else width)

    @property
    def sign(self) -> float:
        return 1.0 if self.direction == "minimize" else -1.0

    def apply(self, values: np.ndarray) -> np.ndarray:
        """z of values of any shape; NaN and infinity become NaN."""
        values = np.asarray(values, dtype=float)
        u, _ = self._transformed(np.where(np.isfinite(values), values, np.nan))
        over = np.maximum(u - self.knee, 0.0)
        # w = knee + width log(1 + (u - knee) / width)
        bent = np.where(u > self.knee, self.knee + self.width * np.log1p(over / self.width), u)
        return (bent - self.shift) / self.scale

    def log_slope(self, values: np.ndarray) -> np.ndarray:
        """log |dz/dv| at finite values of any shape; below `least`, the slope at `least`."""
        u, log_slope = self._transformed(np.asarray(values, dtype=float))
        # dz/dv = du/dv / (1 + (u - knee) / width) / scale
        return log_slope - np.log1p(np.maximum(u - self.knee, 0.0) / self.width) - np.log(self.scale)

    def _transformed(self, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """u, before compression, and log |du/dv|, both of the shape of `values`."""
        values = np.maximum(values, self.least)
        if self.transform == "log":
            return self.sign * np.log(values), -np.log(values)
        if self.transform == "logit":
            share = np.minimum(values, 1 - self.least)
            return self.sign * (np.log(share) - np.log1p(-share)), -np.log(share) - np.log1p(-share)
        return self.sign * values, np.zeros_like(values)

    def undo(self, z: np.ndarray) -> np.ndarray:
        """Values of any shape from their z."""
        bent = np.asarray(z, dtype=float) * self.scale + self.shift
        over = np.maximum(bent - self.knee, 0.0)
        # u = knee + width (exp((w - knee) / width) - 1)
        expanded = self.knee + self.width * np.expm1(np.minimum(over / self.width, MAX_EXPONENT))
        u = self.sign * np.where(bent > self.knee, expanded, bent)
        if self.transform == "log":
            return np.exp(np.minimum(u, MAX_EXPONENT))
        return 1 / (1 + np.exp(-u)) if self.transform == "logit" else u


def fallback_width(last: np.ndarray, every: np.ndarray, transform: Transform) -> float:
    """A unit of differences if most last values are equal: their spread, that of all values, or a tenth of the value.

    last: transformed last values, (runs,)
    every: all transformed values, (values,)
    """
    for values in (last, every):
        if float(np.std(values)) > RELATIVE_ROUNDING * float(np.abs(values).max()):
            return float(np.std(values))
    return 1.0 if transform in ("log", "logit") else 0.1 * abs(float(np.median(last))) or 1.0


def choose_transform(last: np.ndarray, every: np.ndarray) -> Transform:
    """The transform that separates runs best, given their last values (runs,) and all values (values,)."""
    extreme = (last > EXTREME_FRACTION).any() or (last < 1 - EXTREME_FRACTION).any()
    if ((every >= 0) & (every <= 1)).all() and extreme:
        return "logit"
    return "log" if (every > 0).all() and np.quantile(last, 0.9) > LOG_RATIO * np.quantile(last, 0.1) else "none"
