"""Learning curves in all the forms that callers give them, read as epochs and finite values."""

from collections.abc import Mapping
from numbers import Real
from typing import Any

import numpy as np

from lkgp.errors import InputError

# Epochs in ascending order and the finite values there, both (epochs seen,).
Curve = tuple[np.ndarray, np.ndarray]


def as_curves(given: Any) -> list[Curve]:
    """The curve of every run, from an array or DataFrame (runs, epochs) or a list with one curve per run."""
    if hasattr(given, "columns") and hasattr(given, "to_numpy"):
        labels = list(given.columns)
        given = (
            [dict(zip(labels, row, strict=True)) for row in given.to_numpy()]
            if are_epochs(labels)
            else given.to_numpy()
        )
    if isinstance(given, np.ndarray) and given.ndim != 2:
        raise InputError(f"an array of curves must have shape (runs, epochs), not {given.shape}.")
    return [as_curve(curve, run) for run, curve in enumerate(given)]


def as_curve(curve: Any, run: int) -> Curve:
    """One curve, from {epoch: value}, a pandas Series, or a sequence that begins with epoch 1."""
    series = hasattr(curve, "items") and hasattr(curve, "index")
    labelled = isinstance(curve, Mapping) or (series and are_epochs(list(curve.index)))
    pairs = sorted(curve.items()) if labelled else list(enumerate(curve, start=1))
    try:
        epochs = np.array([epoch for epoch, _ in pairs], dtype=float)
        values = np.array([value for _, value in pairs], dtype=float)
    except (TypeError, ValueError):
        raise InputError(f"the curve of run {run} contains an entry that is not a number; remove it.") from None
    if len(epochs) and (epochs[0] < 0 or (epochs != np.round(epochs)).any()):
        raise InputError(f"the epochs of run {run} must be non-negative whole numbers.")
    finite = np.isfinite(values)
    return epochs[finite], values[finite]


def are_epochs(labels: list[Any]) -> bool:
    """Whether pandas labels are epochs: numbers other than the default labels 0, 1, 2, ..."""
    return all(isinstance(label, Real) for label in labels) and labels != list(range(len(labels)))
