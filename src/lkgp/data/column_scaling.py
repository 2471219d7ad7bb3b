"""One affine scaling per column of a table in which NaN means missing, for targets in different units."""

from dataclasses import dataclass

import numpy as np

# A column whose standard deviation is below this fraction of its mean is constant up to rounding and keeps its unit.
# The fraction is well above the rounding of long sums in double precision, and well below any spread worth modelling.
CONSTANT = 1e-12


@dataclass(frozen=True, eq=False)
class ColumnScaling:
    """The map x -> (x - shift) / scale, column by column.

    shift, scale: (columns,)
    """

    shift: np.ndarray
    scale: np.ndarray

    @classmethod
    def identity(cls, columns: int) -> "ColumnScaling":
        """The scaling that changes nothing."""
        return cls(np.zeros(columns), np.ones(columns))

    @classmethod
    def standard(cls, data: np.ndarray) -> "ColumnScaling":
        """Scale each column of `data` (n, columns) to mean zero and variance one, ignoring NaN."""
        observed = np.isfinite(data)
        count = np.maximum(observed.sum(axis=0), 1)
        shift = np.where(observed, data, 0.0).sum(axis=0) / count
        scale = np.sqrt(np.where(observed, (data - shift) ** 2, 0.0).sum(axis=0) / count)
        return cls(shift, np.where(scale > CONSTANT * np.abs(shift), scale, 1.0))

    def of_columns(self, columns: np.ndarray) -> "ColumnScaling":
        """The scaling of m single entries from their `columns` (m,): shift and scale are (m,)."""
        return ColumnScaling(self.shift[columns], self.scale[columns])

    def apply(self, data: np.ndarray) -> np.ndarray:
        """Scale data (..., columns)."""
        return (data - self.shift) / self.scale

    def undo(self, data: np.ndarray) -> np.ndarray:
        """Return scaled data (..., columns) to their original units."""
        return self.shift + self.scale * data

    def undo_std(self, std: np.ndarray) -> np.ndarray:
        """Convert standard deviations (..., columns) to the units of the data."""
        return self.scale * std

    def undo_covariance(self, covariance: np.ndarray) -> np.ndarray:
        """Convert a covariance (m columns, m columns), columns varying fastest, to the units of the data."""
        scales = np.tile(self.scale, len(covariance) // len(self.scale))
        return covariance * np.outer(scales, scales)

    def undo_log_density(self, log_density: float, counts: np.ndarray) -> float:
        """Convert a log density to the units of the data; column j holds `counts[j]` values, (columns,)."""
        # p(y) = p(z) / scale for each value
        return log_density - float(counts @ np.log(self.scale))
