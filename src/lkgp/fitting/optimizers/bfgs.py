"""BFGS in a trust region, begun with the average information."""

import math
from dataclasses import dataclass

import numpy as np

from lkgp.fitting import trust_region
from lkgp.fitting.objective import Evaluation, Objective
from lkgp.fitting.optimizers.base import INTERRUPTED, Optimizer, Outcome
from lkgp.settings import check_positive

# The improvement, per observation, below which a search with estimated gradients stops by default.
STOCHASTIC_IMPROVEMENT = 1e-4
# Where the gradient is exact, gains below this for each parameter are not worth a step: each is then within a tenth of
# its standard error of the optimum (a tenth squared over two).
EXACT_GAIN = 0.005
# How much the log-likelihood may gain, per observation, with the logarithm of the noise variance, before that is raised
# by so much ahead of all else, and how often: 4^8 is more than any part of the data can have hidden.
FAR_TOO_SURE, RAISE, MOST_RAISES = 0.5, math.log(4.0), 8


@dataclass(frozen=True)
class BFGS(Optimizer):
    """Second order: the average information at first, corrected by how the gradient changes, in a region where it can
    be trusted.

    improvement: stops when a step is expected to improve the log-likelihood, per observation, by less
    gain_per_parameter: and, where the gradient is an estimate, by less than so many nats for each parameter; one that
        is wrong by its own standard error costs half a nat
    sufficient_observations: observations on which a search may end, where there are many more; None goes on to all of
        them
    """

    max_steps: int = 100
    improvement: float = 1e-5
    gain_per_parameter: float = 0.5
    sufficient_observations: int | None = None

    def __post_init__(self) -> None:
        limit = self.sufficient_observations
        check_positive(
            self,
            max_steps=self.max_steps,
            improvement=self.improvement,
            gain_per_parameter=self.gain_per_parameter,
            **({} if limit is None else {"sufficient_observations": limit}),
        )

    def maximise(self, objective: Objective, from_part: bool = False) -> Outcome:
        exact = objective.method.exact
        per_parameter = EXACT_GAIN if exact else self.gain_per_parameter
        least_gain = max(self.improvement * objective.num_observed, per_parameter * objective.num_free)
        if not exact:
            # Whoever asks for more than by default gets solves that are as much better.
            strictness = min(1.0, math.sqrt(self.improvement / STOCHASTIC_IMPROVEMENT))
            objective = objective.with_method(objective.method.for_search(objective.num_free, least_gain, strictness))
        accepted = [objective.parameters.get()]
        try:
            first = with_sufficient_noise(objective) if from_part else None
            accepted = accepted if first is None else [objective.parameters.get()]

            def evaluate(flat: np.ndarray, gain: float) -> Evaluation:
                return first if first is not None and flat is accepted[0] else objective.at(flat, exact, gain)

            converged, reason = trust_region.maximise(evaluate, accepted, self.max_steps, least_gain)
        except KeyboardInterrupt:
            converged, reason = False, INTERRUPTED
        objective.parameters.set(accepted[-1])
        return Outcome(objective, converged, reason)

    def search(self, objective: Objective) -> tuple[bool, str]:
        outcome = self.maximise(objective)
        return outcome.converged, outcome.reason


def with_sufficient_noise(objective: Objective) -> Evaluation | None:
    """Give the model as much more noise as the likelihood strongly asks for. Returns the objective there, if the noise
    is free.

    The part of the data that a start was found on may have been tamer than the rest. A model that is far too sure of
    itself is improved by shorter lengths as well as by noise, and a search that begins with all of them at once may end
    at an optimum with far too short ones.
    """
    found = (objective.parameters.positions(level) for level in objective.model.noise.levels())
    levels = np.array([position for positions in found for position in positions], dtype=int)
    if not len(levels):
        return None
    flat, exact = objective.parameters.get(), objective.method.exact
    here = objective.at(flat, exact, math.inf)
    for _ in range(MOST_RAISES):
        if not here.gradient[levels].sum() / objective.num_observed > FAR_TOO_SURE:
            break
        flat[levels] += RAISE
        here = objective.at(flat, exact, math.inf)
    return here
