"""Trust-region BFGS that starts from a known curvature; it needs gradients but no values."""

import math
from collections.abc import Callable
from typing import Protocol

import numpy as np

# The largest lengths of the first step, of any step, and of any step if values are unknown and so cannot reveal a bad
# step, in the units of `FreeParameters` (mostly logarithms: a step of 1 is a factor e).
FIRST_RADIUS, LARGEST_RADIUS, LARGEST_BLIND_RADIUS = 1.0, 16.0, 1.0
# Smallest curvature relative to the largest. It keeps rounding errors from producing huge steps in flat directions.
FLATTEST = 1e-6
# The information is recomputed when the expected gain has fallen by this factor: the old one was computed far away.
FAR = 0.01
# Convergence is judged by the expected gain within at least this radius: in a tiny region any gain is small.
SMALL_RADIUS = 0.1
# The smallest fraction of the curvature along a step that one update may leave: Powell's value for damped BFGS.
LEAST_CURVATURE = 0.2
# Without values, an expected gain below the limit is believed only if this many steps have together gained less than
# the limit, too, or if it is below the limit by the factor CERTAIN: the curvature may be far too large, and then each
# of many steps gains more than was expected of it. Chosen on traces of two fits to 400 learning curves, where two steps
# in a row gained less than the limit 16 nats below the end.
WITNESSES, CERTAIN = 3, 0.1


class Point(Protocol):
    """The objective at one point."""

    @property
    def value(self) -> float:
        """NaN if it is not known."""

    @property
    def gradient(self) -> np.ndarray:
        """(P,), not finite if it could not be computed."""

    @property
    def information(self) -> Callable[[], np.ndarray]:
        """A positive semidefinite estimate of minus the second derivatives, (P, P)."""

    @property
    def solved(self) -> bool:
        """Whether the gradient is good enough to step along."""


def maximise(
    evaluate: Callable[[np.ndarray, float], Point], accepted: list[np.ndarray], max_steps: int, least_gain: float
) -> tuple[bool, str]:
    """Append better and better points to `accepted`, which initially holds the starting point (P,).

    Returns whether the search converged, and why it stopped.

    evaluate: the objective at a point, given the expected gain, compared with which its errors must be small
    least_gain: the search stops when the expected gain of a step, in the units of the objective, is below this, and
        without values only if the last steps have gained no more
    """
    here = evaluate(accepted[-1], math.inf)
    if not np.isfinite(here.gradient).all():
        raise np.linalg.LinAlgError("the likelihood cannot be computed at the initial hyperparameters")
    if not here.solved:
        return False, "stopped at the initial hyperparameters"
    blind = not math.isfinite(here.value)
    largest = LARGEST_BLIND_RADIUS if blind else LARGEST_RADIUS
    curvature, radius, hoped_for, informed = positive(here.information()), min(FIRST_RADIUS, largest), 0.0, 0
    gains: list[float] = []
    for taken in range(max_steps):
        # In a region that has become small, any gain is small, which does not indicate an optimum.
        within_reach = step_within(max(radius, SMALL_RADIUS), curvature, here.gradient)[1]
        small = within_reach < least_gain
        certain = not blind or within_reach < CERTAIN * least_gain or witnessed(gains, least_gain)
        if small and certain:
            return True, f"converged after {counted(taken)}"
        step, expected = step_within(radius, curvature, here.gradient)
        if expected < FAR * hoped_for:
            # The search is now much closer to the optimum, where the information differs: recompute it.
            curvature, hoped_for, informed = positive(here.information()), 0.0, taken
            step, expected = step_within(radius, curvature, here.gradient)
        hoped_for = max(hoped_for, expected)
        while True:
            there = evaluate(accepted[-1] + step, expected)
            gained = gain(here, there, step)
            if gained <= 0 and informed < taken:
                # The updated curvature was misleading: start again from the information at this point.
                curvature, informed = positive(here.information()), taken
            if usable(there):
                curvature = updated(curvature, step, here.gradient - there.gradient)
            if gained > 0:
                break
            radius = 0.25 * min(radius, float(np.linalg.norm(step)))
            step, expected = step_within(radius, curvature, here.gradient)
            if small and expected < CERTAIN * least_gain:
                return True, f"converged after {counted(taken)}"
            if expected < 0.01 * least_gain:
                return False, f"no better point was found after {taken} steps"
        # The trust region grows if the quadratic model was accurate up to its boundary, and shrinks if it was not.
        length = float(np.linalg.norm(step))
        if gained > 0.75 * expected and length > 0.9 * radius:
            radius = min(2 * radius, largest)
        elif gained < 0.25 * expected:
            radius = 0.5 * length
        accepted.append(accepted[-1] + step)
        gains.append(gained)
        here = there
    return False, f"the limit of {max_steps} steps was reached; raise max_steps of BFGS"


