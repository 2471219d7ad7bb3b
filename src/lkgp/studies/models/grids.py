"""From a problem to the observations of lkgp's core, and from flat cells back to the grid."""

import numpy as np
from torch import Tensor

from lkgp import Observations, from_array
from lkgp.studies.problems import Problem


def observations(problem: Problem) -> tuple[Observations, list[Tensor]]:
    """The observed cells, and the coordinates (n_k, d_k), in float64."""
    data = from_array(problem.coords, problem.seen)
    return data, list(data.grid.coords)


def on_grid(problem: Problem, cells: Tensor) -> np.ndarray:
    """Values of all cells, (N,), as an array (n_1, n_2)."""
    return cells.detach().double().reshape(problem.values.shape).numpy()
