"""Inference methods: their common contract, one file per method, and the choice among them."""

from lkgp.inference.base import Method, Plan, Purpose, System
from lkgp.inference.choice import Choice, check_choice, methods, plan, propose, without_factorisation
from lkgp.inference.costs import Cost, break_even, columns_at_once
from lkgp.inference.direct import Direct
from lkgp.inference.likelihood import Likelihood, Probes, log_likelihood
from lkgp.inference.observation_space import Iterative, ObservationSpace
from lkgp.inference.spectral import Spectral
from lkgp.settings import import_modules

__all__ = [
    "Choice",
    "Cost",
    "Direct",
    "Iterative",
    "Likelihood",
    "Method",
    "ObservationSpace",
    "Plan",
    "Probes",
    "Purpose",
    "Spectral",
    "System",
    "break_even",
    "check_choice",
    "columns_at_once",
    "log_likelihood",
    "methods",
    "plan",
    "propose",
    "without_factorisation",
]

import_modules(__name__, __path__)
