"""A model of learning curves: how runs will end."""

import copy
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from lkgp import LKGP, Report
from lkgp.concurrency import Lock
from lkgp.curves.configurations import Space, as_configurations
from lkgp.curves.encoding import CurveEncoding
from lkgp.curves.forecast import Forecast, make_forecast
from lkgp.curves.prior import curve_kernels, curve_noise
from lkgp.curves.readers import Curve, as_curve, as_curves
from lkgp.curves.values import Direction, Transform, ValueScale
from lkgp.errors import InputError, NotFittedError

# Default probability of the intervals.
LEVEL = 0.9
# If training has at most this many epochs, all of them are in the grid from the start, so that later ones can be added
# without building a new grid. The factor over epochs costs their cube: 500 of them take a small fraction of a second.
EVERY_EPOCH = 500


class CurveModel:
    """A Gaussian process over the configurations of training runs and their epochs; threads may share it.

    direction: "minimize" or "maximize" the value
    transform: of the values: "log", "logit", "none", or "auto" to choose by the last values
    last_epoch: the epoch at which runs end; the last one seen by default
    log: names of parameters on a logarithmic scale, in addition to those that span a wide range
    seed: random seed
    max_memory: bytes that large arrays may take at once

    After `fit`: `gp_` (the LKGP, in the units of `encoding_`), `encoding_` and `report_`.
    """

    def __init__(
        self,
        *,
        direction: Direction = "minimize",
        transform: Transform = "auto",
        last_epoch: int | None = None,
        log: Sequence[str] = (),
        seed: int = 0,
        max_memory: float | None = None,
    ) -> None:
        if last_epoch is not None and (
            isinstance(last_epoch, bool) or not isinstance(last_epoch, (int, np.integer)) or last_epoch < 1
        ):
            raise InputError(f"last_epoch must be a positive whole number, not {last_epoch!r}.")
        self.direction, self.transform, self.last_epoch, self.log = direction, transform, last_epoch, log
        self.seed, self.max_memory = seed, max_memory
        self.gp_: LKGP | None = None
        self._lock = Lock()

    def fit(self, configurations: Any, curves: Any) -> "CurveModel":
        """Learn from some runs; returns self.

        configurations: one dictionary per run, a DataFrame, or an array (runs, parameters)
        curves: an array or DataFrame (runs, epochs), or a list with one curve per run: a sequence of values that begins
            with epoch 1, or {epoch: value}. Epochs whose value is NaN or infinite count as failed and are left out.
            Numeric pandas labels are taken as epochs, unless they are the default ones, which count from 0.
        """
        runs, seen = as_configurations(configurations), as_curves(curves)
        if len(runs) != len(seen):
            raise InputError(f"there are {len(runs)} configurations but {len(seen)} curves; give one of each per run.")
        last = np.array([values[-1] for _, values in seen if len(values)])
        if not len(last):
            raise InputError("no run has a finite value yet; fit needs at least one.")
        every = np.concatenate([values for _, values in seen])
        longest = max(int(epochs[-1]) for epochs, _ in seen if len(epochs))
        if self.last_epoch is not None and longest > self.last_epoch:
            raise InputError(
                f"a curve has a value at epoch {longest}, but last_epoch is {self.last_epoch}; increase last_epoch."
            )
        scale = ValueScale.of(last, self.direction, self.transform, every)
        # Runs without values must not change what is learned from the others.
        begun = [run for run, (_, values) in zip(runs, seen, strict=True) if len(values)]
        encoding = CurveEncoding(Space.of(begun, self.log), scale, max(self.last_epoch or longest, 1))
        last_epoch = encoding.last_epoch
        ahead = np.arange(1.0, last_epoch + 1) if last_epoch <= EVERY_EPOCH else [last_epoch]
        epochs = np.unique(np.concatenate([at for at, _ in seen] + [ahead]))
        gp = LKGP(
            curve_kernels(encoding.space.columns),
            noise=curve_noise(),
            standardize=False,
            seed=self.seed,
            max_memory=self.max_memory,
        )
        gp.fit(*encoding.grid(runs, seen, epochs))
        with self._lock:
            self.gp_, self.encoding_, self.epochs_ = gp, encoding, epochs
            self.configurations_, self.curves_ = runs, seen
        return self

    def add(self, run: int, values: Mapping[int, float], *, refit: bool = False) -> "CurveModel":
        """Add more epochs of one run; returns self.

        values: {epoch: value}
        refit: also learn the hyperparameters again, starting from the present ones
        """
        with self._lock:  # one after the other, so that none is lost
            return self._add(run, values, refit)

    def _add(self, run: int, values: Mapping[int, float], refit: bool) -> "CurveModel":
        gp = self._fitted()
        self._check_run(run)
        epochs, seen = as_curve(values, run)
        if len(epochs) and epochs[-1] > self.encoding_.last_epoch:
            raise InputError(
                f"epoch {int(epochs[-1])} is beyond the last epoch, {self.encoding_.last_epoch}; "
                "fit again with a larger last_epoch."
            )
        known = dict(zip(*self.curves_[run], strict=True))
        again = [epoch for epoch in epochs if epoch in known]
        if again:
            raise InputError(
                f"epoch {int(again[0])} of run {run} already has the value {known[again[0]]:g}; leave it out."
            )
        curves = [*self.curves_]
        curves[run] = as_curve(known | dict(zip(epochs, seen, strict=True)), run)
        grid_epochs = np.union1d(self.epochs_, epochs)
        coords, cells = self.encoding_.grid(self.configurations_, curves, grid_epochs)
        if len(grid_epochs) > len(self.epochs_):  # the new epochs need a larger grid
            gp = gp.conditioned_on(cells, coords)
        self.gp_ = gp.update(cells, refit=refit) if len(epochs) else gp
        self.curves_, self.epochs_ = curves, grid_epochs
        return self

    def forecasts(self, *, threshold: float | None = None, level: float = LEVEL) -> list[Forecast]:
        """How every run will continue.

        threshold: the value to compare last values with; by default the best one that another run reached at the last
            epoch
        level: probability of the intervals
        """
        if not 0 < level < 1:
            raise InputError(f"level must be a probability between 0 and 1, not {level!r}.")
        with self._lock:  # the same state of all three; another thread may add epochs to the model itself
            gp, curves, encoding = copy.copy(self._fitted()), self.curves_, self.encoding_
        epochs = np.arange(1, encoding.last_epoch + 1)
        mean, std = gp.predict([None, encoding.times(epochs)], observation_noise=True)
        made = []
        for run, seen in enumerate(curves):
            best = threshold if threshold is not None else self._best_other(run, curves, encoding.last_epoch)
            made.append(make_forecast(encoding.scale, epochs, mean[run], std[run], seen, best, level, run))
        return made

    @property
    def report_(self) -> Report:
        """What was done; see `LKGP.report_`."""
        return self._fitted().report_

    def forecast(self, run: int, *, threshold: float | None = None, level: float = LEVEL) -> Forecast:
        """How one run will continue; `threshold` and `level` as in `forecasts`."""
        self._check_run(run)
        return self.forecasts(threshold=threshold, level=level)[run]

    def _check_run(self, run: int) -> None:
        self._fitted()
        if not 0 <= run < len(self.curves_):
            raise InputError(f"there is no run {run}; the {len(self.curves_)} runs are numbered from 0.")

    def _best_other(self, run: int, curves: Sequence[Curve], last_epoch: int) -> float | None:
        """The best last value of the other runs that are complete."""
        done = [
            values[-1]
            for other, (epochs, values) in enumerate(curves)
            if other != run and len(epochs) and epochs[-1] == last_epoch
        ]
        return (min(done) if self.direction == "minimize" else max(done)) if done else None

    def _fitted(self) -> LKGP:
        if self.gp_ is None:
            raise NotFittedError("this model has not seen any curves yet; call fit first.")
        return self.gp_
