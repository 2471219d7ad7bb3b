"""Multi-output regression in which some targets are missing."""

from typing import Any

import numpy as np
from gpytorch.kernels import Kernel, MaternKernel, ScaleKernel
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils import check_array, check_consistent_length
from sklearn.utils.validation import check_is_fitted, validate_data

from lkgp import LKGP, Report
from lkgp.data.column_scaling import ColumnScaling
from lkgp.sklearn.tasks import as_seed, task_relations


class LKGPRegressor(RegressorMixin, BaseEstimator):
    """A Gaussian process over rows of features and one or several targets; NaN in the targets means missing.

    kernel: GPyTorch kernel over the features; by default Matern-5/2 with one length per feature
    task_kernel: kernel over the tasks, if there are several; by default learned relations, or Matern-5/2 if `tasks` are
        given
    tasks: coordinates of the tasks, (n_tasks,) or (n_tasks, d), if they have any, such as the epochs of learning
        curves. Targets then share one unit and are scaled together; otherwise each target is scaled on its own.
    noise: initial value of the learned noise variance, for standardised targets
    random_state: random seed
    max_memory: bytes that large arrays may take at once

    After `fit`: `model_` (the fitted LKGP), `report_`, `n_iter_`, `n_features_in_`.
    """

    def __init__(
        self,
        kernel: Kernel | None = None,
        *,
        task_kernel: Kernel | None = None,
        tasks: Any = None,
        noise: float = 0.05,
        random_state: Any = 0,
        max_memory: float | None = None,
    ) -> None:
        self.kernel = kernel
        self.task_kernel = task_kernel
        self.tasks = tasks
        self.noise = noise
        self.random_state = random_state
        self.max_memory = max_memory

    def fit(self, X: Any, y: Any) -> "LKGPRegressor":
        """Fit to features X (n, d) and targets y (n,) or (n, n_tasks), NaN where missing; returns self."""
        X = validate_data(self, X, dtype=np.float64, ensure_min_samples=2)
        y = self._targets(y)
        check_consistent_length(X, y)
        self._single = y.ndim == 1
        Y = y.reshape(len(y), -1)
        self._scaling = ColumnScaling.standard(Y) if self.tasks is None else ColumnScaling.identity(Y.shape[1])
        Y = self._scaling.apply(Y)
        self._counts = np.isfinite(Y).sum(axis=0)
        self._tasks = self._task_points(Y.shape[1])
        gp = LKGP(
            self._kernels(X.shape[1]),
            noise=self.noise,
            seed=as_seed(self.random_state),
            max_memory=self.max_memory,
        )
        # A table and not a grid, because rows of features may repeat.
        rows, columns = np.nonzero(np.isfinite(Y))
        factors = [X[rows]] if self._tasks is None else [X[rows], self._tasks[columns]]
        self.model_ = gp.fit_table(factors, Y[rows, columns], duplicates="mean")
        self.n_iter_ = max(1, self.model_.report_.steps)
        return self

    @property
    def report_(self) -> Report:
        """What was done; see `LKGP.report_`."""
        check_is_fitted(self)
        return self.model_.report_

    def predict(
        self, X: Any, return_std: bool = False, return_cov: bool = False, *, observation_noise: bool = False
    ) -> Any:
        """The mean of every target at X (m, d), (m,) or (m, n_tasks).

        return_std: also return the standard deviation, of the same shape
        return_cov: also return the joint covariance of all rows and tasks, (m, m) or (m * n_tasks, m * n_tasks), with
            tasks running fastest
        observation_noise: whether standard deviation and covariance are those of an observation instead of the function
        """
        if return_std and return_cov:
            raise RuntimeError("return_std and return_cov cannot both be True; choose at most one of them.")
        factors = self._factors(X)
        if return_cov:
            covariance = self.model_.covariance(factors, observation_noise=observation_noise)
            return self.predict(X), self._scaling.undo_covariance(covariance)
        if not return_std:
            return self._means(self.model_.predict(factors, std=False))
        mean, std = self.model_.predict(factors, observation_noise=observation_noise)
        return self._means(mean), self._shaped(self._scaling.undo_std(std.reshape(len(std), -1)))

    def sample_y(self, X: Any, n_samples: int = 1, random_state: Any = 0) -> np.ndarray:
        """Joint posterior draws at X (m, d), (m, n_samples) or (m, n_tasks, n_samples)."""
        factors = self._factors(X)
        draws = self.model_.sample(n_samples, factors, seed=as_seed(random_state))
        return np.stack([self._shaped(self._scaling.undo(draw.reshape(len(draw), -1))) for draw in draws], axis=-1)

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """The mean R^2 over targets; each is computed over the rows in which the target is not missing."""
        y = self._targets(y).reshape(len(y), -1)
        predicted = self.predict(X).reshape(y.shape)
        weights = (
            np.ones(len(y)) if sample_weight is None else check_array(sample_weight, ensure_2d=False, dtype=np.float64)
        )
        found = [weighted_r2(*column, weights) for column in zip(y.T, predicted.T, strict=True)]
        scores = [score for score in found if score is not None]
        if not scores:
            raise ValueError("every target has fewer than two values; score needs at least two values of one target.")
        return float(np.mean(scores))

    def log_marginal_likelihood(self) -> float:
        """log p(y) in the units of y."""
        check_is_fitted(self)
        return self._scaling.undo_log_density(self.model_.log_marginal_likelihood(), self._counts)

    def _targets(self, y: Any) -> np.ndarray:
        if y is None:
            raise ValueError(f"{type(self).__name__} requires y to be passed, but the target y is None.")
        y = check_array(
            y, ensure_2d=False, allow_nd=False, dtype=np.float64, ensure_all_finite="allow-nan", input_name="y"
        )
        if not np.isfinite(y).any():
            raise ValueError("Input y contains only NaN; at least one target must be present.")
        return y

    def _task_points(self, count: int) -> np.ndarray | None:
        """Coordinates of the tasks, (n_tasks,) or (n_tasks, d): those given or 0, 1, 2, ...; None for a single task."""
        if count == 1:
            return None
        if self.tasks is None:
            return np.arange(count, dtype=float)
        tasks = check_array(self.tasks, ensure_2d=False, dtype=np.float64)
        if len(tasks) != count:
            raise ValueError(f"there are {len(tasks)} tasks but {count} columns of targets; give one task per column.")
        if len(np.unique(tasks, axis=0)) < len(tasks):
            raise ValueError("two tasks have the same coordinates; every task needs its own.")
        return tasks

    def _kernels(self, num_features: int) -> list[Kernel]:
        """The kernels of all factors."""
        kernel = self.kernel if self.kernel is not None else MaternKernel(nu=2.5, ard_num_dims=num_features)
        if self._tasks is None:
            return [ScaleKernel(kernel) if self.kernel is None else kernel]
        if self.task_kernel is not None:
            return [kernel, self.task_kernel]
        if self.tasks is None:
            return [kernel, task_relations(self._counts > 0)]
        columns = 1 if self._tasks.ndim == 1 else self._tasks.shape[1]
        return [kernel, ScaleKernel(MaternKernel(nu=2.5, ard_num_dims=columns))]

    def _factors(self, X: Any) -> list[np.ndarray]:
        check_is_fitted(self)
        X = validate_data(self, X, dtype=np.float64, reset=False)
        return [X] if self._tasks is None else [X, self._tasks]

    def _means(self, mean: np.ndarray) -> np.ndarray:
        """Means of the model, (m,) or (m, n_tasks), in the units and the shape of the targets."""
        return self._shaped(self._scaling.undo(mean.reshape(len(mean), -1)))

    def _shaped(self, values: np.ndarray) -> np.ndarray:
        """(m, n_tasks) in the shape of the targets: (m,) for a single target that was given as (n,)."""
        return values.reshape(len(values)) if self._single else values.reshape(len(values), -1)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags


def weighted_r2(truth: np.ndarray, predicted: np.ndarray, weights: np.ndarray) -> float | None:
    """R^2 of one target over the rows in which it is not NaN, each (n,); None if there are fewer than two."""
    observed = np.isfinite(truth)
    truth, predicted, weights = truth[observed], predicted[observed], weights[observed]
    if len(truth) < 2:
        return None
    residual = np.sum(weights * (truth - predicted) ** 2)
    total = np.sum(weights * (truth - np.average(truth, weights=weights)) ** 2)
    return 1 - residual / total if total > 0 else float(residual == 0)
