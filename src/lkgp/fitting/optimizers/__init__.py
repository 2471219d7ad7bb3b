"""Optimisers, one per file."""

from lkgp.fitting.optimizers.adam import Adam
from lkgp.fitting.optimizers.base import INTERRUPTED, Optimizer, Outcome
from lkgp.fitting.optimizers.bfgs import BFGS, STOCHASTIC_IMPROVEMENT
from lkgp.fitting.optimizers.lbfgs import LBFGS
from lkgp.settings import import_modules

__all__ = ["BFGS", "INTERRUPTED", "LBFGS", "STOCHASTIC_IMPROVEMENT", "Adam", "Optimizer", "Outcome"]

import_modules(__name__, __path__)
