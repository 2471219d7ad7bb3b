"""Preconditioners, one kind per file."""

from lkgp.linalg.preconditioners.base import NoiseOnly, Preconditioner, PreconditionerSettings
from lkgp.linalg.preconditioners.kalman_filter import FilteredInverse, KalmanFilter
from lkgp.linalg.preconditioners.kronecker_eigenbasis import KroneckerEigenbasis
from lkgp.linalg.preconditioners.leading_modes import LeadingModes, LeadingModesInverse
from lkgp.linalg.preconditioners.nystrom import Nystrom
from lkgp.linalg.preconditioners.pivoted_cholesky import PivotedCholesky
from lkgp.linalg.preconditioners.successive_blocks import SuccessiveBlocks
from lkgp.linalg.preconditioners.vecchia import Vecchia, VecchiaInverse
from lkgp.settings import import_modules

__all__ = [
    "FilteredInverse",
    "KalmanFilter",
    "KroneckerEigenbasis",
    "LeadingModes",
    "LeadingModesInverse",
    "NoiseOnly",
    "Nystrom",
    "PivotedCholesky",
    "Preconditioner",
    "PreconditionerSettings",
    "SuccessiveBlocks",
    "Vecchia",
    "VecchiaInverse",
]

import_modules(__name__, __path__)
