"""What an objective returns at one place, for tests of searches on functions that are known."""

from dataclasses import dataclass

import numpy as np


@dataclass
class Place:
    """value: of the function; gradient: (p,); curvature: (p, p); solved: whether solves converged there."""

    value: float
    gradient: np.ndarray
    curvature: np.ndarray
    solved: bool = True

    def information(self):
        return self.curvature
