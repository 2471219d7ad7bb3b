"""What both regressors need: a kernel over named tasks, and seeds from scikit-learn's random states."""

from typing import Any

import numpy as np
from gpytorch.kernels import IndexKernel
from sklearn.utils import check_random_state

# Tasks without coordinates are related by a matrix of at most this rank, plus a variance of each task's own. A higher
# rank can represent more relations but has more parameters to learn: one per task and rank.
TASK_RANK = 2


def task_relations(observed: np.ndarray) -> IndexKernel:
    """Learned relations between tasks.

    They start from fixed values instead of GPyTorch's random ones: tasks in a row, each more similar to its neighbours
    than to those further away, from the first columns of a cosine transform with a variance of 1/2 for every task. The
    additional variances of the tasks' own start at log 2, the median of GPyTorch's. Tasks without observations are
    unrelated to the others, and so have no influence on them.

    observed: whether each task has observations, (tasks,)
    """
    count = int(observed.sum())
    kernel = IndexKernel(num_tasks=len(observed), rank=min(max(count - 1, 1), TASK_RANK))
    columns = np.cos(np.pi * np.outer(np.arange(count) + 0.5, np.arange(kernel.covar_factor.shape[1])) / count)
    relations = np.zeros((len(observed), columns.shape[1]))
    relations[observed] = np.sqrt(0.5) * columns / np.linalg.norm(columns, axis=1, keepdims=True)
    kernel.covar_factor.data = kernel.covar_factor.data.new_tensor(relations)
    kernel.raw_var.data = kernel.raw_var.data.new_zeros(kernel.raw_var.shape)  # softplus(0) = log 2
    return kernel


def as_seed(random_state: Any) -> int:
    """A whole number from anything that scikit-learn accepts as a random state."""
    if isinstance(random_state, (int, np.integer)):
        return int(random_state)
    return int(check_random_state(random_state).randint(np.iinfo(np.int32).max))
