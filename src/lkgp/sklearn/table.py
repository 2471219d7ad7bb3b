"""Regression on a long table in which one column names the point of the second factor."""

from typing import Any

import numpy as np
from gpytorch.kernels import Kernel, MaternKernel, ScaleKernel
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from lkgp import LKGP, Report
from lkgp.data.column_scaling import ColumnScaling
from lkgp.sklearn.tasks import as_seed, task_relations


class LKGPTableRegressor(RegressorMixin, BaseEstimator):
    """A Gaussian process for a table with one value per row and a column for a second factor, such as epochs or joints.

    column: the column of the second factor, by its position or, in a DataFrame, by its name
    kernel: GPyTorch kernel over the features; by default Matern-5/2 with one length per feature
    second_kernel: kernel over the second factor; by default Matern-5/2, or learned relations if its column holds names
    noise: initial value of the learned noise variance, for standardised values
    random_state: random seed
    max_memory: bytes that large arrays may take at once

    Rows with the same features and the same point of the second factor are averaged, weighted by how many there are. If
    the second factor holds names, the values of each name are scaled on their own.

    After `fit`: `model_` (the fitted LKGP), `categories_` (the names, or None), `report_`, `n_iter_`, `n_features_in_`.
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
        """Fit to X (rows, d + 1), which includes the column of the second factor, and y (rows,); returns self."""
        if y is None:
            raise ValueError(f"{type(self).__name__} requires y to be passed, but the target y is None.")
        self.categories_ = self._categories(X)
        X, y = validate_data(
            self, self._encoded(X), y, dtype=np.float64, y_numeric=True, ensure_min_features=2, ensure_min_samples=2
        )
        features, second = self._split(X)
        groups = self._groups(second)
        # Values of different names need not share a unit: joints, instruments, laboratories.
        by_group = np.full((len(y), groups.max() + 1), np.nan)
        by_group[np.arange(len(y)), groups] = y
        self._scaling = (
            ColumnScaling.identity(by_group.shape[1]) if self.categories_ is None else ColumnScaling.standard(by_group)
        )
        gp = LKGP(
            self._kernels(features.shape[1]),
            noise=self.noise,
            seed=as_seed(self.random_state),
            max_memory=self.max_memory,
        )
        scaled = self._scaling.of_columns(groups).apply(y)
        self.model_ = gp.fit_table([features, second], scaled, duplicates="mean")
        self.n_iter_ = max(1, self.model_.report_.steps)
        return self

    @property
    def report_(self) -> Report:
        """What was done; see `LKGP.report_`."""
        check_is_fitted(self)
        return self.model_.report_

    def predict(self, X: Any, return_std: bool = False, *, observation_noise: bool = False) -> Any:
        """The mean of every row of X (m, d + 1), (m,).

        return_std: also return the standard deviation, (m,)
        observation_noise: whether the standard deviation is that of an observation instead of the function
        """
        check_is_fitted(self)
        features, second = self._split(validate_data(self, self._encoded(X), dtype=np.float64, reset=False))
        scaling = self._scaling.of_columns(self._groups(second))
        if not return_std:
            return scaling.undo(self.model_.predict_rows([features, second], std=False))
        mean, std = self.model_.predict_rows([features, second], observation_noise=observation_noise)
        return scaling.undo(mean), scaling.undo_std(std)

    def _kernels(self, num_features: int) -> list[Kernel]:
        """The kernels over the features and over the second factor."""
        kernel = self.kernel if self.kernel is not None else MaternKernel(nu=2.5, ard_num_dims=num_features)
        if self.second_kernel is not None:
            return [kernel, self.second_kernel]
        if self.categories_ is not None:
            return [kernel, task_relations(np.ones(len(self.categories_), dtype=bool))]
        return [kernel, ScaleKernel(MaternKernel(nu=2.5))]

    def _groups(self, second: np.ndarray) -> np.ndarray:
        """Which values are scaled together, (rows,): those of one name, or all if the second factor holds numbers."""
        return second.astype(int) if self.categories_ is not None else np.zeros(len(second), dtype=int)

    def _categories(self, X: Any) -> list[Any] | None:
        """The names in the second factor's column of a DataFrame, sorted; None if it holds numbers."""
        if not hasattr(X, "columns"):
            if isinstance(self.column, str):
                self._position(X)  # raises, because X has no names
            return None
        column = X.iloc[:, self._position(X)]
        if column.dtype.kind in "fiub":
            return None
        if column.isna().any():
            raise ValueError("Input X contains NaN: the second factor is missing in some rows.")
        return sorted(column.unique(), key=str)

    def _encoded(self, X: Any) -> Any:
        """X with the names of the second factor encoded as 0, 1, 2, ..."""
        if self.categories_ is None:
            return X
        if not hasattr(X, "columns"):
            raise ValueError("the model was fitted to a DataFrame with names in the second factor; give one here, too.")
        codes = {name: float(i) for i, name in enumerate(self.categories_)}
        position = self._position(X)
        column = X.iloc[:, position]
        unknown = [name for name in column if name not in codes]
        if unknown:
            raise ValueError(f"the second factor contains {unknown[0]!r}, which was not in the training data.")
        encoded = X.copy()
        encoded.isetitem(position, column.map(codes).astype(float))
        return encoded

    def _position(self, X: Any) -> int:
        """The position of the second factor's column."""
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
            raise ValueError(f"column is {position}, but X has only {X.shape[1]} columns.")
        return np.delete(X, position, axis=1), X[:, position]
