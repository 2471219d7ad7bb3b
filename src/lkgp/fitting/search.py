"""Finding the hyperparameters: from coarse to fine, by BFGS, L-BFGS or Adam."""

import copy
import math
import time
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple

import numpy as np
import scipy.optimize
import torch
from torch import Tensor

from lkgp.data.readers import Observations
from lkgp.data.subsets import coarse_levels, without_empty_points
from lkgp.fitting.objective import Evaluation, Objective, Progress
from lkgp.fitting.periods import start_periods
from lkgp.fitting.quasi_newton import BFGS, maximise
from lkgp.inference.methods import Direct, Plan, Spectral, for_fitting, plan
from lkgp.model.model import LatentKroneckerGP
from lkgp.solvers.base import check_settings

# With more parameters than this, their curvature costs more solves than it saves.
MOST_INFORMED = 100
# What is enough of an improvement, by observation: with estimated gradients, and on data that are only a beginning.
STOCHASTIC_IMPROVEMENT, COARSE_IMPROVEMENT = 1e-4, 1e-3

# Where the gradient is exact, gains below this for each parameter are not worth a step: each is then within a tenth of its standard
# error of the optimum.
EXACT_NATS = 0.005

# How much the log-likelihood may gain, by observation, with the logarithm of the noise variance, before that is raised by so much ahead
# of all else, and how often.
FAR_TOO_SURE, RAISE, MOST_RAISES = 0.5, math.log(4.0), 8

INTERRUPTED = "interrupted; the best parameters so far are kept"


@dataclass(frozen=True)
class LBFGS:
    """Quasi-Newton steps, for likelihoods whose value and gradient agree.

    tolerance: stops when no entry of the gradient, by observation, is larger
    improvement: stops when a step improves the objective, by observation, by less
    """

    max_steps: int = 200
    tolerance: float = 1e-5
    improvement: float = 1e-6

    def __post_init__(self) -> None:
        check_settings(self, max_steps=self.max_steps, tolerance=self.tolerance, improvement=self.improvement)


@dataclass(frozen=True)
class Adam:
    """First order, for stochastic gradients.

    tolerance: stops when no entry of the gradient, by observation, is larger
    value_every: steps between two estimates of the likelihood, by which the best parameters are known
    """

    learning_rate: float = 0.1
    max_steps: int = 100
    tolerance: float = 1e-3
    value_every: int = 10

    def __post_init__(self) -> None:
        check_settings(
            self,
            learning_rate=self.learning_rate,
            max_steps=self.max_steps,
            tolerance=self.tolerance,
            value_every=self.value_every,
        )


Optimizer = BFGS | LBFGS | Adam


@dataclass(frozen=True, eq=False)
class FitResult:
    """A model with its hyperparameters found, and how that went.

    plan: the method that the fit ended with
    history: the objective (log likelihood and log prior, by observation) at every evaluation; NaN where it was not evaluated
    products: with A, of one column each
    reason: why it stopped, in words
    notes: what else was done, in words
    """

    model: LatentKroneckerGP
    plan: Plan
    optimizer: Optimizer
    history: list[float]
    products: int
    converged: bool
    reason: str
    seconds: float
    notes: list[str] = field(default_factory=list)


def fit(
    model: LatentKroneckerGP,
    data: Observations,
    *,
    method: Any = "auto",
    optimizer: Optimizer | Literal["auto"] = "auto",
    seed: int = 0,
    progress: Progress | None = None,
    max_memory: float | None = None,
) -> FitResult:
    """Maximise the marginal likelihood, times the priors, over the hyperparameters that require a gradient.

    Returns a new model; the one given is left as it was. Ctrl-C ends the fit with the best parameters seen so far.
    """
    model = copy.deepcopy(model)
    # A noise that is known leaves nothing to learn of the model's own.
    unused = [p for p in model.likelihood.parameters() if p.requires_grad and data.noise_variance is not None]
    for p in unused:
        p.requires_grad_(False)
    result = _search(model, without_empty_points(data), method, optimizer, seed, progress, max_memory)
    for p in unused:
        p.requires_grad_(True)
    return result


