"""BFGS in a trust region, begun with a known curvature; it needs gradients, and no values."""

import math
from collections.abc import Callable
from typing import Protocol

import numpy as np

# How far the first step may go, and any step, in the units of `FreeParameters`; and any step where no value would tell
# that it went astray.
FIRST_RADIUS, LARGEST_RADIUS, LARGEST_BLIND_RADIUS = 1.0, 16.0, 1.0
# The least curvature, relative to the largest.
FLATTEST = 1e-6
# The information is computed again when the expected gain has fallen by this factor.
FAR = 0.01
# What counts as a small region when convergence is judged.
SMALL_RADIUS = 0.1
# How much of the curvature along a step one update leaves at the least.
LEAST_CURVATURE = 0.2


class Point(Protocol):
    """The objective at one place."""

    @property
    def value(self) -> float:
        """NaN where it is not known."""

    @property
    def gradient(self) -> np.ndarray:
        """(P,), not finite where nothing could be computed."""

    @property
    def information(self) -> Callable[[], np.ndarray]:
        """An estimate of minus the second derivatives, positive semidefinite, (P, P)."""

    @property
    def solved(self) -> bool:
        """Whether the gradient is good enough to step along."""


def maximise(
    evaluate: Callable[[np.ndarray, float], Point], accepted: list[np.ndarray], max_steps: int, least_gain: float
) -> tuple[bool, str]:
    """Append ever better places to `accepted`, which begins with the start (P,). Returns whether that converged, and
    why it stopped.

    evaluate: the objective at a place, given the gain that is expected there: its errors need only be small beside that
    least_gain: expected gain of a step, in the units of the objective, below which it is not worth taking
    """
    here = evaluate(accepted[-1], math.inf)
    if not np.isfinite(here.gradient).all():
        raise np.linalg.LinAlgError("the likelihood cannot be computed at the first hyperparameters")
    if not here.solved:
        return False, "stopped at the first hyperparameters"
    largest = LARGEST_RADIUS if math.isfinite(here.value) else LARGEST_BLIND_RADIUS
    curvature, radius, hoped_for, informed = positive(here.information()), min(FIRST_RADIUS, largest), 0.0, 0
    for taken in range(max_steps):
        # A region that has become small makes any gain small, which is no sign of an optimum.
        if step_within(max(radius, SMALL_RADIUS), curvature, here.gradient)[1] < least_gain:
            return True, f"converged after {taken} steps"
        step, expected = step_within(radius, curvature, here.gradient)
        if expected < FAR * hoped_for:
            # So much nearer to the optimum, the information is another one.
            curvature, hoped_for, informed = positive(here.information()), 0.0, taken
            step, expected = step_within(radius, curvature, here.gradient)
        hoped_for = max(hoped_for, expected)
        while True:
            there = evaluate(accepted[-1] + step, expected)
            gained = gain(here, there, step)
            if gained <= 0 and informed < taken:
                # What was learned on the way here misled: begin with the information of this place.
                curvature, informed = positive(here.information()), taken
            if usable(there):
                curvature = updated(curvature, step, here.gradient - there.gradient)
            if gained > 0:
                break
            radius = 0.25 * min(radius, float(np.linalg.norm(step)))
            step, expected = step_within(radius, curvature, here.gradient)
            if expected < 0.01 * least_gain:
                return False, f"no better point was found after {taken} steps"
        # The trust region grows where the model was right up to its border, and shrinks where it was not.
        length = float(np.linalg.norm(step))
        if gained > 0.75 * expected and length > 0.9 * radius:
            radius = min(2 * radius, largest)
        elif gained < 0.25 * expected:
            radius = 0.5 * length
        accepted.append(accepted[-1] + step)
        here = there
    return False, f"the limit of {max_steps} steps was reached; raise max_steps of BFGS"


def usable(point: Point) -> bool:
    return point.solved and bool(np.isfinite(point.gradient).all())


def gain(here: Point, there: Point, step: np.ndarray) -> float:
    """How much better `there` is: by the values, or, where they are not known, by the gradients along the way."""
    if not usable(there):
        return -math.inf
    if math.isfinite(here.value) and math.isfinite(there.value):
        return there.value - here.value
    # The trapezoidal rule for the integral of the gradient along the step, unless the slope has grown on the way: then
    # the step has crossed something that its ends do not show.
    before, after = float(here.gradient @ step), float(there.gradient @ step)
    return 0.5 * (before + after) if after < 1.5 * before else -math.inf


def step_within(radius: float, curvature: np.ndarray, gradient: np.ndarray) -> tuple[np.ndarray, float]:
    """The best step of the quadratic model within `radius`, (P,), and the gain that it expects.

    (C + m I) step = g, with the least m >= 0 for which the step is short enough: directions in which the objective is
    flat are held back, and the others are not.
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
    """The curvature after `change` of the gradient along `step`: BFGS with Powell's damping, so it stays positive."""
    product = curvature @ step
    bent, along = float(step @ product), float(step @ change)
    if bent <= 0:  # by rounding
        return positive(curvature)
    if along < LEAST_CURVATURE * bent:
        mix = (1 - LEAST_CURVATURE) * bent / (bent - along)
        change = mix * change + (1 - mix) * product
    return curvature + np.outer(change, change) / float(step @ change) - np.outer(product, product) / bent


def positive(curvature: np.ndarray) -> np.ndarray:
    """The curvature with no direction flatter than rounding allows."""
    values, vectors = np.linalg.eigh(curvature)
    return (vectors * values.clip(min=FLATTEST * max(values[-1], 1e-300))) @ vectors.T
