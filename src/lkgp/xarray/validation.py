"""Can the error bars be trusted? Withhold cells in the pattern of the gaps, predict them, compare with baselines."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from scipy.special import ndtri

from lkgp import metrics
from lkgp.errors import InputError
from lkgp.xarray.baselines import BASELINES, BASELINES_WITHOUT_TIME
from lkgp.xarray.fitted_field import FittedField
from lkgp.xarray.gaps import withhold
from lkgp.xarray.layout import Layout
from lkgp.xarray.time_series import from_series, time_axis, time_order, to_series

# The probabilities of the intervals in the table of scores, and of those in the calibration plot.
LEVELS = (0.5, 0.8, 0.95)
CALIBRATION_LEVELS = tuple(np.round(np.arange(0.05, 1.0, 0.05), 2).tolist())
# A larger field is validated in a window of time with about this many cells, and at least this many times. More cells
# give more precise scores and take longer; fewer times would leave little room for long gaps.
MAX_CELLS, MIN_TIMES = 200_000, 48


@dataclass(frozen=True, eq=False)
class Validation:
    """How well withheld cells were predicted.

    name, units: of the field
    scores: by method, lkgp first and then the baselines: rmse, nll, crps, and the share of values inside the 50, 80 and
        95 % intervals
    calibration: pairs of a probability and the share of withheld values inside lkgp's interval of that probability
    factor: what to multiply the error bars by for 95 % intervals to contain 95 % of the withheld values
    withheld: the number of withheld cells
    how: how they were chosen
    """

    name: str
    units: str
    scores: dict[str, dict[str, float]]
    calibration: list[tuple[float, float]]
    factor: float
    withheld: int
    how: str

    def __str__(self) -> str:
        header = "".join(f"{title:>10}" for title in ("RMSE", "NLL", "CRPS"))
        header += "".join(f"{f'within {level:.0%}':>12}" for level in LEVELS)
        lines = [
            f"{self.withheld} cells of {self.name} were withheld ({self.how}) and predicted from the others.",
            "The error bars of the baselines are as wide as their errors turned out to be, which favours them.",
            f"{'':24}{header}",
        ]
        for method, row in self.scores.items():
            shares = "".join(f"{row[f'in_{level:.0%}']:>12.1%}" for level in LEVELS)
            lines.append(f"{method:24}{row['rmse']:>10.4g}{row['nll']:>10.4g}{row['crps']:>10.4g}{shares}")
        lines.append(
            f"With error bars {self.factor:.2f} times as wide, 95 % intervals contain 95 % of the withheld values."
        )
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        return dict(vars(self))


def validate(model: FittedField, *, share: float = 0.1, seed: int = 0) -> Validation:
    """Withhold about a share of the observed cells, condition on the others, and predict the withheld ones.

    The hyperparameters stay as they are. A large field is validated in a random window of time.
    """
    if not 0 < share < 1:
        raise InputError(f"share must be between 0 and 1, not {share}.")
    layout, generator = model.layout, np.random.default_rng(seed)
    values = layout.to_grid(model.observed)
    seen = np.isfinite(values)
    window, window_text = choose_window(layout, values.shape, generator)
    rows = np.zeros_like(to_series(seen, layout))
    shifted = "shifted" if layout.time is None else "shifted in time"
    rows[:, window], how = withhold(to_series(seen, layout)[:, window], share, generator, shifted)
    hidden = from_series(rows, seen.shape, layout)
    if not hidden.any() or not (seen & ~hidden).any():
        raise InputError("there are too few observed cells to withhold some of them.")
    remaining = np.where(hidden, np.nan, values)
    axis, times = time_axis(layout), np.sort(time_order(layout)[window])
    points = [x[times] if k == axis else x for k, x in enumerate(layout.points())]
    predicted = model.gp.conditioned_on(np.take(remaining, times, axis), points).predict(observation_noise=True)
    mean, std = (embed_times(part, times, axis, values.shape)[hidden] for part in predicted)
    truth = values[hidden]
    scores = {"lkgp": score(truth, mean, std)}
    for name, baseline in (BASELINES if layout.time is not None else BASELINES_WITHOUT_TIME).items():
        guess = baseline(remaining, layout)[hidden]
        # A constant error bar as wide as the errors turn out to be: better than any the baseline could state itself.
        rmse = max(float(np.sqrt(np.mean((guess - truth) ** 2))), 1e-300)
        scores[name] = score(truth, guess, np.full_like(guess, rmse))
    y, m, s = as_tensors(truth, mean, std)
    # The factor c for which |y - m| <= c z_0.975 s in 95 % of the withheld cells.
    factor = float(np.quantile(np.abs(truth - mean) / std, 0.95) / ndtri(0.975))
    return Validation(
        name=model.name,
        units=str(layout.field.attrs.get("units", "")),
        scores=scores,
        calibration=[(level, metrics.coverage(y, m, s, level)) for level in CALIBRATION_LEVELS],
        factor=factor,
        withheld=int(hidden.sum()),
        how=how + window_text,
    )


def choose_window(layout: Layout, shape: tuple[int, ...], generator: np.random.Generator) -> tuple[slice, str]:
    """The times, in chronological order, in which to validate, and a description of them."""
    times = shape[time_axis(layout)]
    length = min(times, max(MAX_CELLS * times // int(np.prod(shape)), MIN_TIMES))
    if length == times or layout.time is None:
        return slice(0, times), ""
    start = int(generator.integers(times - length + 1))
    return slice(start, start + length), f", in {length} of the {times} times"


def embed_times(part: np.ndarray, times: np.ndarray, axis: int, shape: tuple[int, ...]) -> np.ndarray:
    """An array over some positions along the axis of time as one over all of them, NaN elsewhere."""
    embedded = np.full(shape, np.nan)
    embedded[(slice(None),) * axis + (times,)] = part
    return embedded


def score(truth: np.ndarray, mean: np.ndarray, std: np.ndarray) -> dict[str, float]:
    """RMSE, NLL, CRPS and coverage of the withheld values; all arrays (withheld,)."""
    y, m, s = as_tensors(truth, mean, std)
    found = {"rmse": metrics.rmse(y, m), "nll": metrics.nll(y, m, s), "crps": metrics.crps(y, m, s)}
    return found | {f"in_{level:.0%}": metrics.coverage(y, m, s, level) for level in LEVELS}


def as_tensors(*arrays: np.ndarray) -> list[torch.Tensor]:
    return [torch.as_tensor(array, dtype=torch.float64) for array in arrays]
