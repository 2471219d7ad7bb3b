"""Scores of predictions, always in the units of the data."""

import numpy as np
import torch
from scipy.special import ndtri

from lkgp import metrics
from lkgp.studies.predictions import Prediction
from lkgp.studies.problems import Problem
from lkgp.studies.units import Plain, Units

# The probabilities of the central intervals whose coverage is recorded.
COVERAGE_LEVELS = (0.5, 0.8, 0.95)
# Levels over which the CRPS of a distribution that is not Gaussian is averaged: midpoints of 200 equal parts, a
# trade-off between the time of the scores and the error of the midpoint rule.
QUANTILES = (np.arange(200) + 0.5) / 200


def score(problem: Problem, prediction: Prediction) -> dict[str, float]:
    """All scores: train_... on the observed cells, test_... on the withheld ones."""
    found: dict[str, float] = {}
    for part, chosen in (("train", problem.observed), ("test", problem.tested)):
        y, m, s = (np.asarray(a, dtype=np.float64)[chosen] for a in (problem.values, prediction.mean, prediction.std))
        in_part = scores(prediction.units, y, m, s, COVERAGE_LEVELS)
        found |= {f"{part}_{name}": value for name, value in in_part.items()}
    return found


def scores(
    units: Units, truth: np.ndarray, mean: np.ndarray, std: np.ndarray, levels: tuple[float, ...]
) -> dict[str, float]:
    """RMSE and MAE of the median, NLL, CRPS, and the coverage and the score of central intervals.

    truth: (cells,), in the units of the data
    mean, std: (cells,), of the Gaussian in `units`
    levels: the probabilities of the intervals
    """
    z, m, s = (torch.as_tensor(a, dtype=torch.float64) for a in (units.apply(truth), mean, std))
    y, median = torch.as_tensor(truth), torch.as_tensor(units.undo(mean))
    # The central 95 % interval; its ends are those of the Gaussian, because the units are an increasing function.
    low, high = (torch.as_tensor(units.undo(mean + sign * ndtri(0.975) * std)) for sign in (-1, 1))
    found = {
        "rmse": metrics.rmse(y, median),
        "mae": metrics.mae(y, median),
        "interval_95": metrics.interval_score(y, low, high, 0.95),
        # p(y) = N(z(y); m, s^2) dz/dy
        "nll": metrics.nll(z, m, s) - float(units.log_slope(truth).mean()),
        "crps": metrics.crps(z, m, s) if isinstance(units, Plain) else crps_by_quantiles(units, truth, mean, std),
    }
    return found | {f"in_{100 * level:.0f}": metrics.coverage(z, m, s, level) for level in levels}


def crps_by_quantiles(units: Units, truth: np.ndarray, mean: np.ndarray, std: np.ndarray) -> float:
    """The CRPS from the quantiles q_a. The arguments are those of `scores`."""
    total = 0.0
    for level in QUANTILES:
        # CRPS = 2 int_0^1 (1[y < q_a] - a) (q_a - y) da
        quantile = units.undo(mean + std * ndtri(level))
        total += 2 * float(np.mean(((truth < quantile) - level) * (quantile - truth)))
    return total / len(QUANTILES)
