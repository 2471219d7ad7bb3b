"""Matrices that are multiplied with and never formed, and what makes systems with them easy to solve."""

from lkgp.linalg.factors import DenseFactor, Factor, LazyFactor, LowRankFactor, ToeplitzFactor, as_factor
from lkgp.linalg.kronecker import CrossKronecker, LatentKronecker, OperatorFactory
from lkgp.linalg.products import kronecker_matmul

__all__ = [
    "CrossKronecker",
    "DenseFactor",
    "Factor",
    "LatentKronecker",
    "LazyFactor",
    "LowRankFactor",
    "OperatorFactory",
    "ToeplitzFactor",
    "as_factor",
    "kronecker_matmul",
]
