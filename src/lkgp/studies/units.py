"""The units in which a comparator takes the values to be Gaussian."""

from dataclasses import dataclass
from typing import Protocol

import numpy as np


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
