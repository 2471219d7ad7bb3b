"""How rough a function is along each factor: forms of kernels are compared by the likelihood of parts of the data.

Forms are compared factor by factor, with all hyperparameters of the model free, until the choice no longer changes. A
form is worth its log likelihood, in nats, less 1/2 log n for each hyperparameter, where n is the number of different
observations in the parts (the Bayesian information criterion): a richer form has to earn its hyperparameters.
"""

import copy
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, product

import numpy as np
import torch
from gpytorch.kernels import Kernel, RQKernel
from torch import Tensor

from lkgp.data.readers import Observations
from lkgp.data.subsets import without_empty_points
from lkgp.fitting.candidates import CLOSE, LONGEST, Lengths, designs, length_range, nearest_distances
from lkgp.fitting.composite import Ascent, Composite, maximise
from lkgp.fitting.objective import Progress
from lkgp.fitting.parts import Parts, make_parts, part_sizes
from lkgp.fitting.profile import multiply, output_scales, set_value
from lkgp.model import LatentKroneckerGP

# Ratios of noise to signal at which starting values are compared, and exponents of rational quadratic kernels: from
# heavy tails to nearly a squared exponential. Searches go on from there.
RATIOS, EXPONENTS = (1e-4, 1e-2, 1e-1), (0.1, 1.0)
# Forms with several hyperparameters of their own may have several optima: the search begins at so many starting values.
RICH_STARTS = 2
# A search with every form takes this many steps. Forms that are then further behind the best than this, in nats per
# observation, are not searched to the end: what such a search still gains is far less.
FIRST_STEPS, HOPELESS = 12, 0.03
# The choice along one factor depends on those along the others: they are compared again at most this many times, except
# forms that were so many nats behind. On two sets of simulated data in space and time, another form along the other
# factor changed such differences by at most 13 nats.
MOST_ROUNDS, FAR_BEHIND = 2, 25.0


# About how many evaluations of the composite likelihood a comparison takes for every form of every factor, and the
# multiplications of one, in units of m^3 for a part of m observations: a Cholesky factor, its inverse and products.
EVALUATIONS, CUBES = 40, 2.0


def comparison_cost(observed: int, forms: Sequence[Sequence["Form"]]) -> float:
    """About how many multiplications `choose_forms` takes for so many observations."""
    size, count = part_sizes(observed, len(forms))
    return EVALUATIONS * sum(len(some) for some in forms) * CUBES * count * float(size) ** 3


@dataclass(frozen=True, eq=False)
class Form:
    """One kernel that a factor might have.

    name: what it is called in reports
    kernel: the whole kernel of the factor; the forms of a factor differ only in the part `core`
    core: a part of `kernel`, or all of it, that has all the lengths by which the forms differ
    """

    name: str
    kernel: Kernel
    core: Kernel


@dataclass(frozen=True)
class Trial:
    """What one form was worth.

    nats: log likelihood of the parts
    parameters: the number of free hyperparameters of the model
    worth: nats less what the hyperparameters have to earn
    """

    name: str
    nats: float
    parameters: int
    worth: float


@dataclass(frozen=True)
class Comparison:
    """The forms that were compared along one factor, the best first."""

    factor: int
    trials: tuple[Trial, ...]


@dataclass(frozen=True, eq=False)
class Smoothness:
    """A model with the best forms.

    model: its hyperparameters are an optimum on the parts
    comparisons: one for each factor with several forms
    parts: on which forms were compared
    """

    model: LatentKroneckerGP
    comparisons: list[Comparison]
    parts: Parts


class Draft:
    """A model under construction: some of its factors have a form with lengths that still have to be found."""

    def __init__(self, model: LatentKroneckerGP, cores: Sequence[Kernel | None]) -> None:
        self.model, self.cores = model, list(cores)

    def with_form(self, factor: int, form: Form) -> "Draft":
        """A copy in which a factor has another form; all else stays as it is."""
        model, cores = copy.deepcopy((self.model, self.cores))
        kernel, core = copy.deepcopy((form.kernel, form.core))
        kernel.to(next(model.parameters()))
        old, old_core = model.kernels[factor], cores[factor]
        for mine, known in zip(outside(kernel, core), outside(old, old_core), strict=True):
            mine.data.copy_(known.data)
        model.terms[0].kernels[factor] = kernel  # type: ignore[index]
        cores[factor] = core
        return Draft(model, cores)

    def core(self, factor: int) -> Kernel:
        """The core of a factor that has forms."""
        found = self.cores[factor]
        assert found is not None
        return found

    def state(self) -> list[Tensor]:
        """The values of all parameters."""
        return [p.detach().clone() for p in self.model.parameters()]

    def take(self, state: Sequence[Tensor]) -> None:
        """Set the values of all parameters to those of a draft of the same forms."""
        for mine, known in zip(self.model.parameters(), state, strict=True):
            mine.data.copy_(known)

    @property
    def num_free(self) -> int:
        return sum(p.numel() for p in self.model.parameters() if p.requires_grad)


