"""The factors of a Kronecker product, one kind per file."""

from linear_operator.operators import LinearOperator
from torch import Tensor

from lkgp.linalg.factors.base import MOST_DENSE_POINTS, CovarianceFunction, Factor
from lkgp.linalg.factors.dense import DenseFactor
from lkgp.linalg.factors.lattice import LatticeFactor
from lkgp.linalg.factors.lazy import LazyFactor
from lkgp.linalg.factors.low_rank import LowRankFactor
from lkgp.linalg.factors.toeplitz import ToeplitzFactor
from lkgp.settings import import_modules

__all__ = [
    "MOST_DENSE_POINTS",
    "CovarianceFunction",
    "DenseFactor",
    "Factor",
    "LatticeFactor",
    "LazyFactor",
    "LowRankFactor",
    "ToeplitzFactor",
    "as_factor",
    "structure_for",
]

import_modules(__name__, __path__)


def as_factor(matrix: Tensor | LinearOperator) -> Factor:
    """Turn a plain matrix into a dense factor; return a factor unchanged."""
    return matrix if isinstance(matrix, Factor) else DenseFactor(matrix)


def structure_for(function: CovarianceFunction, coords: Tensor) -> str:
    """The kind of factor with the cheapest products of those that suit a kernel over the points `coords` (n_k, d_k).

    It is dense if none suits.
    """
    suitable = [kind for kind, factor in Factor.kinds.items() if factor.suits(function, coords)]
    return min(suitable, key=lambda kind: Factor.kinds[kind].product_cost(len(coords)), default=DenseFactor.kind)
