"""When to stop a training run: when it is unlikely to end better than the best.

Hyperparameters are learned now and then, from the runs that have finished. Given them and the finished runs, the curve of a new run is
known before it begins, as a mean m and a covariance C over its epochs; each value that it reports then changes that in closed form,

    m' = m + C_t S^-1 (z_t - m_t),      C' = C - C_t S^-1 C_t^T,      S = C_tt + s^2 I,

so that a verdict takes a millisecond; the first one after another run has finished compares with all of them again, and takes some more.
It depends on what was reported only, not on when it is asked for or by whom.

How much runs differ is itself learned from few of them, and some are wilder than others. So a curve is Student's t, not normal, with as
many degrees of freedom n as complete runs were learned from. Given t values of its own, it is Student's t with n + t degrees, and

    C'' = (n + (z_t - m_t)^T S^-1 (z_t - m_t)) / (n + t) C':

a run that surprises has wider error bars from then on, and one that goes as expected has narrower ones.
"""

import hashlib
import math
import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch

from lkgp.curves.configurations import Configuration, Space
from lkgp.curves.forecast import Forecast, forecast_from
from lkgp.curves.model import LEVEL, as_curve
from lkgp.curves.prior import Frame
from lkgp.curves.values import Direction, Transform, ValueScale
from lkgp.data.readers import from_array
from lkgp.errors import InputError
from lkgp.fitting.search import BFGS, INTERRUPTED, fit
from lkgp.inference.methods import plan
from lkgp.model.model import LatentKroneckerGP
from lkgp.posterior.posterior import condition

# The least probability of ending best that a run may have. Small, because it is asked after every epoch of every run.
THRESHOLD = 1e-3
# Complete runs before any is stopped.
STARTUP = 10
# The share of its epochs that every run has before it is judged: until then little more is known of it than its configuration.
WARMUP = 0.05
# Longer training is read in so many strides.
MOST_EPOCHS = 100
# Of finished runs, the epochs that count: so many, evenly spaced in their logarithm, and the last.
KNOTS = 10
# Hyperparameters are learned again when the finished runs have grown by this factor; from so many of them, in so many steps.
GROWTH, LEARNED_RUNS, LEARNING_STEPS = 1.3, 36, 10
# The finished runs that a new one is compared with, at the most: those with the most similar configurations.
COMPARED_RUNS = 200
# What is kept for later questions: learned hyperparameters, and runs in progress.
KEPT_MODELS, KEPT_RUNS = 4, 64


@dataclass(frozen=True, eq=False)
class FinishedRun:
    """A run that is done.

    number: its own among all runs
    curve: {epoch: value}
    complete: whether it was trained to the end
    space: what its configuration is made of, where that is known
    """

    number: int
    configuration: Configuration
    curve: Mapping[int, float]
    complete: bool
    space: Space | None = None

    @cached_property
    def seen(self) -> tuple[np.ndarray, np.ndarray]:
        """Epochs, ascending, and the finite values there."""
        return as_curve(self.curve, self.number)

    @cached_property
    def digest(self) -> bytes:
        """Of everything in it: runs with the same number, in other studies, are other runs."""
        epochs, values = self.seen
        words = repr((self.number, self.complete, sorted(self.configuration.items(), key=repr), self.space))
        return hashlib.blake2b(words.encode() + epochs.tobytes() + values.tobytes(), digest_size=16).digest()


@dataclass(frozen=True, eq=False)
class Verdict:
    """Whether to stop a run, and why; forecast: None where there is nothing to tell it from yet."""

    stop: bool
    why: str
    forecast: Forecast | None = None


@dataclass(frozen=True, eq=False)
class Expected:
    """The curve of a run as the finished runs have it: mean (epochs,) and covariance (epochs, epochs) in units of the model.

    degrees: how many complete runs the model was learned from
    """

    frame: Frame
    degrees: int
    noise: float
    mean: np.ndarray
    covariance: np.ndarray

    def given(self, epochs: np.ndarray, z: np.ndarray) -> tuple[np.ndarray, np.ndarray, int]:
        """Mean and deviation of what is to come, each (epochs,), and degrees of freedom, given z (seen,) at `epochs` (seen,) from 1 on."""
        at = epochs.astype(int) - 1
        surprise = z - self.mean[at]
        # S^-1 C_t^T and S^-1 (z_t - m_t)
        solved = np.linalg.solve(
            self.covariance[np.ix_(at, at)] + self.noise * np.eye(len(at)),
            np.column_stack([self.covariance[at], surprise]),
        )
        gain, weights = solved[:, :-1].T, solved[:, -1]
        mean = self.mean + self.covariance[:, at] @ weights
        variance = (
            np.maximum(np.diag(self.covariance) - np.einsum("et,te->e", gain, self.covariance[at]), 0.0) + self.noise
        )
        degrees = self.degrees + len(at)
        return mean, np.sqrt((self.degrees + surprise @ weights) / degrees * variance), degrees