def _search(
    model: LatentKroneckerGP,
    data: Observations,
    method: Any,
    optimizer: Optimizer | Literal["auto"],
    seed: int,
    progress: Progress | None,
    max_memory: float | None,
) -> FitResult:
    """Move the free hyperparameters of `model` to their optimum."""
    began = time.perf_counter()
    notes: list[str] = []
    num_free = sum(p.numel() for p in model.parameters() if p.requires_grad)
    if not num_free:
        chosen = plan(model, data, method, max_memory)
        return FitResult(model, chosen, BFGS(), [], 0, True, "no hyperparameter is free", 0.0)
    periods, found = start_periods(model, data)
    notes.extend(found)
    enough = optimizer.enough if isinstance(optimizer, BFGS) else None
    coarse = _coarse_start(model, data, periods, enough, seed, progress, notes, max_memory)
    for period in periods:
        period.requires_grad_(True)
    chosen = plan(model, data, method, max_memory, fitting=True)
    chosen = replace(chosen, method=for_fitting(chosen.method))
    picked = _default_optimizer(chosen, num_free) if optimizer == "auto" else optimizer
    if coarse is not None and enough is not None and coarse.observations >= enough:
        reason = f"{coarse.reason}, on {coarse.observations} of the observations"
        seconds = time.perf_counter() - began
        return FitResult(
            model, chosen, picked, coarse.history, coarse.products, coarse.converged, reason, seconds, notes
        )
    objective = Objective(model, data, chosen, seed, progress, max_memory)
    interrupted = coarse is not None and coarse.reason == INTERRUPTED
    converged, reason = (False, INTERRUPTED) if interrupted else _maximise(objective, picked, coarse is not None)
    if objective.ended_at_the_limit() and reason != INTERRUPTED:
        # The likelihood wants a longer spectrum than a factorisation can afford: go on in the eigenbasis from the best point.
        notes.append(f"{objective.too_large}; went on in the eigenbasis")
        chosen = Plan(for_fitting(Spectral()), f"spectral: {objective.too_large}")
        history, picked = objective.history, _default_optimizer(chosen, num_free)
        objective = Objective(model, data, chosen, seed, progress, max_memory)
        converged, reason = _maximise(objective, picked, from_a_part=False)
        objective.history[:0] = history
    objective.parameters.clear_gradient()
    if objective.failed_solve:
        converged, reason = (
            False,
            f"{reason}, but the solves of the last evaluation did not converge: {objective.failed_solve}",
        )
    if not isinstance(chosen.method, Direct):
        notes.append(f"hyperparameters by {type(picked).__name__} with estimated gradients, {chosen.why}")
    seconds = time.perf_counter() - began
    return FitResult(model, chosen, picked, objective.history, objective.products, converged, reason, seconds, notes)


def _default_optimizer(chosen: Plan, num_free: int) -> Optimizer:
    if num_free <= MOST_INFORMED:
        return BFGS() if isinstance(chosen.method, Direct) else BFGS(improvement=STOCHASTIC_IMPROVEMENT)
    return LBFGS() if isinstance(chosen.method, Direct) else Adam()


def _maximise(objective: Objective, optimizer: Optimizer, from_a_part: bool) -> tuple[bool, str]:
    """Leaves the model at the best parameters. Returns whether that converged, and why it stopped.

    from_a_part: whether the parameters are an optimum on a part of the data
    """
    if isinstance(optimizer, BFGS):
        return _bfgs(objective, optimizer, from_a_part)
    try:
        converged, reason = (
            _lbfgs(objective, optimizer) if isinstance(optimizer, LBFGS) else _adam(objective, optimizer)
        )
    except KeyboardInterrupt:
        converged, reason = False, INTERRUPTED
    objective.parameters.set(objective.best)
    return converged, reason


def _bfgs(objective: Objective, settings: BFGS, from_a_part: bool) -> tuple[bool, str]:
    exact = isinstance(objective.plan.method, Direct)
    free = len(objective.best)
    enough = max(settings.improvement * objective.num_observed, (EXACT_NATS if exact else settings.nats) * free)
    if isinstance(objective.plan.method, Spectral):
        # The error of a gradient from s probes is worth P / (2 s) nats: let that be a tenth of what is enough.
        objective.draw_probes(min(objective.plan.method.num_probes, max(2, math.ceil(5 * free / enough))))
        # Who asks for more than by default gets solves that are as much better.
        tighter = min(1.0, math.sqrt(settings.improvement / STOCHASTIC_IMPROVEMENT))
        objective.plan = replace(
            objective.plan, method=replace(objective.plan.method, rtol=tighter * objective.plan.method.rtol)
        )
    accepted = [objective.parameters.get()]
    try:
        first = _with_enough_noise(objective, exact) if from_a_part else None
        accepted = accepted if first is None else [objective.parameters.get()]

        def evaluate(flat: np.ndarray, gain: float) -> Evaluation:
            return first if first is not None and flat is accepted[0] else objective.at(flat, exact, gain)

        converged, reason = maximise(evaluate, accepted, settings.max_steps, enough)
    except KeyboardInterrupt:
        converged, reason = False, INTERRUPTED
    objective.parameters.set(accepted[-1])
    return converged, reason


