"""The search for hyperparameters, from small subsets of the data to all of it."""

import copy
import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from torch import Tensor

from lkgp.data.readers import Observations
from lkgp.data.subsets import largest_part, small_part, without_empty_points
from lkgp.fitting.candidates import find_lengths
from lkgp.fitting.comparison import DECISIVE, improvement
from lkgp.fitting.contrast import Contrast
from lkgp.fitting.exploration import MORE_OBSERVATIONS, Exploration, State, explore, get_state, set_state
from lkgp.fitting.long_lengths import shorter_start
from lkgp.fitting.objective import Objective, Progress
from lkgp.fitting.optimizers import BFGS, INTERRUPTED, LBFGS, STOCHASTIC_IMPROVEMENT, Adam, Optimizer, Outcome
from lkgp.fitting.parameters import FreeParameters
from lkgp.fitting.periods import start_periods
from lkgp.fitting.simpler import simpler_start
from lkgp.fitting.starts import begin_where_possible, search_parts
from lkgp.inference import Choice, Method, Plan, plan, propose, without_factorisation
from lkgp.linalg.kronecker import LatentKronecker, OperatorFactory
from lkgp.model import LatentKroneckerGP

# With more parameters than this, the average information costs more solves than it saves: one per parameter.
MOST_INFORMED = 100
# A simpler model that is better by less, in nats, is no reason for a remark: a search stops at such gains.
WORTH_SAYING = 1.0