class EarlyStopping:
    """Stops runs that are unlikely to end better than the best.

    last_epoch: at which runs end
    direction: "minimize" or "maximize" the value; transform: as in CurveModel
    threshold: a run is stopped when the probability of ending better than the best is below this
    n_startup_runs: complete runs before any is stopped
    n_warmup_epochs: epochs of every run before it is judged, a twentieth of all by default; a value that is not a number stops it at once
    """

    def __init__(
        self,
        last_epoch: int,
        *,
        direction: Direction = "minimize",
        transform: Transform = "auto",
        threshold: float = THRESHOLD,
        n_startup_runs: int = STARTUP,
        n_warmup_epochs: int | None = None,
    ) -> None:
        if isinstance(last_epoch, bool) or not isinstance(last_epoch, (int, np.integer)) or last_epoch < 1:
            raise InputError(f"last_epoch must be a whole number of at least 1, not {last_epoch!r}.")
        if not 0 < threshold < 1:
            raise InputError(f"threshold must be a probability between 0 and 1, not {threshold!r}.")
        if n_startup_runs < 1:
            raise InputError(f"n_startup_runs must be at least 1, not {n_startup_runs!r}.")
        ValueScale.of(np.full(1, 0.5), direction, transform)  # refuses what is neither a direction nor a transform
        self.last_epoch, self.direction, self.transform, self.threshold = (
            int(last_epoch),
            direction,
            transform,
            threshold,
        )
        self.n_startup_runs = n_startup_runs
        self.n_warmup_epochs = math.ceil(WARMUP * self.last_epoch) if n_warmup_epochs is None else n_warmup_epochs
        self._learned: OrderedDict[Any, tuple[Frame, LatentKroneckerGP, int]] = OrderedDict()
        self._expected: OrderedDict[Any, Expected] = OrderedDict()
        self._lock = threading.Lock()
        torch.broadcast_shapes(
            (1,), (1,)
        )  # loads hundreds of modules the first time: better now than in the first verdict

    def __getstate__(self) -> dict[str, Any]:
        """Settings only: what was learned is learned again."""
        return {name: value for name, value in vars(self).items() if not name.startswith("_")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        words = dict(state)
        self.__init__(words.pop("last_epoch"), **words)  # type: ignore[misc]

    def should_stop(
        self, number: int, configuration: Configuration, curve: Mapping[int, float], finished: Sequence[FinishedRun]
    ) -> bool:
        """Words as in `judge`."""
        return self.judge(number, configuration, curve, finished).stop

    def judge(
        self, number: int, configuration: Configuration, curve: Mapping[int, float], finished: Sequence[FinishedRun]
    ) -> Verdict:
        """Whether to stop a run.

        number: of the run; curve: what it has reported, {epoch: value}
        finished: the runs that are done, in the order in which they were
        """
        if not curve:
            return Verdict(False, "it has reported nothing yet.")
        newest = max(curve)
        if not np.isfinite(curve[newest]):
            return Verdict(True, f"its value at epoch {newest} is {curve[newest]}.")
        finished = [run for run in finished if len(run.seen[0])]
        complete = [run for run in finished if run.complete]
        if len(complete) < self.n_startup_runs:
            return Verdict(
                False, f"{len(complete)} of {self.n_startup_runs} runs are complete that it could be compared with."
            )
        if newest <= self.n_warmup_epochs:
            return Verdict(False, f"it may train for {self.n_warmup_epochs} epochs first.")
        if newest >= self.last_epoch:
            return Verdict(False, "it is complete.")
        ends = [run.seen[1][-1] for run in complete]
        if min(ends) == max(ends):
            return Verdict(False, "all complete runs have ended alike; there is no telling what a good one is.")
        best = float(min(ends) if self.direction == "minimize" else max(ends))
        # Whatever the training has set, the model is learned with gradients, on the processor.
        with self._lock, torch.inference_mode(False), torch.enable_grad(), torch.device("cpu"):
            expected = self._expect(number, configuration, finished)
        seen = as_curve(curve, number)
        epochs, values = self._strides(*seen)
        z = expected.frame.scale.apply(values)
        known = np.isfinite(z)
        mean, std, degrees = expected.given(epochs[known], z[known])
        ahead = self._in_epochs(np.arange(1, len(mean) + 1))
        forecast = forecast_from(expected.frame.scale, ahead, mean, std, seen, best, LEVEL, number, degrees)
        return Verdict(bool(forecast.probability < self.threshold), forecast.why, forecast)

    # Epochs

    @property
    def stride(self) -> int:
        return math.ceil(self.last_epoch / MOST_EPOCHS)

    def _strides(self, epochs: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """A curve in strides, of which each has its last value: their numbers from 1 on, and the values."""
        values = values[epochs <= self.last_epoch]
        strides = np.maximum(np.ceil(epochs[epochs <= self.last_epoch] / self.stride), 1)
        last = np.append(strides[1:] != strides[:-1], True) if len(strides) else np.zeros(0, dtype=bool)
        return strides[last], values[last]

    def _in_epochs(self, strides: np.ndarray) -> np.ndarray:
        return np.minimum(strides * self.stride, self.last_epoch)

    # The model

    def _expect(self, number: int, configuration: Configuration, finished: Sequence[FinishedRun]) -> Expected:
        """The curve of a run as the finished runs have it."""
        key = (number, repr(configuration), *(run.digest for run in finished))
        if key not in self._expected:
            frame, learned, degrees = self._learn(finished)
            chosen = nearest(frame, learned, configuration, finished)
            data = from_array(*self._table(frame, chosen))
            posterior = condition(learned, data, plan(learned, data, "auto"))
            strides = np.arange(1, math.ceil(self.last_epoch / self.stride) + 1)
            own = frame.points([configuration], np.array([-1.0]))
            asked = [torch.from_numpy(own), torch.from_numpy(frame.times(self._in_epochs(strides)))[:, None]]
            mean, covariance = posterior.mean(asked)[0].numpy(), posterior.covariance(asked).numpy()
            noise = float(learned.noise_variance().detach())
            keep(self._expected, key, Expected(frame, degrees, noise, mean, covariance), KEPT_RUNS)
        return self._expected[key]

    def _learn(self, finished: Sequence[FinishedRun]) -> tuple[Frame, LatentKroneckerGP, int]:
        """Hyperparameters, from the first finished runs, as many as there were when it was last time to learn; how many were complete."""
        first = finished[: scheduled(len(finished), self.n_startup_runs)]
        key = tuple(run.digest for run in first)
        if key not in self._learned:
            described = [run.space for run in first if run.space is not None]
            space = Space.joined(described) if described else Space.of([run.configuration for run in first])
            curves = [self._strides(*run.seen) for run in first]
            last = np.array([values[-1] for _, values in curves if len(values)])
            every = np.concatenate([values for _, values in curves])
            frame = Frame(space, ValueScale.of(last, self.direction, self.transform, every), self.last_epoch)
            # Complete runs know how runs end; of all, the newest.
            chosen = sorted(first, key=lambda run: (run.complete, run.number))[-LEARNED_RUNS:]
            model = LatentKroneckerGP(frame.kernels(), noise=frame.noise()).double()
            found = fit(model, from_array(*self._table(frame, chosen)), optimizer=BFGS(max_steps=LEARNING_STEPS))
            if (
                found.reason == INTERRUPTED
            ):  # Ctrl-C is for the study, and what was half learned would differ from what others learn
                raise KeyboardInterrupt
            keep(self._learned, key, (frame, found.model, sum(run.complete for run in chosen)), KEPT_MODELS)
        return self._learned[key]

    def _table(self, frame: Frame, runs: Sequence[FinishedRun]) -> tuple[list[np.ndarray], np.ndarray]:
        """Points (runs, columns + 1), times (epochs,), and values (runs, epochs) in units of the model, thinned."""
        curves = [self._strides(*run.seen) for run in runs]
        knots = np.unique(np.round(np.geomspace(1, math.ceil(self.last_epoch / self.stride), KNOTS)))
        counted = [np.isin(strides, knots) | (strides == strides[-1:]) for strides, _ in curves]
        strides = np.unique(np.concatenate([s[c] for (s, _), c in zip(curves, counted, strict=True)]))
        values = np.full((len(runs), len(strides)), np.nan)
        for row, (at, seen), c in zip(values, curves, counted, strict=True):
            row[np.searchsorted(strides, at[c])] = frame.scale.apply(seen[c])
        there = np.isfinite(values).any(axis=1)
        points = frame.points([run.configuration for run in runs], np.array([run.number for run in runs], dtype=float))
        return [points[there], frame.times(self._in_epochs(strides))], values[there]


def scheduled(finished: int, first: int) -> int:
    """How many runs had finished when it was last time to learn: `first`, and then whenever they have grown by a factor."""
    size = first
    while (following := max(size + 1, math.floor(size * GROWTH))) <= finished:
        size = following
    return min(size, finished)


def nearest(
    frame: Frame, learned: LatentKroneckerGP, configuration: Configuration, runs: Sequence[FinishedRun]
) -> Sequence[FinishedRun]:
    """The runs whose configurations are most alike, in their order."""
    if len(runs) <= COMPARED_RUNS:
        return runs
    points = frame.points([run.configuration for run in runs], np.arange(len(runs), dtype=float))
    own = frame.points([configuration], np.array([-1.0]))
    alike = learned.cross_factor(0, torch.from_numpy(own), torch.from_numpy(points))[0].detach().numpy()
    return [runs[i] for i in np.sort(np.argsort(-alike, kind="stable")[:COMPARED_RUNS])]


def keep(kept: "OrderedDict[Any, Any]", key: Any, value: Any, most: int) -> None:
    """Keep a value, and forget the oldest if there are too many."""
    kept[key] = value
    while len(kept) > most:
        kept.popitem(last=False)