def _with_enough_noise(objective: Objective, exact: bool) -> Evaluation | None:
    """Give the model as much more noise as the likelihood strongly asks for. Returns the objective there, if the noise is free.

    The part of the data that a start was found on may have been tamer than the rest. A model that is far too sure of itself is mended by
    shorter lengths as well as by noise, and a search that begins with all of them at once may end at an optimum with far too short ones.
    """
    flat, noise = objective.parameters.get(), objective.parameters.position(objective.model.likelihood.raw_noise)
    if noise is None:
        return None
    here = objective.at(flat, exact, math.inf)
    for _ in range(MOST_RAISES):
        if not here.gradient[noise] / objective.num_observed > FAR_TOO_SURE:
            break
        flat[noise] += RAISE
        here = objective.at(flat, exact, math.inf)
    return here


def _lbfgs(objective: Objective, settings: LBFGS) -> tuple[bool, str]:
    n = objective.num_observed

    def function(flat: np.ndarray) -> tuple[float, np.ndarray]:
        here = objective.at(flat)
        if math.isfinite(here.value) and np.isfinite(here.gradient).all():
            return -here.value / n, -here.gradient / n
        if not math.isfinite(objective.best_value) and not objective.too_large:
            raise torch.linalg.LinAlgError("the likelihood cannot be computed at the first hyperparameters")
        # A wall for the line search, which then steps back.
        best = -objective.best_value / n
        return best + 10 * max(1.0, abs(best)), np.zeros_like(flat)

    options = {"maxiter": settings.max_steps, "gtol": settings.tolerance, "ftol": settings.improvement, "maxcor": 20}
    result = scipy.optimize.minimize(function, objective.parameters.get(), jac=True, method="L-BFGS-B", options=options)
    if result.success:
        return True, f"converged after {result.nit} steps"
    if result.nit >= settings.max_steps:
        return False, f"the limit of {settings.max_steps} steps was reached; raise max_steps of LBFGS"
    # The line search found nothing better: the optimum to within rounding, if the gradient is small there.
    small = bool(np.abs(result.jac).max() <= 100 * settings.tolerance)
    return small, f"no better point was found after {result.nit} steps"


def _adam(objective: Objective, settings: Adam) -> tuple[bool, str]:
    adam = torch.optim.Adam(objective.parameters.tensors, lr=settings.learning_rate, maximize=True)
    n, good = objective.num_observed, objective.parameters.get()
    for step in range(settings.max_steps):
        last = step == settings.max_steps - 1
        here = objective.evaluate(value=last or step % settings.value_every == 0)
        if not np.isfinite(here.gradient).all():
            # Back out of the step that led here, and go on more carefully.
            objective.parameters.set(good)
            for group in adam.param_groups:
                group["lr"] /= 2
            adam.state.clear()
            continue
        good = objective.parameters.get()
        if np.abs(here.gradient).max() / n <= settings.tolerance:
            objective.evaluate()
            return True, f"converged after {step + 1} steps"
        if not last:
            adam.step()
    return (
        False,
        f"the limit of {settings.max_steps} steps was reached; raise max_steps of Adam if the likelihood still rises",
    )


class CoarseSearch(NamedTuple):
    """How the search on the largest part of the data went."""

    observations: int
    converged: bool
    reason: str
    history: list[float]
    products: int


def _coarse_start(
    model: LatentKroneckerGP,
    data: Observations,
    periods: list[Tensor],
    enough: int | None,
    seed: int,
    progress: Progress | None,
    notes: list[str],
    max_memory: float | None,
) -> CoarseSearch | None:
    """Move the hyperparameters of `model` to the optima on ever larger parts of the data. None if the data are too few for parts.

    periods: that were read off the data, of which parts would not know better; they are free in the largest part only, and only if it has
        the observations that are `enough` to end the search
    """
    sizes: list[int] = []
    found, parts = None, list(coarse_levels(data, seed))
    for subset in parts:
        ends = enough is not None and subset is parts[-1] and subset.grid.num_observed >= enough
        for period in periods:
            period.requires_grad_(ends)
        if not any(p.requires_grad for p in model.parameters()):
            continue
        chosen = plan(model, subset, "auto", max_memory, fitting=True)
        objective = Objective(
            model, subset, replace(chosen, method=for_fitting(chosen.method)), seed, progress, max_memory
        )
        start = objective.parameters.get()
        try:
            converged, reason = _maximise(objective, replace(BFGS(), improvement=COARSE_IMPROVEMENT), found is not None)
        except np.linalg.LinAlgError:
            objective.parameters.set(start)
            break
        found = CoarseSearch(subset.grid.num_observed, converged, reason, objective.history, objective.products)
        if reason == INTERRUPTED:
            return found
        sizes.append(subset.grid.num_observed)
    if sizes:
        notes.append(f"started from the optimum on {', then '.join(str(size) for size in sizes)} of the observations")
    return found
