"""The objective of a fit: log likelihood plus log prior, as a function of one parameter vector."""

import logging
import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from lkgp.data.readers import Observations
from lkgp.errors import TooLargeError
from lkgp.fitting.contrast import Contrast
from lkgp.fitting.information import average_information
from lkgp.fitting.parameters import FreeParameters
from lkgp.inference import Likelihood, Method, Probes, columns_at_once, log_likelihood
from lkgp.inference.costs import FIT_COLUMNS
from lkgp.linalg.kronecker import LatentKronecker, OperatorFactory
from lkgp.model import LatentKroneckerGP

log = logging.getLogger("lkgp")

# A search counts as having ended at the size limit if one of its last evaluations, this many, was too large.
NEAR_THE_LIMIT = 8

Progress = Callable[[int, float], None]


@dataclass(frozen=True, eq=False)
class Evaluation:
    """The objective at one point; see `trust_region.Point`.

    error: standard error of the value
    """

    value: float
    gradient: np.ndarray
    information: Callable[[], np.ndarray]
    solved: bool = True
    error: float = 0.0


class Objective:
    """log likelihood + log prior, its gradient and its curvature; remembers the point with the best value.

    method: the inference method for the likelihood
    history: the objective, per observation, at every evaluation; NaN if only the gradient was estimated
    products: number of products of A with one column
    """

    def __init__(
        self,
        model: LatentKroneckerGP,
        data: Observations,
        method: Method,
        *,
        seed: int = 0,
        progress: Progress | None = None,
        max_memory: float | None = None,
        operators: OperatorFactory = LatentKronecker,
    ) -> None:
        self.model, self.data, self.method, self.progress = model, data, method, progress
        self.seed, self.max_memory, self.operators = seed, max_memory, operators
        # As many as the plan assumes, or more if memory allows.
        self.columns_at_once = max(1 + FIT_COLUMNS, columns_at_once(data.grid.num_cells, max_memory))
        self.parameters, self.contrast = FreeParameters(model), Contrast(data)
        self.history: list[float] = []
        self.products = 0
        self.best_value, self.best = -math.inf, self.parameters.get()
        self.warm_start: Tensor | None = None
        self.failed_solve = ""
        self.too_large, self.too_large_at = "", -math.inf
        self.probes = None if method.exact else Probes.draw(data, method.num_probes, seed, len(model.terms))

    def with_method(self, method: Method) -> "Objective":
        """Return the same objective at the current parameters, computed by another method."""
        return Objective(
            self.model,
            self.data,
            method,
            seed=self.seed,
            progress=self.progress,
            max_memory=self.max_memory,
            operators=self.operators,
        )

    @property
    def num_observed(self) -> int:
        return self.data.grid.num_observed

    @property
    def num_free(self) -> int:
        return len(self.parameters)

    def at(self, flat: np.ndarray, value: bool = True, expected: float = 0.0) -> Evaluation:
        """Set the model's parameters to `flat` (P,) and evaluate the objective there.

        expected: the expected gain; the larger it is, the less accurate the solves need to be
        """
        self.parameters.set(flat)
        return self.evaluate(value, expected)

    def known_value(self, flat: np.ndarray) -> float | None:
        """The value at `flat` (P,), if it is exact and the best one so far."""
        known = self.method.exact and math.isfinite(self.best_value) and np.array_equal(flat, self.best)
        return self.best_value if known else None

    def evaluate(self, value: bool = True, expected: float = 0.0, gradient: bool = True) -> Evaluation:
        """Evaluate at the current parameters; NaN if the objective cannot be computed.

        gradient: whether it is wanted; it is zero otherwise, and the point is not remembered
        """
        self.parameters.clear_gradient()
        try:
            with torch.set_grad_enabled(gradient):
                likelihood = self._likelihood(value, expected)
                objective = (
                    likelihood.objective + self.model.log_scatter(self.data) + self.contrast.log_prior(self.model)
                )
                if gradient:
                    objective.backward()
        except (torch.linalg.LinAlgError, TooLargeError) as error:
            log.info("the likelihood could not be computed after evaluation %d: %s", len(self.history), error)
            if isinstance(error, TooLargeError):
                self.too_large, self.too_large_at = str(error), len(self.history)
            return Evaluation(math.nan, np.full_like(self.best, math.nan), lambda: np.eye(len(self.best)))
        slope, here = self.parameters.gradient(), self.parameters.get()
        total = float(objective.detach())
        self.history.append(total / self.num_observed)
        if self.progress is not None:
            self.progress(len(self.history), total / self.num_observed)
        if gradient and np.isfinite(slope).all() and total > self.best_value:
            self.best_value, self.best = total, here

        def solve(columns: Tensor) -> Tensor:
            return torch.cat([likelihood.solve(some) for some in columns.split(self.columns_at_once, dim=1)], dim=1)

        def information() -> np.ndarray:
            self.parameters.set(here)
            tensors, scales = self.parameters.tensors, self.parameters.scales()
            found = average_information(self.model, self.contrast, likelihood.weights, solve, tensors)
            return found.cpu().numpy() * scales * scales[:, None]

        return Evaluation(total, slope, information, likelihood.trusted, likelihood.error)

    def ended_at_the_limit(self) -> bool:
        """Whether one of the last evaluations was too large, so that the best point may not be an optimum."""
        return len(self.history) - self.too_large_at < NEAR_THE_LIMIT

    def _likelihood(self, value: bool, expected: float) -> Likelihood:
        found = log_likelihood(
            self.model,
            self.data,
            self.method.for_gain(expected),
            self.probes,
            start=self.warm_start,
            value=value,
            operators=self.operators,
        )
        self.warm_start = found.next_start
        self.failed_solve = "" if found.solution.converged else str(found.solution)
        self.products += found.solution.products
        return found
