"""Matrices that are never formed but only multiplied with, and the tools to solve systems with them."""

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
