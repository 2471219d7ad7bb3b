"""Solvers of A X = B. Each is a settings record; a failure to converge is part of the returned solution."""

from lkgp.solvers.base import Reason, Solution, Solver, solve
from lkgp.solvers.cg import ConjugateGradients
from lkgp.solvers.cholesky import Cholesky
from lkgp.solvers.projections import AlternatingProjections
from lkgp.solvers.sgd import StochasticGradientDescent

__all__ = [
    "AlternatingProjections",
    "Cholesky",
    "ConjugateGradients",
    "Reason",
    "Solution",
    "Solver",
    "StochasticGradientDescent",
    "solve",
]
