"""SciPy's L-BFGS-B."""

import math
from dataclasses import dataclass

import numpy as np
import scipy.optimize
import torch

from lkgp.fitting.objective import Objective
from lkgp.fitting.optimizers.base import Optimizer
from lkgp.fitting.trust_region import counted
from lkgp.settings import check_positive

# Number of past steps from which L-BFGS builds its curvature: more steps make it more accurate but use more memory.
MEMORY = 20


@dataclass(frozen=True)
class LBFGS(Optimizer):
    """L-BFGS-B, a quasi-Newton method for likelihoods with exact values and gradients.

    tolerance: stop when no entry of the gradient, per observation, exceeds this
    improvement: stop when a step improves the objective, per observation, by less than this
    """

    max_steps: int = 200
    tolerance: float = 1e-5
    improvement: float = 1e-6

    def __post_init__(self) -> None:
        check_positive(self, max_steps=self.max_steps, tolerance=self.tolerance, improvement=self.improvement)

    def search(self, objective: Objective) -> tuple[bool, str]:
        n = objective.num_observed

        def function(flat: np.ndarray) -> tuple[float, np.ndarray]:
            here = objective.at(flat)
            if math.isfinite(here.value) and np.isfinite(here.gradient).all():
                return -here.value / n, -here.gradient / n
            if not math.isfinite(objective.best_value) and not objective.too_large:
                raise torch.linalg.LinAlgError("the likelihood cannot be computed at the initial hyperparameters")
            # A large value makes the line search step back.
            best = -objective.best_value / n
            return best + 10 * max(1.0, abs(best)), np.zeros_like(flat)

        options = {
            "maxiter": self.max_steps,
            "gtol": self.tolerance,
            "ftol": self.improvement,
            "maxcor": MEMORY,
        }
        start = objective.parameters.get()
        result = scipy.optimize.minimize(function, start, jac=True, method="L-BFGS-B", options=options)
        if result.success:
            return True, f"converged after {counted(result.nit)}"
        if result.nit >= self.max_steps:
            return False, f"the limit of {self.max_steps} steps was reached; raise max_steps of LBFGS"
        # The line search found nothing better. If the gradient is small, this is the optimum up to rounding.
        small = bool(np.abs(result.jac).max() <= 100 * self.tolerance)
        return small, f"no better point was found after {result.nit} steps"
