"""Adam, for stochastic gradients."""

from dataclasses import dataclass

import numpy as np
import torch

from lkgp.fitting.objective import Objective
from lkgp.fitting.optimizers.base import Optimizer
from lkgp.fitting.trust_region import counted
from lkgp.settings import check_positive


@dataclass(frozen=True)
class Adam(Optimizer):
    """Adam, a first-order method for stochastic gradients.

    tolerance: stop when no entry of the gradient, per observation, exceeds this
    value_every: number of steps between two estimates of the likelihood, which determine the best parameters
    """

    learning_rate: float = 0.1
    max_steps: int = 100
    tolerance: float = 1e-3
    value_every: int = 10

    def __post_init__(self) -> None:
        check_positive(
            self,
            learning_rate=self.learning_rate,
            max_steps=self.max_steps,
            tolerance=self.tolerance,
            value_every=self.value_every,
        )

    def search(self, objective: Objective) -> tuple[bool, str]:
        adam = torch.optim.Adam(objective.parameters.tensors, lr=self.learning_rate, maximize=True)
        n, good = objective.num_observed, objective.parameters.get()
        for step in range(self.max_steps):
            last = step == self.max_steps - 1
            here = objective.evaluate(value=last or step % self.value_every == 0)
            if not np.isfinite(here.gradient).all():
                # Undo the step that led here, and continue with half the learning rate.
                objective.parameters.set(good)
                for group in adam.param_groups:
                    group["lr"] /= 2
                adam.state.clear()
                continue
            good = objective.parameters.get()
            if np.abs(here.gradient).max() / n <= self.tolerance:
                objective.evaluate()
                return True, f"converged after {counted(step + 1)}"
            if not last:
                adam.step()
        limit = f"the limit of {self.max_steps} steps was reached"
        return False, f"{limit}; raise max_steps of Adam if the likelihood is still rising"
