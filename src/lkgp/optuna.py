"""A pruner for Optuna that predicts how a trial will end."""

import contextlib
import logging
import math
import warnings
from datetime import datetime
from typing import Any, Literal

from optuna.distributions import BaseDistribution, CategoricalDistribution
from optuna.pruners import BasePruner
from optuna.study import Study, StudyDirection
from optuna.trial import FrozenTrial, TrialState

from lkgp.curves import EarlyStopping, FinishedRun, Parameter, Space, Verdict
from lkgp.curves.configurations import as_hashable
from lkgp.curves.stopping import STARTUP_RUNS, THRESHOLD
from lkgp.curves.values import Direction, Transform
from lkgp.errors import InputError

log = logging.getLogger("lkgp")

# The system attribute of a trial that holds its last verdict as text.
REASON = "lkgp:reason"


class LKGPPruner(BasePruner):
    """Prunes trials that are unlikely to end better than the best.

    What counts is the last value that a complete trial has reported, so trials should report their objective. A trial
    is compared with the finished ones, not with those that are still running. A verdict depends only on what was
    reported.

    max_resource: number of steps that a complete trial reports; "auto" takes it from the complete trials
    threshold: a trial is pruned when its probability of ending better than the best is below this
    n_startup_trials: complete trials before any is pruned
    n_warmup_steps: steps of every trial before it is judged; "auto" takes a twentieth of all
    interval_steps: steps between two verdicts; a trial that reports NaN or infinity is nevertheless pruned at once
    transform: of the values: "log", "logit", "none", or "auto" to choose by the last values
    """

    def __init__(
        self,
        *,
        max_resource: int | Literal["auto"] = "auto",
        threshold: float = THRESHOLD,
        n_startup_trials: int = STARTUP_RUNS,
        n_warmup_steps: int | Literal["auto"] = "auto",
        interval_steps: int = 1,
        transform: Transform = "auto",
    ) -> None:
        if max_resource != "auto" and (
            isinstance(max_resource, bool) or not isinstance(max_resource, int) or max_resource < 1
        ):
            raise InputError(f"max_resource must be 'auto' or a positive whole number, not {max_resource!r}.")
        if n_startup_trials < 1:
            raise InputError(f"n_startup_trials must be at least 1, not {n_startup_trials}.")
        if n_warmup_steps != "auto" and n_warmup_steps < 0:
            raise InputError(f"n_warmup_steps must be 'auto' or a non-negative number, not {n_warmup_steps}.")
        if interval_steps < 1:
            raise InputError(f"interval_steps must be at least 1, not {interval_steps}.")
        self.max_resource, self.interval_steps = max_resource, interval_steps
        self.threshold, self.transform = threshold, transform
        self.n_startup_trials, self.n_warmup_steps = n_startup_trials, n_warmup_steps
        self._new_rule(1, "minimize")  # raises if another setting is invalid
        self._rules: dict[tuple[int, Direction], EarlyStopping] = {}
        self._finished: dict[Any, FinishedRun] = {}  # finished trials do not change any more

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_rules": {}, "_finished": {}}

    def prune(self, study: Study, trial: FrozenTrial) -> bool:
        """Whether to prune a trial; if the model fails, there is a warning and the trial continues."""
        try:
            verdict = self.judge(study, trial)
            if verdict is None:
                return False
            log.info("trial %d %s: %s", trial.number, "is pruned" if verdict.stop else "continues", verdict.why)
            # Optuna has no public function for this; its own pruners use the storage, too.
            study._storage.set_trial_system_attr(trial._trial_id, REASON, verdict.why)
            return verdict.stop
        except Exception as error:  # training must go on
            message = f"trial {trial.number} continues because judging it failed: {type(error).__name__}: {error}"
            log.warning(message, exc_info=True)
            with contextlib.suppress(Warning):  # if warnings are errors
                warnings.warn(message, stacklevel=2)
            return False

    def judge(self, study: Study, trial: FrozenTrial) -> Verdict | None:
        """The verdict on a trial, with its forecast; None between two intervals and before the first report."""
        if not trial.intermediate_values:
            return None
        done = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE, TrialState.PRUNED))
        # In the order in which they finished, which is the same for every worker: earlier lists are then beginnings of
        # later ones.
        done = sorted(
            (t for t in done if t.number != trial.number), key=lambda t: (t.datetime_complete or datetime.max, t.number)
        )
        ends = [t.last_step + 1 for t in done if t.state == TrialState.COMPLETE and t.last_step is not None]
        last_epoch = max(ends, default=1) if self.max_resource == "auto" else max([self.max_resource, *ends])
        direction: Direction = "minimize" if study.direction == StudyDirection.MINIMIZE else "maximize"
        rule = self._rules.get((last_epoch, direction))
        if rule is None:  # trials in parallel share the first one that is made, and what it learns
            rule = self._rules.setdefault((last_epoch, direction), self._new_rule(last_epoch, direction))
        if not self._is_due(trial, rule.n_warmup_epochs):
            return None
        return rule.judge(trial.number, trial.params, curve_of(trial), [self._finished_run(study, t) for t in done])

    def _new_rule(self, last_epoch: int, direction: Direction) -> EarlyStopping:
        return EarlyStopping(
            last_epoch,
            direction=direction,
            transform=self.transform,
            threshold=self.threshold,
            n_startup_runs=self.n_startup_trials,
            n_warmup_epochs=None if self.n_warmup_steps == "auto" else self.n_warmup_steps,
        )

    def _finished_run(self, study: Study, trial: FrozenTrial) -> FinishedRun:
        key = (study.study_name, trial.number, trial.datetime_start)
        if key not in self._finished:
            self._finished[key] = finished_run(trial)
        return self._finished[key]

    def _is_due(self, trial: FrozenTrial, warmup: int) -> bool:
        """Whether the last report is the first one of its interval, or is not finite."""
        steps = sorted(trial.intermediate_values)
        if not math.isfinite(trial.intermediate_values[steps[-1]]):
            return True
        if steps[-1] < warmup:
            return False
        if len(steps) == 1 or steps[-2] < warmup:
            return True
        before, now = ((step - warmup) // self.interval_steps for step in steps[-2:])
        return now > before


def curve_of(trial: FrozenTrial) -> dict[int, float]:
    """What a trial has reported, {epoch: value}, with epochs from 1; Optuna's steps begin with 0."""
    return {step + 1: value for step, value in trial.intermediate_values.items()}


def finished_run(trial: FrozenTrial) -> FinishedRun:
    """A finished trial as a run."""
    space = Space(tuple(parameter_of(name, distribution) for name, distribution in sorted(trial.distributions.items())))
    return FinishedRun(trial.number, trial.params, curve_of(trial), trial.state == TrialState.COMPLETE, space)


def parameter_of(name: str, distribution: BaseDistribution) -> Parameter:
    """A parameter as Optuna describes it."""
    if isinstance(distribution, CategoricalDistribution):
        return Parameter(name, choices=tuple(as_hashable(choice) for choice in distribution.choices))
    low, high = getattr(distribution, "low", 0.0), getattr(distribution, "high", 1.0)
    return Parameter(name, float(low), float(high), bool(getattr(distribution, "log", False)))
