"""Exact Gaussian processes for data on a grid with holes."""

import logging

from lkgp import metrics
from lkgp.data.grid import PartialGrid
from lkgp.data.readers import Observations, from_array, from_table
from lkgp.errors import ConvergenceError, ConvergenceWarning, FileError, InputError, NotFittedError

# The functional core
from lkgp.fitting import BFGS, LBFGS, Adam, FitResult, fit

# The class that most people use
from lkgp.gp import LKGP

# How inference is done
from lkgp.inference import Direct, Iterative, ObservationSpace, Plan, Spectral, plan
from lkgp.linalg.preconditioners import (
    KalmanFilter,
    KroneckerEigenbasis,
    LeadingModes,
    Nystrom,
    PivotedCholesky,
    SuccessiveBlocks,
    Vecchia,
)
from lkgp.model import LatentKroneckerGP
from lkgp.posterior import Posterior, condition
from lkgp.report import Report
from lkgp.solvers import (
    AlternatingProjections,
    Cholesky,
    ConjugateGradients,
    Reason,
    Solution,
    StochasticGradientDescent,
    solve,
)

__version__ = "0.1.0"

__all__ = [
    "BFGS",
    "LBFGS",
    "LKGP",
    "Adam",
    "AlternatingProjections",
    "Cholesky",
    "ConjugateGradients",
    "ConvergenceError",
    "ConvergenceWarning",
    "Direct",
    "FileError",
    "FitResult",
    "InputError",
    "Iterative",
    "KalmanFilter",
    "KroneckerEigenbasis",
    "LatentKroneckerGP",
    "LeadingModes",
    "NotFittedError",
    "Nystrom",
    "ObservationSpace",
    "Observations",
    "PartialGrid",
    "PivotedCholesky",
    "Plan",
    "Posterior",
    "Reason",
    "Report",
    "Solution",
    "Spectral",
    "StochasticGradientDescent",
    "SuccessiveBlocks",
    "Vecchia",
    "condition",
    "fit",
    "from_array",
    "from_table",
    "metrics",
    "plan",
    "solve",
]

logging.getLogger("lkgp").addHandler(logging.NullHandler())
