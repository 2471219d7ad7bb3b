"""Multi-output regression as scikit-learn knows it, with targets of which some are missing."""

from typing import Any

import numpy as np
from gpytorch.kernels import IndexKernel, Kernel, MaternKernel, ScaleKernel
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils import check_array, check_consistent_length, check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from lkgp.gp import LKGP
from lkgp.posterior.moments import row_moments

# Tasks without coordinates are related by a matrix of this rank, at the most, plus what each has of its own.
TASK_RANK = 2


class LKGPRegressor(RegressorMixin, BaseEstimator):
    """A Gaussian process over rows of features and one or several targets; NaN in the targets means missing.

    kernel: over the features, a GPyTorch kernel; Matern-5/2 with a length a feature by default
    task_kernel: over the tasks, where there are several; learned relations, or Matern-5/2 where `tasks` are given, by default
    tasks: coordinates of the tasks, (n_tasks,) or (n_tasks, d), where they have any, such as the epochs of learning curves. Targets are
        then in one unit, and scaled together; otherwise each is scaled on its own.
    noise: where the learned noise variance starts, for standardised targets
    random_state: of everything random
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
        """X: (n, d); y: (n,) or (n, n_tasks), NaN where a target is missing; at least one must be there."""
        X = validate_data(self, X, dtype=np.float64, ensure_min_samples=2)
        y = self._targets(y)
        check_consistent_length(X, y)
        self._single = y.ndim == 1
        Y = y.reshape(len(y), -1)
        kernel = self.kernel if self.kernel is not None else MaternKernel(nu=2.5, ard_num_dims=X.shape[1])
        self._shift, self._unit = scales(Y, each=self.tasks is None)
        Y = (Y - self._shift) / self._unit
        rows, columns = np.nonzero(np.isfinite(Y))
        self._counts = np.isfinite(Y).sum(axis=0)
        if Y.shape[1] == 1:
            self._tasks, kernels = None, [ScaleKernel(kernel) if self.kernel is None else kernel]
        else:
            tasks = (
                np.arange(Y.shape[1], dtype=float)
                if self.tasks is None
                else check_array(self.tasks, ensure_2d=False, dtype=np.float64)
            )
            check_consistent_length(tasks, Y.T)
            if len(np.unique(tasks, axis=0)) < len(tasks):
                raise ValueError("two tasks have the same coordinates; give each its own.")
            self._tasks, kernels = tasks, [kernel, self._task_kernel(Y.shape[1], tasks)]
        gp = LKGP(kernels, noise=self.noise, seed=as_seed(self.random_state), max_memory=self.max_memory)
        # A table, because rows of features may repeat.
        factors = [X[rows]] if self._tasks is None else [X[rows], self._tasks[columns]]
        self.model_ = gp.fit_table(factors, Y[rows, columns], duplicates="mean")
        self.report_, self.n_iter_ = self.model_.report_, max(1, self.model_.report_.steps)
        return self

    def predict(
        self, X: Any, return_std: bool = False, return_cov: bool = False, *, observation_noise: bool = False
    ) -> Any:
        """The mean of every target, (m,) or (m, n_tasks).

        return_std: also return its standard deviation, of the same shape
        return_cov: or the joint covariance of all rows and tasks, (m, m) or (m * n_tasks, m * n_tasks), tasks running fastest
        observation_noise: whether these are of an observation, or of the function behind it
        """
        if return_std and return_cov:
            raise RuntimeError("at most one of return_std and return_cov can be asked for.")
        factors = self._factors(X)
        if return_cov:
            covariance = self.model_.covariance(factors)
            noise = (
                float(self.model_.model_.noise_variance().detach())
                * float(self.model_._standardization.values.scale) ** 2
            )
            covariance = covariance + observation_noise * noise * np.eye(len(covariance))
            units = np.tile(self._unit, len(covariance) // len(self._unit))
            return self.predict(X), covariance * np.outer(units, units)
        mean, std = self.model_.predict(factors, observation_noise=observation_noise)
        mean = self._shaped(self._shift + self._unit * mean.reshape(len(mean), -1))
        return (mean, self._shaped(self._unit * std.reshape(len(std), -1))) if return_std else mean

    def sample_y(self, X: Any, n_samples: int = 1, random_state: Any = 0) -> np.ndarray:
        """Joint draws, (m, n_samples) or (m, n_tasks, n_samples)."""
        factors = self._factors(X)
        draws = self.model_.sample(n_samples, factors, seed=as_seed(random_state))
        return np.stack(
            [self._shaped(self._shift + self._unit * draw.reshape(len(draw), -1)) for draw in draws], axis=-1
        )

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """The mean over targets of R^2, over the rows in which a target is there."""
        y = self._targets(y).reshape(len(y), -1)
        guess = self.predict(X).reshape(y.shape)
        weights = (
            np.ones(len(y)) if sample_weight is None else check_array(sample_weight, ensure_2d=False, dtype=np.float64)
        )
        found = []
        for truth, mean in zip(y.T, guess.T, strict=True):
            there = np.isfinite(truth)
            w, truth, mean = weights[there], truth[there], mean[there]  # noqa: PLW2901  (the same, without the gaps)
            if len(truth) < 2:
                continue
            rest = np.sum(w * (truth - mean) ** 2)
            total = np.sum(w * (truth - np.average(truth, weights=w)) ** 2)
            found.append(1 - rest / total if total > 0 else float(rest == 0))
        if not found:
            raise ValueError("no target has two values or more; there is nothing to score.")
        return float(np.mean(found))

    def log_marginal_likelihood(self) -> float:
        """log p(y) in the units of y."""
        check_is_fitted(self)
        # A density in other units: p(y) = p(z) / unit for each value.
        return self.model_.log_marginal_likelihood() - float(self._counts @ np.log(self._unit))

    def _targets(self, y: Any) -> np.ndarray:
        if y is None:
            raise ValueError(f"{type(self).__name__} requires y to be passed, but the target y is None.")
        y = check_array(
            y, ensure_2d=False, allow_nd=False, dtype=np.float64, ensure_all_finite="allow-nan", input_name="y"
        )
        if not np.isfinite(y).any():
            raise ValueError("Input y contains NaN only; at least one target must be there.")
        return y

    def _task_kernel(self, count: int, tasks: np.ndarray) -> Kernel:
        if self.task_kernel is not None:
            return self.task_kernel
        if self.tasks is None:
            return task_relations(count)
        return ScaleKernel(MaternKernel(nu=2.5, ard_num_dims=1 if tasks.ndim == 1 else tasks.shape[1]))

    def _factors(self, X: Any) -> list[Any]:
        check_is_fitted(self)
        X = validate_data(self, X, dtype=np.float64, reset=False)
        return [X] if self._tasks is None else [X, self._tasks]

    def _shaped(self, values: np.ndarray) -> np.ndarray:
        return values.reshape(len(values)) if self._single else values.reshape(len(values), -1)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags


def task_relations(tasks: int) -> IndexKernel:
    """Relations between tasks that are learned; at first all are half alike. GPyTorch's own first values are random."""
    kernel = IndexKernel(num_tasks=tasks, rank=min(max(tasks - 1, 1), TASK_RANK))
    columns = np.cos(np.pi * np.outer(np.arange(tasks) + 0.5, np.arange(kernel.covar_factor.shape[1])) / tasks)
    columns /= np.linalg.norm(columns, axis=1, keepdims=True)
    kernel.covar_factor.data = kernel.covar_factor.data.new_tensor(np.sqrt(0.5) * columns)
    return kernel