def witnessed(gains: list[float], least_gain: float) -> bool:
    """Whether enough steps have been taken and the last of them have gained little."""
    return len(gains) >= WITNESSES and sum(gains[-WITNESSES:]) < least_gain


def counted(steps: int) -> str:
    """A number of steps in words."""
    return f"{steps} step" if steps == 1 else f"{steps} steps"


def usable(point: Point) -> bool:
    return point.solved and bool(np.isfinite(point.gradient).all())


def gain(here: Point, there: Point, step: np.ndarray) -> float:
    """The gain from `here` to `there`, from their values or, if these are unknown, from their gradients."""
    if not usable(there):
        return -math.inf
    if math.isfinite(here.value) and math.isfinite(there.value):
        return there.value - here.value
    # The trapezoidal rule for the integral of the gradient along the step. If the slope has increased, the step has
    # crossed something that its ends do not show, and it is rejected.
    before, after = float(here.gradient @ step), float(there.gradient @ step)
    return 0.5 * (before + after) if after < 1.5 * before else -math.inf


def step_within(radius: float, curvature: np.ndarray, gradient: np.ndarray) -> tuple[np.ndarray, float]:
    """The best step of the quadratic model within `radius`, (P,), and its expected gain.

    (C + m I) step = g, with the smallest m >= 0 for which the step is short enough: it mainly shortens the step in flat
    directions of the objective.
    """
    values, vectors = np.linalg.eigh(curvature)
    values = values.clip(min=FLATTEST * max(values[-1], 1e-300))
    slopes = vectors.T @ gradient
    shift = 0.0
    if np.linalg.norm(slopes / values) > radius:
        low, high = 0.0, float(np.linalg.norm(slopes)) / radius
        for _ in range(60):
            shift = 0.5 * (low + high)
            low, high = (shift, high) if np.linalg.norm(slopes / (values + shift)) > radius else (low, shift)
        shift = high
    along = slopes / (values + shift)
    return vectors @ along, float(slopes @ along - 0.5 * (values * along) @ along)


def updated(curvature: np.ndarray, step: np.ndarray, change: np.ndarray) -> np.ndarray:
    """Update the curvature from the `change` of the gradient along `step`: BFGS with Powell's damping."""
    product = curvature @ step
    bent, along = float(step @ product), float(step @ change)
    if bent <= 0:  # by rounding
        return positive(curvature)
    if along < LEAST_CURVATURE * bent:
        mix = (1 - LEAST_CURVATURE) * bent / (bent - along)
        change = mix * change + (1 - mix) * product
    return curvature + np.outer(change, change) / float(step @ change) - np.outer(product, product) / bent


def positive(curvature: np.ndarray) -> np.ndarray:
    """Raise the eigenvalues of the curvature to at least `FLATTEST` times the largest."""
    values, vectors = np.linalg.eigh(curvature)
    return (vectors * values.clip(min=FLATTEST * max(values[-1], 1e-300))) @ vectors.T