def outside(kernel: Kernel, core: Kernel | None) -> list[Tensor]:
    """The parameters of a kernel that do not belong to its core."""
    own = set() if core is None else {id(p) for p in core.parameters()}
    return [p for p in kernel.parameters() if id(p) not in own]


def choose_forms(
    model: LatentKroneckerGP,
    forms: Sequence[Sequence[Form]],
    data: Observations,
    *,
    seed: int,
    progress: Progress | None = None,
) -> Smoothness | None:
    """The best form for every factor that has several; None if the likelihood of none can be computed.

    model: mean, noise, and the kernels of the factors without forms; it is not changed
    forms: the forms of every factor, none for a factor whose kernel stays as it is. The search begins with the first
        of each.
    data: scaled to the units of the model
    """
    data = without_empty_points(data)
    parts = make_parts(data, seed)
    ranges = [length_limits(data, parts, k) for k in range(len(forms))]
    search = FormSearch(Composite(parts.parts, data, progress), ranges, parts.observations)
    begun, free = copy.deepcopy(model), [k for k, some in enumerate(forms) if some]
    kernels = [some[0].kernel if some else kernel for some, kernel in zip(forms, begun.kernels, strict=True)]
    begun.terms[0].kernels = torch.nn.ModuleList(kernels)  # type: ignore[assignment]
    draft = Draft(*copy.deepcopy((begun, [some[0].core if some else None for some in forms])))
    search.start_all(draft)
    maximise(search.composite, draft.model, FIRST_STEPS)
    found: dict[int, list[tuple[Trial, Draft]]] = {}
    for _ in range(MOST_ROUNDS):
        before = {k: one[0][0].name for k, one in found.items()}
        for k in free:
            found[k] = search.compare(draft, k, forms[k], found.get(k, []))
            if not found[k]:
                return None
            draft = found[k][0][1]
        if len(free) == 1 or before == {k: one[0][0].name for k, one in found.items()}:
            break
    comparisons = [Comparison(k, tuple(trial for trial, _ in found[k])) for k in free]
    return Smoothness(draft.model, comparisons, parts)


