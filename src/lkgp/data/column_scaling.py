"""One affine scaling per column of a table in which NaN means missing: targets that do not share a unit."""

from dataclasses import dataclass

import numpy as np

# A column whose standard deviation is below this fraction of its mean is constant up to rounding and keeps its unit.
# The fraction is well above the rounding of long sums in double precision, and well below any spread worth modelling.
CONSTANT = 1e-12


@dataclass(frozen=True, eq=False)
class ColumnScaling:
    """x -> (x - shift) / scale, column by column.

    shift, scale: (columns,)
    """

    shift: np.ndarray
    scale: np.ndarray

    @classmethod
    def identity(cls, columns: int) -> "ColumnScaling":
        """No change."""
        return cls(np.zeros(columns), np.ones(columns))

    @classmethod
    def standard(cls, data: np.ndarray) -> "ColumnScaling":
        """To mean zero and variance one over what is not NaN in each column of `data`, (n, columns)."""
        observed = np.isfinite(data)
        count = np.maximum(observed.sum(axis=0), 1)
        shift = np.where(observed, data, 0.0).sum(axis=0) / count
        scale = np.sqrt(np.where(observed, (data - shift) ** 2, 0.0).sum(axis=0) / count)
        return cls(shift, np.where(scale > CONSTANT * np.abs(shift), scale, 1.0))

    def of_columns(self, columns: np.ndarray) -> "ColumnScaling":
        """The scaling of single entries, whose columns are given: shift and scale (m,)."""
        return ColumnScaling(self.shift[columns], self.scale[columns])

    def apply(self, data: np.ndarray) -> np.ndarray:
        """Scaled data (..., columns)."""
        return (data - self.shift) / self.scale

    def undo(self, data: np.ndarray) -> np.ndarray:
        """Data (..., columns) in their own units again."""
        return self.shift + self.scale * data

    def undo_std(self, std: np.ndarray) -> np.ndarray:
        """Standard deviations (..., columns) in the units of the data."""
        return self.scale * std

    def undo_covariance(self, covariance: np.ndarray) -> np.ndarray:
        """A covariance of rows and columns, (m columns, m columns) with columns fastest, in the units of the data."""
        scales = np.tile(self.scale, len(covariance) // len(self.scale))
        return covariance * np.outer(scales, scales)

    def undo_log_density(self, log_density: float, counts: np.ndarray) -> float:
        """A log-density in the units of the data, with `counts` (columns,) values in each column."""
        # p(y) = p(z) / scale for each value
        return log_density - float(counts @ np.log(self.scale))
