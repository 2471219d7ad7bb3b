"""The splits of the paper. It draws them with NumPy's legacy generator, seeded with 2025 + split, and so do we."""

import numpy as np

FIRST_SEED = 2025
# The share of learning curves that are cut, as in the paper.
CUT_CURVES = 0.9


def split_generator(split: int) -> np.random.RandomState:
    """The generator of a split."""
    return np.random.RandomState(FIRST_SEED + split)


def uniform_gaps(shape: tuple[int, int], missing: float, generator: np.random.RandomState) -> np.ndarray:
    """Withhold a share of all cells at random. Returns which cells are observed, (n_1, n_2)."""
    size = shape[0] * shape[1]
    observed = np.ones(size, dtype=bool)
    observed[generator.choice(size, int(missing * size), replace=False)] = False
    return observed.reshape(shape)


def cut_curves(shape: tuple[int, int], generator: np.random.RandomState, cut: float = CUT_CURVES) -> np.ndarray:
    """Cut a share of the rows, each at a uniformly drawn column. Returns which cells are observed, (n_1, n_2)."""
    observed = np.ones(shape, dtype=bool)
    for row in generator.choice(shape[0], int(cut * shape[0]), replace=False):
        observed[row, generator.randint(shape[1]) :] = False
    return observed
