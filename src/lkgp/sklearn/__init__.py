"""scikit-learn regressors whose targets may be partly missing."""

from lkgp.sklearn.regressor import LKGPRegressor
from lkgp.sklearn.table import LKGPTableRegressor

__all__ = ["LKGPRegressor", "LKGPTableRegressor"]
