"""Where to begin: many hyperparameters are compared on few observations, and the most promising are improved.

The likelihood often has several optima: variation over short distances can also be explained as noise, and a sum of
kernels can divide the variation among its parts in several ways. A search finds the optimum nearest to its start.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor

from lkgp.data.readers import Observations
from lkgp.data.subsets import small_part
from lkgp.fitting.candidates import Lengths, designs, find_lengths, removable_parts
from lkgp.fitting.objective import Objective, Progress
from lkgp.fitting.optimizers import BFGS
from lkgp.fitting.profile import multiply, output_scales, profile
from lkgp.inference import plan
from lkgp.linalg.kronecker import LatentKronecker, OperatorFactory
from lkgp.model import LatentKroneckerGP

# The number of observations on which candidates are compared: an eigendecomposition then takes a hundredth of a second.
# The best of them are improved on more: an evaluation with its gradient then takes a few hundredths of a second.
FEW_OBSERVATIONS, MORE_OBSERVATIONS = 250, 600
# A search gains up to this many nats per observation on the best of neighbouring candidates, measured on random
# problems; candidates further below an optimum than this cannot be expected to lead to a better one. The second number
# is for models with a sum of kernels, whose shares are not compared but only improved.
PROMISING, PROMISING_SUM = 0.1, 0.25
# Candidates whose lengths are all closer than this, as a share of the range of lengths, lead to the same optimum; it is
# the distance between two of four levels.
NEIGHBOURHOOD = 0.34
# The limit of the time that is spent: at most so many searches.
MOST_SEARCHES = 4
GIVEN = "the given values"
# The scale of a part of a sum, relative to its given one, in candidates without that part: too small to matter, and
# large enough for its gradient to bring it back.
REMOVED = 1e-2
# A search on few observations only has to find out which optimum is near: it stops at this gain, per observation.
COARSE_IMPROVEMENT = 1e-3

State = list[Tensor]


def get_state(model: LatentKroneckerGP) -> State:
    return [p.detach().clone() for p in model.parameters()]


def set_state(model: LatentKroneckerGP, state: State) -> None:
    for p, value in zip(model.parameters(), state, strict=True):
        p.data.copy_(value)


@dataclass(frozen=True, eq=False)
class Candidate:
    """Hyperparameters at which a search may begin, or at which it ended.

    value: the objective, in nats
    positions: where the lengths lie; see `Lengths.position`
    kind: what distinguishes it from the others, for the report
    removed: which part of a sum it does not have; -1 for none
    set_back: whether lengths that had vanished were set back
    """

    value: float
    state: State
    positions: Sequence[float]
    kind: str
    removed: int = -1
    set_back: bool = False

    @property
    def from_given(self) -> bool:
        return self.kind == GIVEN

    def near(self, other: "Candidate") -> bool:
        gaps = [abs(a - b) for a, b in zip(self.positions, other.positions, strict=True)]
        same = self.removed == other.removed and self.set_back == other.set_back
        return same and max(gaps, default=0.0) < NEIGHBOURHOOD


@dataclass(frozen=True, eq=False)
class Exploration:
    """What was found on few observations; the model has the best hyperparameters.

    whole: whether these were all observations, or the model still has the given values
    others: hyperparameters to begin at if the likelihood of more observations cannot be computed at the best ones
    """

    whole: bool
    note: str
    interrupted: bool = False
    others: list[State] = field(default_factory=list)


def explore(
    model: LatentKroneckerGP,
    data: Observations,
    *,
    seed: int,
    progress: Progress | None,
    max_memory: float | None,
    operators: OperatorFactory = LatentKronecker,
) -> Exploration | None:
    """Move the hyperparameters of `model` to the best optimum on few observations; None if there is no choice."""
    part, few = small_part(data, MORE_OBSERVATIONS, seed), small_part(data, FEW_OBSERVATIONS, seed)
    lengths, given = find_lengths(model, few), get_state(model)
    candidates = compare(model, few, lengths) if lengths else []
    if not candidates:
        return None
    # Values on few observations are compared with optima on more.
    share = part.grid.num_observed / few.grid.num_observed
    margin = (PROMISING_SUM if any(removable_parts(model)) else PROMISING) * part.grid.num_observed
    whole = part.grid.num_observed == data.grid.num_observed
    optima: list[Candidate] = []
    begun: list[Candidate] = []
    waiting, interrupted = in_order(candidates), False
    while waiting and len(begun) < MOST_SEARCHES and not interrupted:
        candidate = waiting.pop(0)
        expected, best = share * candidate.value, max((one.value for one in optima), default=-np.inf)
        known = any(candidate.near(one) for one in [*begun, *optima])
        if expected <= best and (known or expected < best - margin):
            continue
        begun.append(candidate)
        set_state(model, candidate.state)
        method = plan(model, part, "auto", max_memory, fitting=True).method.for_fitting()
        objective = Objective(
            model, part, method, seed=seed, progress=progress, max_memory=max_memory, operators=operators
        )
        try:
            outcome = replace(BFGS(), improvement=COARSE_IMPROVEMENT).maximise(objective)
        except (np.linalg.LinAlgError, torch.linalg.LinAlgError):
            continue
        interrupted = outcome.interrupted
        found = replace(
            candidate,
            value=outcome.objective.best_value,
            state=get_state(model),
            positions=[one.position() for one in lengths],
        )
        waiting = [*without_vanished(model, part, lengths, found), *waiting]
        # With more observations nothing would lead back from lengths that have vanished.
        if whole or not any(one.vanished() for one in lengths):
            optima.append(found)
    if not optima:
        set_state(model, given)
        return None
    optima.sort(key=lambda one: -one.value)
    set_state(model, optima[0].state)
    place = "all" if whole else f"{part.grid.num_observed} of the"
    note = (
        f"compared {len(candidates)} starting values and searched from {len(begun)} of them on {place} observations; "
        f"the best optimum was reached from {optima[0].kind}"
    )
    if not whole and optima[0].from_given and not interrupted:
        # A larger part of the data is a better place to search from the given values.
        set_state(model, given)
        return Exploration(True, note, interrupted)
    return Exploration(whole, note, interrupted, [] if whole else [given])


def in_order(candidates: Sequence[Candidate]) -> list[Candidate]:
    """The best candidate, then the given values, which are the first of `candidates`, then the others by value."""
    ranked = sorted(candidates, key=lambda one: -one.value)
    rest = [one for one in ranked[1:] if one is not candidates[0]]
    return [ranked[0], *(candidates[:1] if ranked[0] is not candidates[0] else []), *rest]


def compare(model: LatentKroneckerGP, few: Observations, lengths: Sequence[Lengths]) -> list[Candidate]:
    """All candidates, each with the output scale and noise that suit it best; the first are the given values."""
    given, words = get_state(model), {0.0: "short", 1.0: "long"}
    made = [at_best_scale(model, few, lengths, GIVEN)]
    for positions in designs(len(lengths)):
        set_state(model, given)
        for one, position in zip(lengths, positions, strict=True):
            one.set(position)
        kind = " x ".join(words.get(position, "medium") for position in positions)
        made.append(at_best_scale(model, few, lengths, f"{kind} lengths"))
    best = sorted((found for found in made if found is not None), key=lambda found: -found.value)[:2]
    for number, part_scales in enumerate(removable_parts(model)):
        for found in best:
            set_state(model, found.state)
            multiply(model, part_scales, REMOVED)
            made.append(at_best_scale(model, few, lengths, f"{found.kind} without part {number + 1} of a sum", number))
    set_state(model, given)
    return [found for found in made if found is not None]


def without_vanished(
    model: LatentKroneckerGP, part: Observations, lengths: Sequence[Lengths], found: Candidate
) -> list[Candidate]:
    """An optimum with all lengths that have become far shorter than the distance of neighbours set back to it.

    A step that is too long leads there, and nothing leads back, since the likelihood no longer depends on the lengths.
    """
    vanished = [one for one in lengths if one.vanished()]
    if not vanished or found.set_back:
        return []
    for one in vanished:
        one.set(0.0)
    made = at_best_scale(model, part, lengths, f"{found.kind}, with lengths that had vanished set back", found.removed)
    set_state(model, found.state)
    return [] if made is None else [replace(made, set_back=True)]


def at_best_scale(
    model: LatentKroneckerGP, data: Observations, lengths: Sequence[Lengths], kind: str, removed: int = -1
) -> Candidate | None:
    """The present hyperparameters with the best output scale and noise; None if the likelihood cannot be computed."""
    scales, levels = output_scales(model), [p for p in model.noise.levels() if p.requires_grad]
    try:
        found = profile(model, data, bool(scales), bool(levels))
    except torch.linalg.LinAlgError:
        return None
    if not np.isfinite(found.value):
        return None
    multiply(model, scales, found.scale)
    multiply(model, levels, max(found.noise, found.least_noise))
    return Candidate(found.value, get_state(model), [one.position() for one in lengths], kind, removed)