def scales(Y: np.ndarray, each: bool) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation of what there is in each column of (n, n_tasks), 1 where it is constant; 0 and 1 if not for each."""
    if not each:
        return np.zeros(Y.shape[1]), np.ones(Y.shape[1])
    there = np.isfinite(Y)
    count = np.maximum(there.sum(axis=0), 1)
    shift = np.where(there, Y, 0.0).sum(axis=0) / count
    unit = np.sqrt(np.where(there, (Y - shift) ** 2, 0.0).sum(axis=0) / count)
    return shift, np.where(unit > 1e-12 * np.abs(shift), unit, 1.0)


def as_seed(random_state: Any) -> int:
    """A whole number, from whatever scikit-learn takes for a random state."""
    if isinstance(random_state, (int, np.integer)):
        return int(random_state)
    return int(check_random_state(random_state).randint(np.iinfo(np.int32).max))


class LKGPTableRegressor(RegressorMixin, BaseEstimator):
    """The same for a table: rows of features and one value, with a column that names the second factor, such as an epoch or a joint.

    column: of the second factor, by its position or, in a DataFrame, by its name
    kernel: over the features; second_kernel: over the second factor. Matern-5/2 by default; relations are learned where it holds names.
    noise, random_state, max_memory: as in LKGPRegressor

    Rows that name the same features and the same point of the second factor are averaged, and count as often as they are there.
    """

    def __init__(
        self,
        column: int | str = -1,
        kernel: Kernel | None = None,
        *,
        second_kernel: Kernel | None = None,
        noise: float = 0.05,
        random_state: Any = 0,
        max_memory: float | None = None,
    ) -> None:
        self.column = column
        self.kernel = kernel
        self.second_kernel = second_kernel
        self.noise = noise
        self.random_state = random_state
        self.max_memory = max_memory

    def fit(self, X: Any, y: Any) -> "LKGPTableRegressor":
        """X: (rows, d + 1), the second factor among its columns; y: (rows,)."""
        if y is None:
            raise ValueError(f"{type(self).__name__} requires y to be passed, but the target y is None.")
        self.categories_ = self._categories(X)
        X, y = validate_data(
            self, self._numbers(X), y, dtype=np.float64, y_numeric=True, ensure_min_features=2, ensure_min_samples=2
        )
        features, second = self._split(X)
        kernel = self.kernel if self.kernel is not None else MaternKernel(nu=2.5, ard_num_dims=features.shape[1])
        other = self.second_kernel
        if other is None:
            other = (
                task_relations(len(self.categories_))
                if self.categories_ is not None
                else ScaleKernel(MaternKernel(nu=2.5))
            )
        gp = LKGP([kernel, other], noise=self.noise, seed=as_seed(self.random_state), max_memory=self.max_memory)
        # Values that are named are scaled on their own, by name: joints, instruments, laboratories need not share a unit.
        names = second.astype(int) if self.categories_ is not None else np.zeros(len(y), dtype=int)
        by_name = np.full((len(y), names.max() + 1), np.nan)
        by_name[np.arange(len(y)), names] = y
        self._shift, self._unit = scales(by_name, each=self.categories_ is not None)
        self.model_ = gp.fit_table([features, second], (y - self._shift[names]) / self._unit[names], duplicates="mean")
        self.report_, self.n_iter_ = self.model_.report_, max(1, self.model_.report_.steps)
        return self

    def predict(self, X: Any, return_std: bool = False, *, observation_noise: bool = False) -> Any:
        """The mean of every row, (m,); with `return_std` its standard deviation, too."""
        check_is_fitted(self)
        features, second = self._split(validate_data(self, self._numbers(X), dtype=np.float64, reset=False))
        columns, _ = self.model_._points([features, second])
        mean, variance = (part.double().numpy() for part in row_moments(self.model_._fitted(), columns))
        if observation_noise:
            variance = variance + float(self.model_.model_.noise_variance().detach())
        scaling, names = (
            self.model_._standardization.values,
            second.astype(int) if self.categories_ is not None else np.zeros(len(mean), dtype=int),
        )
        mean, std = (float(scaling.shift) + float(scaling.scale) * mean), float(scaling.scale) * np.sqrt(variance)
        mean, std = self._shift[names] + self._unit[names] * mean, self._unit[names] * std
        return (mean, std) if return_std else mean

    def _categories(self, X: Any) -> list[Any] | None:
        """The names in the second factor's column of a DataFrame, in order; None where it holds numbers."""
        if not hasattr(X, "columns"):
            if isinstance(self.column, str):
                self._position(X)  # refuses it
            return None
        column = X.iloc[:, self._position(X)]
        if column.dtype.kind in "fiub":
            return None
        if column.isna().any():
            raise ValueError("Input X contains NaN: the second factor is missing in some rows.")
        return sorted(column.unique(), key=str)

    def _numbers(self, X: Any) -> Any:
        """X with the names of the second factor as whole numbers."""
        if self.categories_ is None:
            return X
        if not hasattr(X, "columns"):
            raise ValueError("the second factor was fitted by its names; give a DataFrame with them.")
        codes = {name: float(i) for i, name in enumerate(self.categories_)}
        position = self._position(X)
        column = X.iloc[:, position]
        unknown = [name for name in column if name not in codes]
        if unknown:
            raise ValueError(f"the second factor has {unknown[0]!r}, which was not there when the model was fitted.")
        coded = X.copy()
        coded.isetitem(position, column.map(codes).astype(float))
        return coded

    def _position(self, X: Any) -> int:
        """Of the second factor's column."""
        if isinstance(self.column, str):
            names = list(getattr(X, "columns", []))
            if self.column not in names:
                raise ValueError(
                    f"there is no column {self.column!r}; give a DataFrame that has it, or the position of the column."
                )
            return names.index(self.column)
        return int(self.column)

    def _split(self, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Features (rows, d) and the second factor (rows,)."""
        position = list(self.feature_names_in_).index(self.column) if isinstance(self.column, str) else int(self.column)
        if not -X.shape[1] <= position < X.shape[1]:
            raise ValueError(f"column is {position}, but there are {X.shape[1]} columns.")
        return np.delete(X, position, axis=1), X[:, position]
