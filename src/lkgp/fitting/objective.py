"""What a fit maximises: log likelihood plus log prior, as a function of flat parameters."""

import logging
import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from lkgp.data.readers import Observations
from lkgp.fitting.information import average_information
from lkgp.fitting.parameters import FreeParameters
from lkgp.inference.costs import columns_at_once
from lkgp.inference.direct import TooLargeError
from lkgp.inference.likelihood import Likelihood, Probes, exact_mll, spectral_mll, stochastic_mll
from lkgp.inference.methods import FIT_COLUMNS, Direct, Plan, Spectral
from lkgp.model.model import LatentKroneckerGP

log = logging.getLogger("lkgp")

# What the error of a gradient is worth, over the square of the relative error of its solves: measured on learning curves and weather.
GRADIENT_NATS = 2e5
# No solve of a fit is looser than this.
LOOSEST_RTOL = 0.1

Progress = Callable[[int, float], None]


@dataclass(frozen=True, eq=False)
class Evaluation:
    """The objective at one place; see `quasi_newton.Point`."""

    value: float
    gradient: np.ndarray
    information: Callable[[], np.ndarray]
    solved: bool = True


class Objective:
    """log likelihood + log prior, its gradient and its curvature; remembers the best place by value.

    history: the objective, by observation, at every evaluation; NaN where only the gradient was estimated
    products: with A, of one column each
    """

    def __init__(
        self,
        model: LatentKroneckerGP,
        data: Observations,
        chosen: Plan,
        seed: int,
        progress: Progress | None,
        max_memory: float | None = None,
    ) -> None:
        self.model, self.data, self.plan, self.progress = model, data, chosen, progress
        # As many as the plan counts with, or more where memory allows.
        self.columns_at_once = max(1 + FIT_COLUMNS, columns_at_once(data.grid.num_cells, max_memory))
        self.parameters = FreeParameters(model)
        self.history: list[float] = []
        self.products = 0
        self.best_value, self.best = -math.inf, self.parameters.get()
        self.warm_start: Tensor | None = None
        self.failed_solve = ""
        self.too_large, self.too_large_at = "", -math.inf
        self.seed = seed
        self.probes: Probes | None = None
        if not isinstance(chosen.method, Direct):
            self.draw_probes(chosen.method.num_probes)

    def draw_probes(self, num: int) -> None:
        """Estimate gradients with `num` random vectors from now on."""
        self.probes = Probes.draw(self.data, num, self.seed)
        self.warm_start = None

    @property
    def num_observed(self) -> int:
        return self.data.grid.num_observed

    def at(self, flat: np.ndarray, value: bool = True, expected: float = 0.0) -> Evaluation:
        """The objective at `flat` (P,), which the model then has. Where a gain is expected, solves may be as loose as that allows."""
        self.parameters.set(flat)
        return self.evaluate(value, expected)

    def evaluate(self, value: bool = True, expected: float = 0.0) -> Evaluation:
        """At the parameters as they are. What cannot be computed is NaN."""
        self.parameters.clear_gradient()
        try:
            with torch.enable_grad():
                likelihood = self._likelihood(value, expected)
                objective = likelihood.objective + self.model.log_scatter(self.data) + self.model.log_prior()
                objective.backward()
        except (torch.linalg.LinAlgError, TooLargeError) as error:
            log.info("the likelihood could not be computed after %d evaluations: %s", len(self.history), error)
            if isinstance(error, TooLargeError):
                self.too_large, self.too_large_at = str(error), len(self.history)
            return Evaluation(math.nan, np.full_like(self.best, math.nan), lambda: np.eye(len(self.best)))
        gradient, here = self.parameters.gradient(), self.parameters.get()
        total = float(objective.detach())
        self.history.append(total / self.num_observed)
        if self.progress is not None:
            self.progress(len(self.history), total / self.num_observed)
        if np.isfinite(gradient).all() and total > self.best_value:
            self.best_value, self.best = total, here

        def solve(columns: Tensor) -> Tensor:
            return torch.cat([likelihood.solve(some) for some in columns.split(self.columns_at_once, dim=1)], dim=1)

        def information() -> np.ndarray:
            self.parameters.set(here)
            found = average_information(self.model, self.data, likelihood.weights, solve, self.parameters.tensors)
            scales = self.parameters.scales()
            return found.cpu().numpy() * scales * scales[:, None]

        # Those who set up solvers of their own decide themselves how rough a gradient may be.
        judged = likelihood.solution if isinstance(self.plan.method, Spectral) else None
        solved = judged is None or bool((judged.residuals <= LOOSEST_RTOL).all())
        return Evaluation(total, gradient, information, solved)

    def ended_at_the_limit(self) -> bool:
        """Whether the last evaluations ran into systems that are too large, so that the best point may be no optimum."""
        return len(self.history) - self.too_large_at < 8

    def _likelihood(self, value: bool, expected: float) -> Likelihood:
        method = self.plan.method
        if isinstance(method, Direct):
            return exact_mll(self.model, self.data, method, self.plan.axis)
        assert self.probes is not None
        if isinstance(method, Spectral):
            # A gradient from solves with this error puts the optimum off by about GRADIENT_NATS rtol^2 nats: let that be small
            # beside the gain.
            wanted = math.sqrt(0.1 * expected / GRADIENT_NATS)
            method = replace(method, rtol=min(max(method.rtol, wanted), LOOSEST_RTOL))
            estimate = spectral_mll(self.model, self.data, method, self.probes, expected=self.warm_start, value=value)
        else:
            estimate = stochastic_mll(self.model, self.data, method, self.probes, x0=self.warm_start, value=value)
        assert estimate.solution is not None
        self.warm_start = estimate.next_start
        self.failed_solve = "" if estimate.solution.converged else str(estimate.solution)
        self.products += estimate.solution.products
        return estimate
