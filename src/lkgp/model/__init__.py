"""The model: terms (products of kernels over factors), mean and noise. It holds parameters but no data."""

from lkgp.model.kernels import check_kernel, default_kernels, discrete_columns, evaluate, is_discrete
from lkgp.model.mean import ConstantMean, Mean
from lkgp.model.model import LatentKroneckerGP
from lkgp.model.noise import LearnedNoise, Noise, as_noise, learned_noise
from lkgp.model.term import Term
from lkgp.settings import import_modules

__all__ = [
    "ConstantMean",
    "LatentKroneckerGP",
    "LearnedNoise",
    "Mean",
    "Noise",
    "Term",
    "as_noise",
    "check_kernel",
    "default_kernels",
    "discrete_columns",
    "evaluate",
    "is_discrete",
    "learned_noise",
]

import_modules(__name__, __path__)
