"""Values of learning curves as the model sees them: smaller is better, in even units, with the bad side drawn together."""

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from lkgp.errors import InputError

Direction = Literal["minimize", "maximize"]
Transform = Literal["auto", "none", "log", "logit"]

# Last values that differ by more than this ratio are compared by their logarithms, unless the caller says otherwise.
WIDE = 3.0
# Shares of last values beyond which differences near one, or near zero, count by their odds.
NEAR_ONE = 0.9
# How close to zero and one a share may come, and to zero a positive number, beside the smallest that was seen.
CLOSEST = 1e-6, 1e-3


@dataclass(frozen=True)
class ValueScale:
    """v -> z: a transform, a sign, a logarithm above the knee, and standard units.

    u = sign t(max(v, least));   w = u up to the knee, knee + width log(1 + (u - knee) / width) above;   z = (w - shift) / scale
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
        """last: the last value of every run, (runs,), finite; every: all values, (values,), where there are more"""
        every = last if every is None else every
        if direction not in get_args(Direction):
            raise InputError(f"direction must be 'minimize' or 'maximize', not {direction!r}.")
        if transform not in get_args(Transform):
            raise InputError(f"transform must be one of {', '.join(get_args(Transform))}, not {transform!r}.")
        if transform == "auto":
            transform = suited(last, every)
        if transform == "log" and not (every > 0).all():
            raise InputError(
                f"a logarithm needs positive values, but {every.min():g} is among them; use transform='none'."
            )
        if transform == "logit" and not ((every >= 0) & (every <= 1)).all():
            raise InputError(
                f"transform='logit' needs values from 0 to 1, but they go from {every.min():g} to {every.max():g}."
            )
        least = {"log": CLOSEST[1] * float(every.min()), "logit": CLOSEST[0]}.get(transform, -np.inf)
        plain = cls(direction, transform, least, np.inf, 1.0, 0.0, 1.0)
        u = plain.apply(last)
        knee, good = float(np.median(u)), float(np.quantile(u, 0.1))
        width = knee - good if knee > good else spread_of(u, plain.apply(every), transform)
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
        bent = np.where(u > self.knee, self.knee + self.width * np.log1p(over / self.width), u)
        return (bent - self.shift) / self.scale

    def log_slope(self, values: np.ndarray) -> np.ndarray:
        """log |dz/dv| at finite values of any shape; below `least`, that at `least`."""
        u, log_slope = self._transformed(np.asarray(values, dtype=float))
        return log_slope - np.log1p(np.maximum(u - self.knee, 0.0) / self.width) - np.log(self.scale)

    def _transformed(self, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """u, before anything is bent, and log |du/dv|."""
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
        u = self.sign * np.where(
            bent > self.knee, self.knee + self.width * np.expm1(np.minimum(over / self.width, 700.0)), bent
        )
        if self.transform == "log":
            return np.exp(np.minimum(u, 700.0))
        return 1 / (1 + np.exp(-u)) if self.transform == "logit" else u


def spread_of(last: np.ndarray, every: np.ndarray, transform: Transform) -> float:
    """What counts as a difference where most last values are equal: their spread, or that of all values, or a part of the value itself."""
    for values in (last, every):
        if float(np.std(values)) > 1e-9 * float(np.abs(values).max()):
            return float(np.std(values))
    return 1.0 if transform in ("log", "logit") else 0.1 * abs(float(np.median(last))) or 1.0


def suited(last: np.ndarray, every: np.ndarray) -> Transform:
    """The transform in which runs with these last values, and these altogether, are best told apart."""
    if ((every >= 0) & (every <= 1)).all() and ((last > NEAR_ONE).any() or (last < 1 - NEAR_ONE).any()):
        return "logit"
    return "log" if (every > 0).all() and np.quantile(last, 0.9) > WIDE * np.quantile(last, 0.1) else "none"