@dataclass(frozen=True, eq=False)
class FitResult:
    """A model with fitted hyperparameters, and how the fit went.

    plan: the plan of the method that was used last
    history: the objective (log likelihood plus log prior, per observation) at every evaluation; NaN if only the
        gradient was computed
    products: number of products of A with one column
    reason: why the fit stopped
    notes: further remarks for the report
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
    method: Choice = "auto",
    optimizer: Optimizer | Literal["auto"] = "auto",
    seed: int = 0,
    progress: Progress | None = None,
    max_memory: float | None = None,
    operators: OperatorFactory = LatentKronecker,
    compare_starts: bool = True,
) -> FitResult:
    """Maximise the marginal likelihood times the priors over the hyperparameters that require a gradient.

    Returns a new model; the given one is not changed. Ctrl-C ends the fit with the best parameters so far.

    compare_starts: whether other starting values than the given ones are considered, too
    """
    model = copy.deepcopy(model)
    # If the noise is known, the model's own noise parameters are unused.
    unused = [p for p in model.noise.parameters() if p.requires_grad and data.noise_variance is not None]
    for p in unused:
        p.requires_grad_(False)
    search = Search(
        model, without_empty_points(data), method, optimizer, seed, progress, max_memory, operators, compare_starts
    )
    result = search.run()
    for p in unused:
        p.requires_grad_(True)
    return result


@dataclass(frozen=True, eq=False)
class Search:
    """One search, which moves the free hyperparameters of `model` to their optimum."""

    model: LatentKroneckerGP
    data: Observations
    method: Choice
    optimizer: Optimizer | Literal["auto"]
    seed: int
    progress: Progress | None
    max_memory: float | None
    operators: OperatorFactory
    compare_starts: bool

    def run(self) -> FitResult:
        began = time.perf_counter()
        num_free = sum(p.numel() for p in self.model.parameters() if p.requires_grad)
        if not num_free:
            chosen = plan(self.model, self.data, self.method, self.max_memory)
            return FitResult(self.model, chosen, BFGS(), [], 0, True, "no hyperparameter is free", 0.0)
        periods, notes = start_periods(self.model, self.data)
        own = BFGS() if self.optimizer == "auto" else self.optimizer
        sufficient, fitted_on = own.sufficient_observations, own.fitted_on
        if fitted_on is not None and fitted_on >= (math.inf if sufficient is None else sufficient):
            reason = f"the given values were kept, fitted on {fitted_on} of the observations"
            return FitResult(self.model, self._plan(), BFGS(), [], 0, True, reason, 0.0, notes)
        given = get_state(self.model)
        begun = self._explore(periods) if fitted_on is None else None
        if begun is not None and begun.interrupted:
            return self._interrupted(began, notes)
        notes += [] if begun is None else [begun.note]
        others, from_part = ([], fitted_on is not None) if begun is None else (begun.others, not begun.whole)
        part = search_parts(
            self.model,
            self.data,
            periods,
            others=others,
            from_part=from_part,
            only_sufficient=fitted_on is not None,
            sufficient=sufficient,
            seed=self.seed,
            progress=self.progress,
            max_memory=self.max_memory,
            operators=self.operators,
        )
        for period in periods:
            period.requires_grad_(True)
        if part is not None and part.interrupted:
            return self._interrupted(began, notes)
        notes += [] if part is None else [part.note]
        chosen = self._plan_here(given, notes)
        method = chosen.method
        picked = default_optimizer(method, num_free) if self.optimizer == "auto" else self.optimizer
        if part is not None and sufficient is not None and part.observations >= sufficient:
            reason = f"{part.reason}, on {part.observations} of the observations"
            seconds = time.perf_counter() - began
            return FitResult(
                self.model, chosen, picked, part.history, part.products, part.converged, reason, seconds, notes
            )
        objective = self._objective(method)
        if begin_where_possible(objective, others):
            notes.append("began at the given values, because the likelihood could not be computed at better ones")
            chosen = self._plan()
            objective = self._objective(method := chosen.method)
        outcome = picked.maximise(objective, from_part=from_part or part is not None)
        objective, history = outcome.objective, outcome.objective.history
        if objective.ended_at_the_limit() and not outcome.interrupted:
            # The optimum needs more modes than a factorisation can afford: continue in the eigenbasis from the best
            # point.
            notes.append(f"{objective.too_large}; continued in the eigenbasis")
            method = without_factorisation().for_fitting()
            chosen = Plan(method, f"spectral: {objective.too_large}")
            picked = default_optimizer(method, num_free)
            outcome = picked.maximise(objective.with_method(method))
            objective, history = outcome.objective, history + outcome.objective.history
        again = self._elsewhere(method, picked, None if begun is None else given, notes, outcome)
        if again is not None:
            outcome, objective, history = again, again.objective, history + again.objective.history
        objective.parameters.clear_gradient()
        converged, reason = verdict(outcome)
        if not method.exact:
            notes.append(f"hyperparameters fitted by {type(picked).__name__} with estimated gradients, {chosen.why}")
        notes += Contrast(self.data).notes(self.model)
        seconds = time.perf_counter() - began
        return FitResult(self.model, chosen, picked, history, objective.products, converged, reason, seconds, notes)

    def _explore(self, periods: Sequence[Tensor]) -> Exploration | None:
        """Begin at the best of many hyperparameters on few observations, which cannot improve the `periods`."""
        for period in periods:
            period.requires_grad_(False)
        num_free = sum(p.numel() for p in self.model.parameters() if p.requires_grad)
        if not self.compare_starts or not 0 < num_free <= MOST_INFORMED:
            return None
        # So few observations do not tell which optimum is best for so many: a search on larger parts begins as given.
        if largest_part(self.data.grid.num_observed):
            return None
        return explore(
            self.model,
            self.data,
            seed=self.seed,
            progress=self.progress,
            max_memory=self.max_memory,
            operators=self.operators,
        )

    def _elsewhere(
        self, method: Method, picked: Optimizer, given: State | None, notes: list[str], ended: Outcome
    ) -> Outcome | None:
        """Search again where the search may have missed something; None if nothing better was found.

        given: the given values, if the search did not begin there
        """
        num_free = sum(p.numel() for p in self.model.parameters() if p.requires_grad)
        if not self.compare_starts or num_free > MOST_INFORMED or ended.interrupted:
            return None
        better = None
        for start, note in self._other_starts(method, picked, given, notes, ended.objective):
            before, flat = get_state(self.model), FreeParameters(self.model).get()
            set_state(self.model, start)
            outcome = picked.maximise(self._objective(method))
            if outcome.interrupted:
                set_state(self.model, before)
                return outcome
            quiet, after = replace(self, progress=None), FreeParameters(self.model).get()
            if improvement(quiet._accurate(method), quiet._objective(method), flat, after) > 0:
                notes.append(f"{note}, which were better")
                better = outcome
            else:
                set_state(self.model, before)
        return better

    def _other_starts(
        self, method: Method, picked: Optimizer, given: State | None, notes: list[str], ended: Objective
    ) -> Iterator[tuple[State, str]]:
        """Where to search again, each with a note, judged from the hyperparameters that the model has by then.

        These are shorter lengths instead of those that no longer matter, a simpler model that the kernels contain, and
        the given values, the latter two if they are better.

        ended: the objective of the search that ended, which may know its value there
        """

        def value_of(model: LatentKroneckerGP) -> float:
            known = ended.known_value(FreeParameters(model).get()) if model is self.model else None
            if known is not None:
                return known
            found = replace(self, model=model, progress=None)._accurate(method).evaluate(gradient=False)
            return found.value if found.solved and math.isfinite(found.value) else -math.inf

        def objective_of(model: LatentKroneckerGP) -> Objective:
            return replace(self, model=model)._objective(method)

        lengths = find_lengths(self.model, small_part(self.data, MORE_OBSERVATIONS, self.seed))
        shorter = shorter_start(replace(self, progress=None)._objective(method), lengths)
        if shorter is not None:
            yield shorter, "began again with shorter lengths instead of some that no longer mattered"
        simple = simpler_start(self.model, value_of, objective_of, picked)
        if simple is not None:
            yield simple.state, f"began again with small values of part {simple.part} of a sum"
            now = replace(self, progress=None)._accurate(method).evaluate(gradient=False)
            missed = simple.value - now.value
            if missed > max(WORTH_SAYING, DECISIVE * math.sqrt(2.0) * now.error):
                notes.append(f"the model without part {simple.part} of a sum is better, by {missed:.0f} nats")
        if given is not None:
            here, best = get_state(self.model), value_of(self.model)
            set_state(self.model, given)
            promising = value_of(self.model) > best
            set_state(self.model, here)
            if promising:
                yield given, "began again at the given values"

    def _accurate(self, method: Method) -> Objective:
        """The objective with the smallest errors of its values; by `method` if nothing more accurate is possible."""
        if method.exact:
            return self._objective(method)
        proposed = propose(self.model, self.data, self.method, self.max_memory, fitting=True)
        return self._objective(method if proposed.obstacle else proposed.method)

    def _plan(self) -> Plan:
        return for_fitting(plan(self.model, self.data, self.method, self.max_memory, fitting=True))

    def _plan_here(self, given: State, notes: list[str]) -> Plan:
        """A plan at the present hyperparameters, or at the given ones if the requested method is impossible there."""
        chosen = propose(self.model, self.data, self.method, self.max_memory, fitting=True)
        if not chosen.obstacle:
            return for_fitting(chosen)
        # The requested method cannot be used where the likelihood is largest on a part; it may be on the way there.
        notes.append("began at the given values, because the requested method cannot be used at better ones")
        set_state(self.model, given)
        return self._plan()

    def _objective(self, method: Method) -> Objective:
        return Objective(
            self.model,
            self.data,
            method,
            seed=self.seed,
            progress=self.progress,
            max_memory=self.max_memory,
            operators=self.operators,
        )

    def _interrupted(self, began: float, notes: list[str]) -> FitResult:
        seconds = time.perf_counter() - began
        return FitResult(self.model, self._plan(), BFGS(), [], 0, False, INTERRUPTED, seconds, notes)


def for_fitting(chosen: Plan) -> Plan:
    """A plan with the settings of its method that a search uses."""
    return replace(chosen, method=chosen.method.for_fitting())


def verdict(outcome: Outcome) -> tuple[bool, str]:
    """Whether a search converged, and why it stopped; it has not if its last solves did not."""
    failed = outcome.objective.failed_solve
    if not failed:
        return outcome.converged, outcome.reason
    return False, f"{outcome.reason}, but the solves of the last evaluation did not converge: {failed}"


def default_optimizer(method: Method, num_free: int) -> Optimizer:
    """A second-order method if the curvature is affordable; otherwise L-BFGS, or Adam for estimated gradients."""
    if num_free <= MOST_INFORMED:
        return BFGS() if method.exact else BFGS(improvement=STOCHASTIC_IMPROVEMENT)
    return LBFGS() if method.exact else Adam()
