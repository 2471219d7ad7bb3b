"""The units in which a comparator takes the values to be Gaussian."""

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from lkgp.curves.values import ValueScale


class Units(Protocol):
    """An increasing function of the data, y -> z. Arrays may have any shape."""

    def apply(self, values: np.ndarray) -> np.ndarray:
        """z of y; NaN stays NaN."""

    def undo(self, z: np.ndarray) -> np.ndarray:
        """y of z."""

    def log_slope(self, values: np.ndarray) -> np.ndarray:
        """log dz/dy at y."""


@dataclass(frozen=True)
class Plain:
    """The units of the data, z = y."""

    def apply(self, values: np.ndarray) -> np.ndarray:
        return values

    def undo(self, z: np.ndarray) -> np.ndarray:
        return z

    def log_slope(self, values: np.ndarray) -> np.ndarray:
        return np.zeros_like(values)


@dataclass(frozen=True)
class CurveUnits:
    """The units of `lkgp.curves`, in which a few diverged runs do not determine the scale.

    z = scale(shift + width y)
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
