"""Which of two sets of hyperparameters is better.

An estimated likelihood has an error of several nats, which differs from one set of hyperparameters to another. The
gradients along the line between them, all with the same probes, tell the difference far more accurately,

    L(b) - L(a)  =  int_0^1 (b - a)^T g(a + t (b - a)) dt,

with a variance of about 2 D / s for a distance of D nats and s probes, as long as the line is short.
"""

import math

import numpy as np

from lkgp.fitting.objective import Objective

# Values that differ by more than this many standard errors are believed.
DECISIVE = 3.0
# The number of points on the line: Gauss's rule with five is exact for polynomials of degree nine.
POINTS = 5
# Solves for gradients on the line are so much more accurate than those of a search, whose errors do not add up.
STRICTNESS = 0.3


def improvement(values: Objective, gradients: Objective, before: np.ndarray, after: np.ndarray) -> float:
    """By how many nats the objective is larger at `after` than at `before`, both (P,); the model ends at `after`.

    values: the objective by a method whose values are as accurate as possible
    gradients: the objective by the method of the search
    """
    first, last = values.at(before), values.at(after)
    if not (last.solved and math.isfinite(last.value)):
        return -math.inf
    if not (first.solved and math.isfinite(first.value)):
        return math.inf
    difference = last.value - first.value
    if abs(difference) >= DECISIVE * math.hypot(first.error, last.error):
        return difference
    rise = along_line(gradients, before, after)
    values.parameters.set(after)
    return rise if math.isfinite(rise) else difference


def along_line(objective: Objective, before: np.ndarray, after: np.ndarray) -> float:
    """The integral of the gradient along the line between two points (P,); NaN if it cannot be computed."""
    exact = objective.method.exact
    if not exact:
        objective = objective.with_method(objective.method.for_search(objective.num_free, 1.0, STRICTNESS))
    places, weights = np.polynomial.legendre.leggauss(POINTS)
    total, step = 0.0, after - before
    for place, weight in zip(places, weights, strict=True):
        here = objective.at(before + 0.5 * (1 + place) * step, value=exact)
        total += 0.5 * weight * float(here.gradient @ step) if here.solved else math.nan
    return total
