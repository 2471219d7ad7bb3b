"""When to stop a training run: when it is unlikely to end better than the best.

Hyperparameters are learned from time to time, from the runs that have finished. Given them, each value that a new run
reports changes the prediction of its curve in closed form (`prediction`), so that a verdict takes about a millisecond;
the first one after another run has finished compares the run with all finished ones again and takes longer. A verdict
depends only on what was reported, not on when or by whom it is requested.
"""

import math
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from lkgp.curves.comparison import FinishedRunsModel
from lkgp.curves.configurations import Configuration
from lkgp.curves.finished import FinishedRun
from lkgp.curves.forecast import Forecast, make_forecast
from lkgp.curves.model import LEVEL
from lkgp.curves.readers import as_curve
from lkgp.curves.strides import Strides
from lkgp.curves.values import Direction, Transform, ValueScale
from lkgp.errors import InputError

# A run is stopped when its probability of ending best is below this. It is small because the question is asked after
# every epoch of every run. Measured on replays of LCBench (`lkgp bench pruning`, docs/learning-curves.md): 0.001 spends
# 30 % of the epochs and keeps the best run of 24 of 25 sets; 0.01 spends 24 % and keeps as many there, but one fewer of
# twelve elsewhere; 0.1 loses too many.
THRESHOLD = 1e-3
# Complete runs before any is stopped. Fewer save epochs at the beginning but leave the hyperparameters, and with them
# the probabilities, poorly known.
STARTUP_RUNS = 10
# The fraction of its epochs that every run has before it is judged: until then little more is known of it than its
# configuration. It was chosen together with THRESHOLD on 62 replays of LCBench (CHANGELOG.md).
WARMUP_FRACTION = 0.05


@dataclass(frozen=True, eq=False)
class Verdict:
    """Whether to stop a run, and why; `forecast` is None if there is nothing to base one on yet."""

    stop: bool
    why: str
    forecast: Forecast | None = None


class EarlyStopping:
    """Stops runs that are unlikely to end better than the best.

    last_epoch: the epoch at which runs end
    direction: "minimize" or "maximize" the value
    transform: of the values: "log", "logit", "none", or "auto" to choose by the last values
    threshold: a run is stopped when its probability of ending better than the best is below this
    n_startup_runs: complete runs before any is stopped
    n_warmup_epochs: epochs of every run before it is judged, by default a twentieth of all; a value that is NaN or
        infinite stops it at once
    """

    def __init__(
        self,
        last_epoch: int,
        *,
        direction: Direction = "minimize",
        transform: Transform = "auto",
        threshold: float = THRESHOLD,
        n_startup_runs: int = STARTUP_RUNS,
        n_warmup_epochs: int | None = None,
    ) -> None:
        if isinstance(last_epoch, bool) or not isinstance(last_epoch, (int, np.integer)) or last_epoch < 1:
            raise InputError(f"last_epoch must be a positive whole number, not {last_epoch!r}.")
        if not 0 < threshold < 1:
            raise InputError(f"threshold must be a probability between 0 and 1, not {threshold!r}.")
        if n_startup_runs < 1:
            raise InputError(f"n_startup_runs must be at least 1, not {n_startup_runs!r}.")
        ValueScale.of(np.full(1, 0.5), direction, transform)  # raises if direction or transform is invalid
        self.last_epoch, self.direction, self.transform = int(last_epoch), direction, transform
        self.threshold, self.n_startup_runs = threshold, n_startup_runs
        self.n_warmup_epochs = (
            math.ceil(WARMUP_FRACTION * self.last_epoch) if n_warmup_epochs is None else n_warmup_epochs
        )
        self._start()

    def _start(self) -> None:
        """Without anything learned."""
        self._strides = Strides(self.last_epoch)
        self._model = FinishedRunsModel(self._strides, self.direction, self.transform, self.n_startup_runs)
        self._lock = threading.Lock()
        # The first call imports hundreds of modules: better now than in the first verdict.
        torch.broadcast_shapes((1,), (1,))

    def __getstate__(self) -> dict[str, Any]:
        """The settings only: everything else is learned again."""
        return {name: value for name, value in vars(self).items() if not name.startswith("_")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._start()

    def should_stop(
        self, number: int, configuration: Configuration, curve: Mapping[int, float], finished: Sequence[FinishedRun]
    ) -> bool:
        """Whether to stop a run; arguments as in `judge`."""
        return self.judge(number, configuration, curve, finished).stop

    def judge(
        self, number: int, configuration: Configuration, curve: Mapping[int, float], finished: Sequence[FinishedRun]
    ) -> Verdict:
        """Whether to stop a run, and why.

        number: the number of the run
        curve: what it has reported, {epoch: value}
        finished: the finished runs, in the order in which they finished
        """
        if not curve:
            return Verdict(False, "the run has not reported a value yet.")
        newest = max(curve)
        if not np.isfinite(curve[newest]):
            return Verdict(True, f"its value at epoch {newest} is {curve[newest]}.")
        finished = [run for run in finished if len(run.seen[0])]
        ends = [run.seen[1][-1] for run in finished if run.complete]
        reason = self._reason_to_continue(newest, ends)
        if reason is not None:
            return Verdict(False, reason)
        best = float(min(ends) if self.direction == "minimize" else max(ends))
        # Whatever modes the training has set, the model is learned with gradients, and on the CPU.
        with self._lock, torch.inference_mode(False), torch.enable_grad(), torch.device("cpu"):
            prediction = self._model.predict(number, configuration, finished)
        seen = as_curve(curve, number)
        strides, values = self._strides.read(*seen)
        scale = prediction.encoding.scale
        z = scale.apply(values)
        finite = np.isfinite(z)
        mean, std, degrees = prediction.given(strides[finite], z[finite])
        epochs = self._strides.to_epochs(np.arange(1, len(mean) + 1))
        forecast = make_forecast(scale, epochs, mean, std, seen, best, LEVEL, number, degrees)
        return Verdict(bool(forecast.probability < self.threshold), forecast.why, forecast)

    def _reason_to_continue(self, newest: int, ends: Sequence[float]) -> str | None:
        """Why a run continues whatever its forecast.

        newest: its last epoch so far
        ends: last values of the complete runs
        """
        if len(ends) < self.n_startup_runs:
            return f"runs are judged once {self.n_startup_runs} of them are complete; {len(ends)} are so far."
        if newest <= self.n_warmup_epochs:
            return f"runs are judged after their first {self.n_warmup_epochs} epochs."
        if newest >= self.last_epoch:
            return "the run is complete."
        if min(ends) == max(ends):
            return "all complete runs ended with the same value, so there is no scale to judge it by."
        return None
