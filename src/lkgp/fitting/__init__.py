"""Fitting hyperparameters: the objective, starting values and optimisers."""

from lkgp.fitting.optimizers import BFGS, INTERRUPTED, LBFGS, Adam, Optimizer
from lkgp.fitting.search import FitResult, fit

__all__ = ["BFGS", "INTERRUPTED", "LBFGS", "Adam", "FitResult", "Optimizer", "fit"]
