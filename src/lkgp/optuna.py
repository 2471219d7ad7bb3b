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

from lkgp.curves.configurations import Parameter, Space, hashable
from lkgp.curves.stopping import STARTUP, THRESHOLD, EarlyStopping, FinishedRun, Verdict
from lkgp.curves.values import Direction, Transform
from lkgp.errors import InputError

log = logging.getLogger("lkgp")

# The trial's system attribute with the last verdict in words.
REASON = "lkgp:reason"


class LKGPPruner(BasePruner):
    """Prunes trials that are unlikely to end better than the best.

    The last value that a complete trial has reported is what counts, so a trial should report its objective. What has finished is
    compared; trials that are running elsewhere are not. A verdict depends on what was reported only.

    max_resource: how many steps a complete trial reports; "auto" takes that from the complete trials
    threshold: a trial is pruned when the probability of ending better than the best is below this
    n_startup_trials: complete trials before any is pruned
    n_warmup_steps: steps of every trial before it is judged; "auto" takes a twentieth of all
    interval_steps: steps between two verdicts; a value that is not a number is pruned at once, though
    transform: of the values: "log", "logit", "none", or "auto" for what suits them
    """

    def __init__(
        self,
        *,
        max_resource: int | Literal["auto"] = "auto",
        threshold: float = THRESHOLD,
        n_startup_trials: int = STARTUP,
        n_warmup_steps: int | Literal["auto"] = "auto",
        interval_steps: int = 1,
        transform: Transform = "auto",
    ) -> None:
        if max_resource != "auto" and (
            isinstance(max_resource, bool) or not isinstance(max_resource, int) or max_resource < 1
        ):
            raise InputError(f"max_resource must be 'auto' or a whole number of at least 1, not {max_resource!r}.")
        if n_warmup_steps != "auto" and n_warmup_steps < 0:
            raise InputError(f"n_warmup_steps must be 'auto' or a number that is not negative, not {n_warmup_steps}.")
        if interval_steps < 1:
            raise InputError(f"interval_steps must be at least 1, not {interval_steps}.")
        self.max_resource, self.interval_steps = max_resource, interval_steps
        self.words: dict[str, Any] = {
            "threshold": threshold,
            "n_startup_runs": n_startup_trials,
            "n_warmup_epochs": None if n_warmup_steps == "auto" else n_warmup_steps,
            "transform": transform,
        }
        EarlyStopping(1, **self.words)  # refuses what is out of range
        self._stopping: dict[tuple[int, str], EarlyStopping] = {}
        self._finished: dict[Any, FinishedRun] = {}  # which do not change any more

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_stopping": {}, "_finished": {}}

    def prune(self, study: Study, trial: FrozenTrial) -> bool:
        """Whether to prune a trial; a failure of the model is a warning, and prunes nothing."""
        try:
            verdict = self.judge(study, trial)
            if verdict is None:
                return False
            log.info("trial %d: %s %s", trial.number, "pruned;" if verdict.stop else "goes on;", verdict.why)
            study._storage.set_trial_system_attr(trial._trial_id, REASON, verdict.why)
            return verdict.stop
        except Exception as error:  # training must go on
            message = f"trial {trial.number} is not pruned, because that failed: {type(error).__name__}: {error}"
            log.warning(message, exc_info=True)
            with contextlib.suppress(Warning):  # where warnings are errors
                warnings.warn(message, stacklevel=2)
            return False

    def judge(self, study: Study, trial: FrozenTrial) -> Verdict | None:
        """The verdict on a trial, with its forecast; None between two intervals, and before the first report."""
        if not trial.intermediate_values:
            return None
        done = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE, TrialState.PRUNED))
        # In the order in which they were done, which is the same for everyone: those of before are then a beginning of those of now.
        done = sorted(
            (t for t in done if t.number != trial.number), key=lambda t: (t.datetime_complete or datetime.max, t.number)
        )
        ends = [t.last_step + 1 for t in done if t.state == TrialState.COMPLETE and t.last_step is not None]
        last_epoch = max(ends, default=1) if self.max_resource == "auto" else max([self.max_resource, *ends])
        direction: Direction = "minimize" if study.direction == StudyDirection.MINIMIZE else "maximize"
        stopping = self._stopping.get((last_epoch, direction))
        if stopping is None:
            stopping = EarlyStopping(last_epoch, direction=direction, **self.words)
            self._stopping[last_epoch, direction] = stopping
        if not self._is_due(trial, stopping.n_warmup_epochs):
            return None
        return stopping.judge(trial.number, trial.params, curve_of(trial), [self._finished_run(study, t) for t in done])

    def _finished_run(self, study: Study, trial: FrozenTrial) -> FinishedRun:
        key = (study.study_name, trial.number, trial.datetime_start)
        if key not in self._finished:
            self._finished[key] = finished_run(trial)
        return self._finished[key]

    def _is_due(self, trial: FrozenTrial, warmup: int) -> bool:
        """Whether the last report is the first since the interval before, or not a number."""
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
    """What a trial has reported, from epoch 1 on; Optuna's steps begin with 0."""
    return {step + 1: value for step, value in trial.intermediate_values.items()}


def finished_run(trial: FrozenTrial) -> FinishedRun:
    space = Space(tuple(parameter_of(name, distribution) for name, distribution in sorted(trial.distributions.items())))
    return FinishedRun(trial.number, trial.params, curve_of(trial), trial.state == TrialState.COMPLETE, space)


def parameter_of(name: str, distribution: BaseDistribution) -> Parameter:
    """A parameter as Optuna describes it."""
    if isinstance(distribution, CategoricalDistribution):
        return Parameter(name, choices=tuple(hashable(choice) for choice in distribution.choices))
    low, high, logarithmic = (
        getattr(distribution, word, value) for word, value in (("low", 0.0), ("high", 1.0), ("log", False))
    )
    return Parameter(name, float(low), float(high), bool(logarithmic))
