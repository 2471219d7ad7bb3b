"""Trust-region BFGS that starts from the average information."""

import math
from dataclasses import dataclass

import numpy as np

from lkgp.fitting import trust_region
from lkgp.fitting.objective import Evaluation, Objective
from lkgp.fitting.optimizers.base import INTERRUPTED, Optimizer, Outcome
from lkgp.settings import check_positive

# The improvement, per observation, below which a search with estimated gradients stops by default. It is looser than
# that of an exact search, because the gradients have errors of their own.
STOCHASTIC_IMPROVEMENT = 1e-4
# With exact gradients, gains in nats below this per parameter are not worth a step: each parameter is then within a
# tenth of its standard error of the optimum (0.1^2 / 2).
EXACT_GAIN = 0.005
# If the derivative of the log-likelihood, per observation, with respect to the log noise variance exceeds FAR_TOO_SURE,
# the log noise variance is raised by RAISE before anything else, at most MOST_RAISES times: a factor of 4^8 is more
# than any subset of the data can have hidden.
FAR_TOO_SURE, RAISE, MOST_RAISES = 0.5, math.log(4.0), 8


@dataclass(frozen=True)
class BFGS(Optimizer):
    """A second-order method: the average information, updated by BFGS, in a trust region.

    improvement: stop when the expected improvement of the log-likelihood, per observation, is below this
    gain_per_parameter: with estimated gradients, also stop when the expected improvement is below this many nats per
        parameter; a parameter that is off by its standard error costs half a nat
    sufficient_observations: a search may end on a subset with this many observations; None always uses all of them
    fitted_on: the given hyperparameters are an optimum on parts of the data with this many observations; the search
        then begins there, or keeps them if these are sufficient

    With estimated gradients, the last few steps must have gained no more than these limits, too.
    """

    max_steps: int = 100
    improvement: float = 1e-5
    gain_per_parameter: float = 0.5
    sufficient_observations: int | None = None
    fitted_on: int | None = None

    def __post_init__(self) -> None:
        counts = {"sufficient_observations": self.sufficient_observations, "fitted_on": self.fitted_on}
        check_positive(
            self,
            max_steps=self.max_steps,
            improvement=self.improvement,
            gain_per_parameter=self.gain_per_parameter,
            **{name: count for name, count in counts.items() if count is not None},
        )

    def maximise(self, objective: Objective, from_part: bool = False) -> Outcome:
        exact = objective.method.exact
        per_parameter = EXACT_GAIN if exact else self.gain_per_parameter
        least_gain = max(self.improvement * objective.num_observed, per_parameter * objective.num_free)
        if not exact:
            # A stricter stopping rule than the default needs correspondingly more accurate solves.
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
    """Raise the noise as long as the likelihood strongly demands it; return the objective, if the noise is free.

    The subset of the data on which the starting values were found may have been less variable than the rest. A model
    that is far too confident can be improved by shorter length scales as well as by more noise, and a search over all
    parameters at once may end at an optimum with length scales that are far too short.
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
