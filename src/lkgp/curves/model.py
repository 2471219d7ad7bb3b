"""A model of learning curves: which runs will end well."""

from collections.abc import Mapping, Sequence
from numbers import Real
from typing import Any

import numpy as np

from lkgp.curves.configurations import Configuration, Space, as_configurations
from lkgp.curves.forecast import Forecast, forecast_from
from lkgp.curves.prior import Frame
from lkgp.curves.values import Direction, Transform, ValueScale
from lkgp.errors import InputError, NotFittedError
from lkgp.gp import LKGP

# Of the intervals.
LEVEL = 0.9
# Training of up to so many epochs has all of them in the model, seen or not.
EVERY_EPOCH = 500


# Epochs, ascending, and the values there.
Curve = tuple[np.ndarray, np.ndarray]


class CurveModel:
    """A Gaussian process over the configurations of runs and their epochs.

    direction: "minimize" or "maximize" the value
    transform: of the value: "log", "logit", "none", or "auto" for what suits the last values
    last_epoch: at which runs end; the last that is seen by default
    log: parameters on a logarithmic scale; those that span a wide range are, anyway
    seed, max_memory: as in LKGP

    After `fit`: `gp_` (the LKGP, in units of `frame_`), `report_`.
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
            raise InputError(f"last_epoch must be a whole number of at least 1, not {last_epoch!r}.")
        self.direction, self.transform, self.last_epoch, self.log = direction, transform, last_epoch, log
        self.seed, self.max_memory = seed, max_memory
        self.gp_: LKGP | None = None

    def fit(self, configurations: Any, curves: Any) -> "CurveModel":
        """configurations: one a run: dictionaries, a DataFrame, or an array (runs, parameters)
        curves: an array or DataFrame (runs, epochs), or a list with a sequence of values from epoch 1 on, or a {epoch: value}, a run.
            NaN and infinite values are epochs that failed; they are left out. Labels of pandas that are numbers are epochs, unless
            they only count from 0 on.
        """
        runs, seen = as_configurations(configurations), as_curves(curves)
        if len(runs) != len(seen):
            raise InputError(f"there are {len(runs)} configurations but {len(seen)} curves; give one a run.")
        last = np.array([values[-1] for _, values in seen if len(values)])
        if not len(last):
            raise InputError("no run has a finite value yet; there is nothing to learn from.")
        every = np.concatenate([values for _, values in seen])
        longest = max(int(epochs[-1]) for epochs, _ in seen if len(epochs))
        if self.last_epoch is not None and longest > self.last_epoch:
            raise InputError(f"epoch {longest} was seen, but last_epoch is {self.last_epoch}.")
        scale = ValueScale.of(last, self.direction, self.transform, every)
        frame = Frame(Space.of(runs, self.log), scale, max(self.last_epoch or longest, 1))
        # All epochs, so that later ones can be added quickly; of very long training only those that were seen.
        ahead = np.arange(1.0, frame.last_epoch + 1) if frame.last_epoch <= EVERY_EPOCH else [frame.last_epoch]
        epochs = np.unique(np.concatenate([at for at, _ in seen] + [ahead]))
        gp = LKGP(frame.kernels(), noise=frame.noise(), standardize=False, seed=self.seed, max_memory=self.max_memory)
        self.gp_ = gp.fit(*table(frame, runs, seen, epochs))
        self.configurations_, self.curves_, self.frame_, self.epochs_ = runs, seen, frame, epochs
        self.report_ = self.gp_.report_
        return self

    def add(self, run: int, values: Mapping[int, float], *, refit: bool = False) -> "CurveModel":
        """Take in more epochs of one run: {epoch: value}.

        refit: also learn the hyperparameters again, from where they are
        """
        gp = self._fitted()
        self._check_run(run)
        epochs, seen = as_curve(values, run)
        if len(epochs) and epochs[-1] > self.frame_.last_epoch:
            raise InputError(
                f"epoch {int(epochs[-1])} is beyond the last, {self.frame_.last_epoch}; fit again with a larger last_epoch."
            )
        known = dict(zip(*self.curves_[run], strict=True))
        again = [epoch for epoch in epochs if epoch in known]
        if again:
            raise InputError(
                f"epoch {int(again[0])} of run {run} was seen before, as {known[again[0]]:g}; leave it out."
            )
        curves = [*self.curves_]
        curves[run] = as_curve(known | dict(zip(epochs, seen, strict=True)), run)
        everywhere = np.union1d(self.epochs_, epochs)
        coords, cells = table(self.frame_, self.configurations_, curves, everywhere)
        if len(everywhere) > len(self.epochs_):  # another grid
            gp = gp.conditioned_on(cells, coords)
        self.gp_ = gp.update(cells, refit=refit) if len(epochs) else gp
        self.curves_, self.epochs_, self.report_ = curves, everywhere, self.gp_.report_
        return self

    def forecasts(self, *, threshold: float | None = None, level: float = LEVEL) -> list[Forecast]:
        """How every run will go on.

        threshold: the value to compare last values with; by default the best that another run has reached at the last epoch
        level: the probability of the intervals
        """
        gp = self._fitted()
        if not 0 < level < 1:
            raise InputError(f"level must be a probability between 0 and 1, not {level!r}.")
        epochs = np.arange(1, self.frame_.last_epoch + 1)
        mean, std = gp.predict([None, self.frame_.times(epochs)], observation_noise=True)
        made = []
        for run, seen in enumerate(self.curves_):
            best = threshold if threshold is not None else self._best(run)
            made.append(forecast_from(self.frame_.scale, epochs, mean[run], std[run], seen, best, level, run))
        return made

    def forecast(self, run: int, *, threshold: float | None = None, level: float = LEVEL) -> Forecast:
        """How one run will go on; words as in `forecasts`."""
        self._check_run(run)
        return self.forecasts(threshold=threshold, level=level)[run]

    def _check_run(self, run: int) -> None:
        self._fitted()
        if not 0 <= run < len(self.curves_):
            raise InputError(f"there is no run {run}; there are {len(self.curves_)}, from 0 on.")

    def _best(self, run: int) -> float | None:
        """The best last value of the other runs that are complete."""
        done = [
            v[-1]
            for other, (e, v) in enumerate(self.curves_)
            if other != run and len(e) and e[-1] == self.frame_.last_epoch
        ]
        return (min(done) if self.direction == "minimize" else max(done)) if done else None

    def _fitted(self) -> LKGP:
        if self.gp_ is None:
            raise NotFittedError("this model has seen no curves yet; call fit first.")
        return self.gp_


def table(
    frame: Frame, runs: list[Configuration], curves: Sequence[Curve], epochs: np.ndarray
) -> tuple[list[np.ndarray], np.ndarray]:
    """Points (runs, columns + 1), times (epochs,), and values (runs, epochs) in units of the model, NaN where nothing was seen."""
    values = np.full((len(curves), len(epochs)), np.nan)
    for row, (at, seen) in zip(values, curves, strict=True):
        row[np.searchsorted(epochs, at)] = frame.scale.apply(seen)
    return [frame.points(runs, np.arange(len(curves))), frame.times(epochs)], values


def as_curves(given: Any) -> list[Curve]:
    """Epochs and finite values of every run, each a pair of (epochs seen,)."""
    if hasattr(given, "columns") and hasattr(given, "to_numpy"):
        labels = list(given.columns)
        given = (
            [dict(zip(labels, row, strict=True)) for row in given.to_numpy()]
            if are_epochs(labels)
            else given.to_numpy()
        )
    if isinstance(given, np.ndarray) and given.ndim != 2:
        raise InputError(f"an array of curves must be (runs, epochs), not of shape {given.shape}.")
    return [as_curve(curve, run) for run, curve in enumerate(given)]


def as_curve(curve: Any, run: int) -> Curve:
    """Epochs, ascending, and the finite values there; a sequence begins with epoch 1."""
    series = hasattr(curve, "items") and hasattr(curve, "index")
    named = isinstance(curve, Mapping) or (series and are_epochs(list(curve.index)))
    pairs = sorted(curve.items()) if named else list(enumerate(curve, start=1))
    try:
        epochs = np.array([epoch for epoch, _ in pairs], dtype=float)
        values = np.array([value for _, value in pairs], dtype=float)
    except (TypeError, ValueError):
        raise InputError(f"the curve of run {run} has something in it that is not a number.") from None
    if len(epochs) and (epochs[0] < 0 or (epochs != np.round(epochs)).any()):
        raise InputError(f"the epochs of run {run} must be whole numbers from 0 on.")
    finite = np.isfinite(values)
    return epochs[finite], values[finite]


def are_epochs(labels: list[Any]) -> bool:
    """Whether the labels of pandas are epochs: numbers that do not only count from 0 on."""
    return all(isinstance(label, Real) for label in labels) and labels != list(range(len(labels)))
