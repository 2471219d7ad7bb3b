"""What finished runs say about a new one: hyperparameters, learned from time to time, and a prediction of its curve."""

import math
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from lkgp import BFGS, LatentKroneckerGP, condition, fit, from_array, plan
from lkgp.curves.configurations import Configuration, Space
from lkgp.curves.encoding import CurveEncoding
from lkgp.curves.finished import FinishedRun
from lkgp.curves.prediction import CurvePrediction
from lkgp.curves.prior import curve_kernels, curve_noise
from lkgp.curves.strides import Strides
from lkgp.curves.values import Direction, Transform, ValueScale
from lkgp.fitting import INTERRUPTED

# Of the curves of finished runs, only this many strides, evenly spaced in their logarithm, and the last one are used.
# It bounds the observations of a comparison to about 11 per run; curves are smooth, so more of them add little.
KNOTS = 10
# Hyperparameters are learned again when the number of finished runs has grown by this factor, from at most so many runs
# and in at most so many steps. That bounds the work of a refit, and not its seconds, which would make verdicts depend
# on the machine: in the replays of `lkgp bench pruning` the longest wait for a verdict was below a second
# (docs/learning-curves.md).
GROWTH, LEARNED_RUNS, LEARNING_STEPS = 1.3, 36, 10
# A new run is compared with at most this many finished runs, those with the most similar configurations. It bounds the
# system to be solved after each finished run to about 200 x 11 observations.
COMPARED_RUNS = 200
# Cached results: learned hyperparameters, and predictions of runs in progress. They bound the memory; runs in parallel
# share them.
KEPT_MODELS, KEPT_PREDICTIONS = 4, 64
# The number of the new run among the finished ones, which have non-negative numbers.
NEW_RUN = -1.0


class FinishedRunsModel:
    """A model of finished runs that predicts the curve of a new one. Its answers depend only on the runs.

    strides: of the training
    direction, transform: as in CurveModel
    n_startup_runs: finished runs that it first learns from
    """

    def __init__(self, strides: Strides, direction: Direction, transform: Transform, n_startup_runs: int) -> None:
        self.strides, self.direction, self.transform = strides, direction, transform
        self.n_startup_runs = n_startup_runs
        self._learned: OrderedDict[Any, tuple[CurveEncoding, LatentKroneckerGP, int]] = OrderedDict()
        self._predictions: OrderedDict[Any, CurvePrediction] = OrderedDict()

    def predict(self, number: int, configuration: Configuration, finished: Sequence[FinishedRun]) -> CurvePrediction:
        """The curve of a run as the finished runs predict it."""
        key = (number, repr(configuration), *(run.digest for run in finished))
        if key not in self._predictions:
            encoding, model, degrees = self.learn(finished)
            data = from_array(*self.grid(encoding, most_similar(encoding, model, configuration, finished)))
            posterior = condition(model, data, plan(model, data, "auto"))
            epochs = self.strides.to_epochs(np.arange(1, self.strides.count + 1))
            point = encoding.points([configuration], np.array([NEW_RUN]))
            coords = [torch.from_numpy(point), torch.from_numpy(encoding.times(epochs))[:, None]]
            mean, covariance = posterior.mean(coords)[0].numpy(), posterior.covariance(coords).numpy()
            noise = float(model.noise_variance().detach())
            prediction = CurvePrediction(encoding, degrees, noise, mean, covariance)
            remember(self._predictions, key, prediction, KEPT_PREDICTIONS)
        return self._predictions[key]

    def learn(self, finished: Sequence[FinishedRun]) -> tuple[CurveEncoding, LatentKroneckerGP, int]:
        """Encoding, hyperparameters, and how many complete runs they were learned from.

        They are those of the first finished runs, as many as there were when it was last time to learn.
        """
        first = finished[: learning_size(len(finished), self.n_startup_runs)]
        key = tuple(run.digest for run in first)
        if key not in self._learned:
            encoding = self._encoding(first)
            # Complete runs show how runs end; among equals, the newest are taken.
            chosen = sorted(first, key=lambda run: (run.complete, run.number))[-LEARNED_RUNS:]
            model = LatentKroneckerGP(curve_kernels(encoding.space.columns), noise=curve_noise()).double()
            data = from_array(*self.grid(encoding, chosen))
            # The hyperpriors say where to begin, and a verdict is waited for.
            found = fit(model, data, optimizer=BFGS(max_steps=LEARNING_STEPS), compare_starts=False)
            if found.reason == INTERRUPTED:
                # Ctrl-C is meant for the caller's study, and half-learned hyperparameters would differ from those that
                # other workers learn.
                raise KeyboardInterrupt
            remember(self._learned, key, (encoding, found.model, sum(run.complete for run in chosen)), KEPT_MODELS)
        return self._learned[key]

    def _encoding(self, runs: Sequence[FinishedRun]) -> CurveEncoding:
        described = [run.space for run in runs if run.space is not None]
        space = Space.joined(described) if described else Space.of([run.configuration for run in runs])
        curves = [self.strides.read(*run.seen) for run in runs]
        last = np.array([values[-1] for _, values in curves if len(values)])
        every = np.concatenate([values for _, values in curves])
        scale = ValueScale.of(last, self.direction, self.transform, every)
        return CurveEncoding(space, scale, self.strides.last_epoch)

    def grid(self, encoding: CurveEncoding, runs: Sequence[FinishedRun]) -> tuple[list[np.ndarray], np.ndarray]:
        """Thinned curves as a grid: points (runs, columns + 1), times (strides,) and encoded values (runs, strides)."""
        curves = [self.strides.read(*run.seen) for run in runs]
        knots = np.unique(np.round(np.geomspace(1, self.strides.count, KNOTS)))
        used = [np.isin(strides, knots) | (strides == strides[-1:]) for strides, _ in curves]
        strides = np.unique(np.concatenate([s[c] for (s, _), c in zip(curves, used, strict=True)]))
        values = np.full((len(runs), len(strides)), np.nan)
        for row, (at, seen), c in zip(values, curves, used, strict=True):
            row[np.searchsorted(strides, at[c])] = encoding.scale.apply(seen[c])
        observed = np.isfinite(values).any(axis=1)
        numbers = np.array([run.number for run in runs], dtype=float)
        points = encoding.points([run.configuration for run in runs], numbers)
        return [points[observed], encoding.times(self.strides.to_epochs(strides))], values[observed]


def learning_size(finished: int, first: int) -> int:
    """How many runs had finished when it was last time to learn: `first`, then after each growth by `GROWTH`."""
    size = first
    while (following := max(size + 1, math.floor(size * GROWTH))) <= finished:
        size = following
    return min(size, finished)


def most_similar(
    encoding: CurveEncoding, model: LatentKroneckerGP, configuration: Configuration, runs: Sequence[FinishedRun]
) -> Sequence[FinishedRun]:
    """The runs whose configurations have the largest covariance with this one, in their order."""
    if len(runs) <= COMPARED_RUNS:
        return runs
    points = encoding.points([run.configuration for run in runs], np.arange(len(runs), dtype=float))
    own = encoding.points([configuration], np.array([NEW_RUN]))
    similarity = model.terms[0].cross_factor(0, torch.from_numpy(own), torch.from_numpy(points))[0].detach().numpy()
    return [runs[i] for i in np.sort(np.argsort(-similarity, kind="stable")[:COMPARED_RUNS])]


def remember(cache: "OrderedDict[Any, Any]", key: Any, value: Any, limit: int) -> None:
    """Add a value to a cache, and drop the oldest ones beyond `limit`."""
    cache[key] = value
    while len(cache) > limit:
        cache.popitem(last=False)
