"""How configurations, epochs and values of runs become the coordinates and values of a grid."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from lkgp.curves.configurations import Configuration, Space
from lkgp.curves.readers import Curve
from lkgp.curves.values import ValueScale


@dataclass(frozen=True, eq=False)
class CurveEncoding:
    """The numbers that the model of learning curves sees.

    space: encodes configurations
    scale: encodes values
    last_epoch: the epoch at which runs end
    """

    space: Space
    scale: ValueScale
    last_epoch: int

    def points(self, configurations: Sequence[Configuration], numbers: np.ndarray) -> np.ndarray:
        """Encoded configurations and, in the last column, the numbers of their runs (runs,): (runs, columns + 1)."""
        return np.column_stack([self.space.encode(configurations), numbers])

    def times(self, epochs: np.ndarray) -> np.ndarray:
        """log(1 + epoch) / log(1 + last epoch) of epochs (epochs,): from 0 to 1 at the last epoch, (epochs,)."""
        return np.log1p(np.asarray(epochs, dtype=float)) / math.log1p(self.last_epoch)

    def grid(
        self, configurations: Sequence[Configuration], curves: Sequence[Curve], epochs: np.ndarray
    ) -> tuple[list[np.ndarray], np.ndarray]:
        """Coordinates and values of a grid of runs and epochs; runs are numbered from 0.

        epochs: all epochs of the grid, ascending, (epochs,)

        Returns the coordinates, points (runs, columns + 1) and times (epochs,), and the encoded values (runs, epochs),
        NaN where nothing was observed.
        """
        values = np.full((len(curves), len(epochs)), np.nan)
        for row, (at, seen) in zip(values, curves, strict=True):
            row[np.searchsorted(epochs, at)] = self.scale.apply(seen)
        return [self.points(configurations, np.arange(len(curves))), self.times(epochs)], values
