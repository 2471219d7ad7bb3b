"""Finding the hyperparameters: L-BFGS where the likelihood is exact, Adam where it is stochastic."""

import copy
import logging
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
import scipy.optimize
import torch
from torch import Tensor

from lkgp.direct import TooLargeError
from lkgp.grid import PartialGrid
from lkgp.methods import Direct, Iterative, Plan, for_fitting, plan, reduction_axis
from lkgp.mll import Probes, exact_mll, stochastic_mll
from lkgp.model import LatentKroneckerGP
from lkgp.readers import Observations
from lkgp.solvers.base import check_settings

log = logging.getLogger("lkgp")

# With twice as many observations as this, a fit begins on some of the points of one factor.
COARSE_OBSERVATIONS = 3000


@dataclass(frozen=True)
class LBFGS:
    """Second order, for likelihoods whose value and gradient agree.

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


Optimizer = LBFGS | Adam
Progress = Callable[[int, float], None]


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


class _Objective:
    """-(log likelihood + log prior) / n and its gradient as a function of the flat parameters; remembers the best."""

    def __init__(self, model: LatentKroneckerGP, data: Observations, chosen: Plan, seed: int, progress: Progress | None) -> None:
        self.model, self.data, self.plan, self.progress = model, data, chosen, progress
        self.parameters = [p for p in model.parameters() if p.requires_grad]
        self.history: list[float] = []
        self.products = 0
        self.best_value, self.best = math.inf, self.get()
        self.warm_start: Tensor | None = None
        self.too_large, self.too_large_at = "", -math.inf
        self.probes = Probes.draw(data, chosen.method.num_probes, seed) if isinstance(chosen.method, Iterative) else None

    def get(self) -> np.ndarray:
        return np.concatenate([p.detach().double().cpu().numpy().ravel() for p in self.parameters])

    def set(self, flat: np.ndarray) -> None:
        start = 0
        for p in self.parameters:
            part = torch.as_tensor(flat[start : start + p.numel()], dtype=p.dtype, device=p.device)
            p.data.copy_(part.view(p.shape))
            start += p.numel()

    def evaluate(self, value: bool = True) -> tuple[float, np.ndarray]:
        """At the parameters as they are. A value that cannot be computed is NaN."""
        for p in self.parameters:
            p.grad = None
        try:
            with torch.enable_grad():
                likelihood = self._likelihood(value)
                loss = -(likelihood + self.model.log_prior()) / self.data.grid.num_observed
                loss.backward()
        except (torch.linalg.LinAlgError, TooLargeError) as error:
            log.info("the likelihood could not be computed after %d evaluations: %s", len(self.history), error)
            if isinstance(error, TooLargeError):
                self.too_large, self.too_large_at = str(error), len(self.history)
            return math.nan, np.full_like(self.best, math.nan)
        gradient = np.concatenate(
            [(torch.zeros_like(p) if p.grad is None else p.grad).double().cpu().numpy().ravel() for p in self.parameters]
        )
        objective = float(loss.detach())
        self.history.append(-objective)
        if self.progress is not None:
            self.progress(len(self.history), -objective)
        if np.isfinite(gradient).all() and objective < self.best_value:
            self.best_value, self.best = objective, self.get()
        return objective, gradient

    def ended_at_the_limit(self) -> bool:
        """Whether the last evaluations ran into systems that are too large, so that the best point may be no optimum."""
        return len(self.history) - self.too_large_at < 8

    def _likelihood(self, value: bool) -> Tensor:
        if isinstance(self.plan.method, Direct):
            return exact_mll(self.model, self.data, self.plan.method, self.plan.axis)
        assert self.probes is not None
        estimate = stochastic_mll(self.model, self.data, self.plan.method, self.probes, x0=self.warm_start, value=value)
        self.warm_start = estimate.solution.values
        self.products += estimate.solution.products
        return estimate.objective


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
    began = time.perf_counter()
    model = copy.deepcopy(model)
    chosen = plan(model, data, method, max_memory)
    chosen = replace(chosen, method=for_fitting(chosen.method))
    notes: list[str] = []
    if not any(p.requires_grad for p in model.parameters()):
        return FitResult(model, chosen, LBFGS(), [], 0, True, "no hyperparameter is free", 0.0)
    interrupted = _coarse_start(model, data, chosen, seed, progress, notes)
    objective = _Objective(model, data, chosen, seed, progress)
    default: Optimizer = LBFGS() if isinstance(chosen.method, Direct) else Adam()
    picked = default if optimizer == "auto" else optimizer
    converged, reason = False, "interrupted; the best parameters so far are kept"
    try:
        if not interrupted:
            converged, reason = _minimise(objective, picked)
    except KeyboardInterrupt:
        interrupted = True
    if objective.ended_at_the_limit() and not interrupted:
        # The likelihood wants a longer spectrum than a factorisation can afford: go on iteratively from the best point.
        objective.set(objective.best)
        notes.append(f"{objective.too_large}; went on iteratively")
        chosen = Plan(for_fitting(Iterative()), f"iterative: {objective.too_large}")
        history, picked = objective.history, Adam()
        objective = _Objective(model, data, chosen, seed, progress)
        try:
            converged, reason = _minimise(objective, picked)
        except KeyboardInterrupt:
            reason = "interrupted; the best parameters so far are kept"
        objective.history[:0] = history
    objective.set(objective.best)
    for p in objective.parameters:
        p.grad = None
    seconds = time.perf_counter() - began
    return FitResult(model, chosen, picked, objective.history, objective.products, converged, reason, seconds, notes)


def _minimise(objective: _Objective, optimizer: Optimizer) -> tuple[bool, str]:
    return _lbfgs(objective, optimizer) if isinstance(optimizer, LBFGS) else _adam(objective, optimizer)


def _lbfgs(objective: _Objective, settings: LBFGS) -> tuple[bool, str]:
    def function(flat: np.ndarray) -> tuple[float, np.ndarray]:
        objective.set(flat)
        value, gradient = objective.evaluate()
        if np.isfinite(value) and np.isfinite(gradient).all():
            return value, gradient
        if not math.isfinite(objective.best_value) and not objective.too_large:
            raise torch.linalg.LinAlgError("the likelihood cannot be computed at the first hyperparameters")
        # A wall for the line search, which then steps back.
        return objective.best_value + 10 * max(1.0, abs(objective.best_value)), np.zeros_like(flat)

    options = {"maxiter": settings.max_steps, "gtol": settings.tolerance, "ftol": settings.improvement, "maxcor": 20}
    result = scipy.optimize.minimize(function, objective.get(), jac=True, method="L-BFGS-B", options=options)
    if result.success:
        return True, f"converged after {result.nit} steps"
    if result.nit >= settings.max_steps:
        return False, f"the limit of {settings.max_steps} steps was reached; raise max_steps of LBFGS"
    # The line search found nothing better: the optimum to within rounding, if the gradient is small there.
    small = bool(np.abs(result.jac).max() <= 100 * settings.tolerance)
    return small, f"no better point was found after {result.nit} steps"


def _adam(objective: _Objective, settings: Adam) -> tuple[bool, str]:
    adam = torch.optim.Adam(objective.parameters, lr=settings.learning_rate)
    good = objective.get()
    for step in range(settings.max_steps):
        last = step == settings.max_steps - 1
        _, gradient = objective.evaluate(value=last or step % settings.value_every == 0)
        if not np.isfinite(gradient).all():
            # Back out of the step that led here, and go on more carefully.
            objective.set(good)
            for group in adam.param_groups:
                group["lr"] /= 2
            adam.state.clear()
            continue
        good = objective.get()
        if np.abs(gradient).max() <= settings.tolerance:
            objective.evaluate()
            return True, f"converged after {step + 1} steps"
        if not last:
            adam.step()
    return False, f"the limit of {settings.max_steps} steps was reached; raise max_steps of Adam if the likelihood still rises"


def _coarse_start(
    model: LatentKroneckerGP, data: Observations, chosen: Plan, seed: int, progress: Progress | None, notes: list[str]
) -> bool:
    """Move the hyperparameters of `model` to the optimum on some points of one factor. Returns whether Ctrl-C was pressed."""
    if len(data.grid.shape) == 1:
        return False
    axis = chosen.axis if isinstance(chosen.method, Direct) else reduction_axis(model, data, Direct().fit_tolerance)[0]
    # Thin the longest axis, other than the one that reduces.
    thinned = max((k for k in range(len(data.grid.shape)) if k != axis), key=lambda k: data.grid.shape[k])
    keep = int(COARSE_OBSERVATIONS / data.grid.num_observed * data.grid.shape[thinned])
    if keep < 20 or keep > data.grid.shape[thinned] // 2:
        return False
    subset = thin(data, thinned, keep, seed)
    small = plan(model, subset, Direct(max_size=subset.grid.num_observed, tolerance=Direct().fit_tolerance))
    objective = _Objective(model, subset, small, seed, progress)
    try:
        _lbfgs(objective, LBFGS(max_steps=60, tolerance=1e-3, improvement=1e-4))
        interrupted = False
    except KeyboardInterrupt:
        interrupted = True
    except torch.linalg.LinAlgError:
        return False
    objective.set(objective.best)
    notes.append(f"started from the optimum on {keep} of {data.grid.shape[thinned]} points of factor {thinned}")
    return interrupted


def thin(data: Observations, axis: int, keep: int, seed: int) -> Observations:
    """The observations at `keep` random points of one factor, among the points that have any."""
    grid = data.grid
    others = [k for k in range(len(grid.shape)) if k != axis]
    seen = torch.nonzero(grid.observed.sum(dim=others) > 0).flatten()
    generator = torch.Generator().manual_seed(seed)
    points = seen[torch.randperm(len(seen), generator=generator)[:keep].to(seen.device)].sort().values
    coords = tuple(x[points] if k == axis else x for k, x in enumerate(grid.coords))
    smaller = PartialGrid(coords, grid.observed.index_select(axis, points))

    def pick(values: Tensor) -> Tensor:
        return smaller.gather(grid.scatter(values).view(grid.shape).index_select(axis, points).flatten())

    noise = None if data.noise_variance is None else pick(data.noise_variance)
    return Observations(smaller, pick(data.values), pick(data.counts), noise)
