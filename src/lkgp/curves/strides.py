"""Long training in strides: a bounded number of epochs, however long runs are."""

import math
from dataclasses import dataclass

import numpy as np

# Longer training is divided into strides of several epochs. A verdict costs at most the cube of this number, about a
# millisecond, and LCBench curves (52 epochs) keep all their epochs.
MAX_STRIDES = 100


@dataclass(frozen=True)
class Strides:
    """Strides of equal length, numbered from 1; each has the last value that was reported in it."""

    last_epoch: int

    @property
    def length(self) -> int:
        """Epochs per stride."""
        return math.ceil(self.last_epoch / MAX_STRIDES)

    @property
    def count(self) -> int:
        return math.ceil(self.last_epoch / self.length)

    def read(self, epochs: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The strides of a curve and the last values in them, both (strides seen,).

        epochs, values: of the curve, both (epochs seen,)
        """
        values = values[epochs <= self.last_epoch]
        strides = np.maximum(np.ceil(epochs[epochs <= self.last_epoch] / self.length), 1)
        last = np.append(strides[1:] != strides[:-1], True) if len(strides) else np.zeros(0, dtype=bool)
        return strides[last], values[last]

    def to_epochs(self, strides: np.ndarray) -> np.ndarray:
        """The last epoch of each stride, (strides,)."""
        return np.minimum(strides * self.length, self.last_epoch)
