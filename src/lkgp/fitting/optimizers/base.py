"""What an optimiser is: a record of settings that moves the parameters of an objective to their optimum."""

from abc import ABC, abstractmethod
from dataclasses import dataclass

from lkgp.fitting.objective import Objective
from lkgp.settings import Settings

INTERRUPTED = "interrupted; the best parameters so far are kept"


@dataclass(frozen=True, eq=False)
class Outcome:
    """How a search ended.

    objective: the one that was evaluated; its model has the best parameters
    reason: why it stopped, in words
    """

    objective: Objective
    converged: bool
    reason: str

    @property
    def interrupted(self) -> bool:
        return self.reason == INTERRUPTED


class Optimizer(Settings, ABC):
    """A way to search; a new one is one new file with a frozen dataclass.

    sufficient_observations: observations on which a search may end, where there are many more; None goes on to all of
        them
    """

    sufficient_observations: int | None = None

    def maximise(self, objective: Objective, from_part: bool = False) -> Outcome:
        """Leave the model at the best parameters; Ctrl-C ends the search with those that were seen so far.

        from_part: whether the parameters are an optimum on a part of the data
        """
        try:
            converged, reason = self.search(objective)
        except KeyboardInterrupt:
            converged, reason = False, INTERRUPTED
        objective.parameters.set(objective.best)
        return Outcome(objective, converged, reason)

    @abstractmethod
    def search(self, objective: Objective) -> tuple[bool, str]:
        """Evaluate the objective at ever better places. Returns whether that converged, and why it stopped."""