@dataclass(frozen=True, eq=False)
class FormSearch:
    """The search for the hyperparameters of a form.

    limits: shortest and longest lengths of every factor, in each of its columns and in all together
    observations: the number of different observations
    """

    composite: Composite
    limits: Sequence["Limits"]
    observations: int

    def start_all(self, draft: Draft) -> None:
        """Set the lengths of all cores at once, each core's to the same position between shortest and longest."""
        cores = [(k, core) for k, core in enumerate(draft.cores) if core is not None]
        begun, states = draft.state(), []
        for positions in designs(len(cores)):
            draft.take(begun)
            for (k, core), position in zip(cores, positions, strict=True):
                for one in self.limits[k].lengths(core):
                    one.set(position)
            states.append((self._to_best_scale(draft), draft.state()))
        draft.take(max(states, key=lambda one: one[0])[1])

    def compare(
        self, draft: Draft, factor: int, forms: Sequence[Form], known: Sequence[tuple[Trial, Draft]]
    ) -> list[tuple[Trial, Draft]]:
        """The forms of a factor and what each is worth, the best first; those that cannot be computed are left out.

        known: the result of an earlier comparison, when other factors had other forms
        """
        # Of forms that were far behind, the differences stay as they were.
        behind = [(trial.nats - known[0][0].nats, trial.worth - known[0][0].worth, trial, end) for trial, end in known]
        left = [one for one in behind if one[1] < -FAR_BEHIND]
        ends = {trial.name: end for _, worth, trial, end in behind if worth >= -FAR_BEHIND}
        found = []
        for form in forms:
            if known and form.name not in ends:
                continue
            begun = draft.with_form(factor, form)
            starts = [begun] if known else self._starts(begun, factor)
            if known:
                cores = zip(begun.core(factor).parameters(), ends[form.name].core(factor).parameters(), strict=True)
                for mine, old in cores:
                    mine.data.copy_(old.data)
            found.append((form.name, *self._begin(starts)))
        best = max((ascent.value for _, ascent, _ in found), default=-math.inf)
        trials = []
        for name, ascent, end in found:
            reached = ascent.value
            if not ascent.finished and reached > best - HOPELESS * self.composite.num_observed:
                reached = maximise(self.composite, end.model).value
            if math.isfinite(reached):
                trials.append((self._trial(name, reached, end), end))
        trials.sort(key=lambda one: -one[0].worth)
        if trials:
            first = trials[0][0]
            shifted = [(replace(t, nats=first.nats + n, worth=first.worth + w), end) for n, w, t, end in left]
            trials += sorted(shifted, key=lambda one: -one[0].worth)
        return trials

    def _begin(self, starts: Sequence[Draft]) -> tuple[Ascent, Draft]:
        """Where the first steps lead from the best of some starting values, which fewer parts tell."""
        if len(starts) > 1:
            starts = [max(starts, key=lambda one: maximise(self.composite.coarse, one.model, FIRST_STEPS).value)]
        return maximise(self.composite, starts[0].model, FIRST_STEPS), starts[0]

    def _trial(self, name: str, value: float, end: Draft) -> Trial:
        count = end.num_free
        return Trial(name, value, count, value - 0.5 * count * math.log(max(self.observations, 2)))

    def _starts(self, begun: Draft, factor: int) -> list[Draft]:
        """The best starting values of the core of a factor."""
        tried = sorted(self._try_starts(begun, factor), key=lambda one: -one[0])
        own = sum(p.numel() for p in begun.core(factor).parameters())
        starts = []
        for _, state in tried[: RICH_STARTS if own > 1 else 1]:
            starts.append(copy.deepcopy(begun))
            starts[-1].take(state)
        return starts

    def _try_starts(self, draft: Draft, factor: int) -> Iterator[tuple[float, list[Tensor]]]:
        """Starting values of the core of a factor, each with its log likelihood at the best output scale and noise.

        The draft takes them one after the other.
        """
        begun, core = draft.state(), draft.core(factor)
        lengths = self.limits[factor].lengths(core)
        rational = [part for part in core.modules() if isinstance(part, RQKernel)]
        for positions, exponent in product(length_positions(len(lengths)), EXPONENTS if rational else EXPONENTS[:1]):
            draft.take(begun)
            for one, position in zip(lengths, positions, strict=True):
                one.set(position)
            for part in rational:
                set_value(part.raw_alpha, part.raw_alpha_constraint, torch.full_like(part.raw_alpha, exponent))
            yield self._to_best_scale(draft), draft.state()

    def _to_best_scale(self, draft: Draft) -> float:
        """Give a draft the best output scale and noise; returns its log likelihood."""
        scales = output_scales(draft.model)
        levels = [p for p in draft.model.noise.levels() if p.requires_grad]
        if not scales or not levels:
            return self.composite.coarse.value(draft.model)
        value, scale, noise = self.composite.coarse.best_scale(draft.model, RATIOS)
        multiply(draft.model, scales, scale)
        multiply(draft.model, levels, noise)
        return value


def length_positions(count: int) -> list[tuple[float, ...]]:
    """Positions between shortest and longest for `count` lengths of one core, ascending in each."""
    if count == 1:
        return [(position,) for position in np.linspace(0.0, 1.0, 6).tolist()]
    return list(combinations(np.linspace(0.0, 1.0, max(4, count)).tolist(), count))


@dataclass(frozen=True, eq=False)
class Limits:
    """The shortest and the longest length worth trying along a factor.

    columns: both for every column, each (d_k,); together: both for a distance in all columns, each (1,)
    """

    columns: tuple[Tensor, Tensor]
    together: tuple[Tensor, Tensor]

    def lengths(self, core: Kernel) -> list[Lengths]:
        """The free lengths of a core, in order."""
        found = []
        for part in core.modules():
            if isinstance(part, Kernel) and part.has_lengthscale and part.raw_lengthscale.requires_grad:
                limits = self.together if part.raw_lengthscale.numel() == 1 else self.columns
                found.append(Lengths(part, *limits))
        return found


def length_limits(data: Observations, parts: Parts, factor: int) -> Limits:
    """From the distance of neighbours, in the part that has them, to beyond the extent of all points of a factor."""
    near, every = parts.parts[0].grid.coords[factor].double(), data.grid.coords[factor].double()
    spread = every.std(dim=0, correction=0)
    extent = LONGEST * spread.square().sum().sqrt().view(1)
    extent = torch.where(extent > 0, extent, torch.ones_like(extent))
    nearest = nearest_distances(near)
    shortest = nearest.quantile(CLOSE).view(1) if len(nearest) else extent
    longest = LONGEST * every.shape[1] ** 0.5 * torch.where(spread > 0, spread, torch.ones_like(spread))
    return Limits((torch.minimum(length_range(near)[0], longest), longest), (torch.minimum(shortest, extent), extent))
