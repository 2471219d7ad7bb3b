"""A fitted model together with its report, which grows as draws are computed."""

from collections.abc import Iterable
from typing import Any

from lkgp.concurrency import Lock
from lkgp.errors import complain
from lkgp.persistence.state import FittedState
from lkgp.report import Report


class Fitted:
    """The result of one fit, which several threads may share; another fit makes another one.

    told: numbers and seeds of the draws whose failure to converge was reported already
    """

    def __init__(self, state: FittedState, report: Report, told: Iterable[tuple[int, int]] = ()) -> None:
        self.state, self._report, self._told = state, report, set(told)
        self._lock = Lock()

    def __getstate__(self) -> dict[str, Any]:
        """A consistent copy, also while another thread computes draws."""
        with self._lock:
            return {**vars(self), "_told": set(self._told)}

    @property
    def report(self) -> Report:
        """The report of the fit, including the draws computed so far."""
        draws = list(self.state.posterior.draw_store.kept.values())
        with self._lock:
            grown = self._report.with_draws(draws).with_new_points(draws)
            self._report = grown.with_variance(self.state.posterior)
            return self._report

    def check_draws(self, num: int, seed: int, strict: bool) -> None:
        """Warn once if the solve for draws did not converge; raise an error every time if `strict`."""
        draws = self.state.posterior.draw_store.kept.get((num, seed))
        if draws is None:
            return
        with self._lock:
            self._report = self._report.with_draws([draws])
            told = (num, seed) in self._told
            if not draws.solution.converged:
                self._told.add((num, seed))
        if not draws.solution.converged and (strict or not told):
            complain(f"the solve did not converge: {draws.solution}", strict)
