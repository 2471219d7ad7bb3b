"""Matrices that are multiplied with and never formed."""

from linear_operator.operators import RootLinearOperator as LowRankFactor

from lkgp.linalg.factors import (
    Factor,
    LazyFactor,
    ToeplitzFactor,
    factor_dense,
    factor_diagonal,
    factor_rows,
    kronecker_matmul,
)
from lkgp.linalg.kronecker import CrossKronecker, LatentKronecker

__all__ = [
    "CrossKronecker",
    "Factor",
    "LatentKronecker",
    "LazyFactor",
    "LowRankFactor",
    "ToeplitzFactor",
    "factor_dense",
    "factor_diagonal",
    "factor_rows",
    "kronecker_matmul",
]
