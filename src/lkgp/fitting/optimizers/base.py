"""The interface of an optimiser: a settings record that moves the parameters of an objective to their optimum."""

from abc import ABC, abstractmethod
from dataclasses import dataclass

from lkgp.fitting.objective import Objective
from lkgp.settings import Settings

INTERRUPTED = "interrupted; the best parameters so far are kept"


@dataclass(frozen=True, eq=False)
class Outcome:
    """How a search ended.

    objective: the objective that was evaluated; its model has the best parameters
    reason: why the search stopped
    """

    objective: Objective
    converged: bool
    reason: str

    @property
    def interrupted(self) -> bool:
        return self.reason == INTERRUPTED


class Optimizer(Settings, ABC):
    """A search method; to add one, write a frozen dataclass in a new file.

    sufficient_observations: a search may end on a subset with this many observations; None always uses all of them
    fitted_on: the given hyperparameters are an optimum on parts of the data with this many observations; the search
        then begins there, or keeps them if these are sufficient
    """

    sufficient_observations: int | None = None
    fitted_on: int | None = None

    def maximise(self, objective: Objective, from_part: bool = False) -> Outcome:
        """Move the model to the best parameters; Ctrl-C ends the search with the best ones so far.

        from_part: whether the initial parameters are an optimum on a subset of the data
        """
        try:
            converged, reason = self.search(objective)
        except KeyboardInterrupt:
            converged, reason = False, INTERRUPTED
        objective.parameters.set(objective.best)
        return Outcome(objective, converged, reason)

    @abstractmethod
    def search(self, objective: Objective) -> tuple[bool, str]:
        """Evaluate the objective at better and better points; return whether it converged, and why it stopped."""
