"""Starting values for a search: the optima on subsets of the data of increasing size."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from torch import Tensor

from lkgp.data.readers import Observations
from lkgp.data.subsets import coarse_levels, largest_part
from lkgp.fitting.exploration import COARSE_IMPROVEMENT, PROMISING, State, get_state, set_state
from lkgp.fitting.objective import Objective, Progress
from lkgp.fitting.optimizers import BFGS
from lkgp.inference import plan
from lkgp.linalg.kronecker import LatentKronecker, OperatorFactory
from lkgp.model import LatentKroneckerGP


@dataclass(frozen=True)
class PartialSearch:
    """How the search on the largest subset of the data went.

    sizes: the number of observations in each subset, in ascending order
    """

    sizes: tuple[int, ...]
    converged: bool
    reason: str
    interrupted: bool
    history: list[float]
    products: int

    @property
    def observations(self) -> int:
        return self.sizes[-1]

    @property
    def note(self) -> str:
        sizes = ", then ".join(str(size) for size in self.sizes)
        return f"started from the optimum on {sizes} of the observations"


def search_parts(
    model: LatentKroneckerGP,
    data: Observations,
    periods: Sequence[Tensor],
    *,
    others: list[State],
    from_part: bool,
    only_sufficient: bool,
    sufficient: int | None,
    seed: int,
    progress: Progress | None,
    max_memory: float | None,
    operators: OperatorFactory = LatentKronecker,
) -> PartialSearch | None:
    """Move the hyperparameters of `model` to their optima on subsets of increasing size; None without subsets.

    There are no subsets if the data are too few.

    periods: periods that were set from all data, which subsets cannot improve; they are free only on the largest
        subset, and only if it has the `sufficient` number of observations to end the search
    others: further hyperparameters at which a search may begin; see `begin_where_possible`
    from_part: whether the present hyperparameters are an optimum on few observations
    only_sufficient: whether subsets are left out that cannot end the search
    """
    found: PartialSearch | None = None
    sizes: tuple[int, ...] = ()
    if only_sufficient and (sufficient is None or largest_part(data.grid.num_observed) < sufficient):
        return None
    parts = list(coarse_levels(data, seed))
    for part in parts:
        ends = sufficient is not None and part is parts[-1] and part.grid.num_observed >= sufficient
        if only_sufficient and not ends:
            continue
        for period in periods:
            period.requires_grad_(ends)
        if not any(p.requires_grad for p in model.parameters()):
            continue
        method = plan(model, part, "auto", max_memory, fitting=True).method.for_fitting()
        objective = Objective(
            model, part, method, seed=seed, progress=progress, max_memory=max_memory, operators=operators
        )
        begin_where_possible(objective, others)
        start = objective.parameters.get()
        try:
            outcome = replace(BFGS(), improvement=COARSE_IMPROVEMENT).maximise(
                objective, from_part=from_part or found is not None
            )
        except np.linalg.LinAlgError:
            objective.parameters.set(start)
            break
        sizes = (*sizes, part.grid.num_observed)
        found = PartialSearch(
            sizes,
            outcome.converged,
            outcome.reason,
            outcome.interrupted,
            outcome.objective.history,
            outcome.objective.products,
        )
        if outcome.interrupted:
            return found
    return found


def begin_where_possible(objective: Objective, others: list[State]) -> bool:
    """Move the model to one of `others` if the objective cannot be computed at its present hyperparameters.

    An optimum on few observations may have a noise so small that the equations of all of them cannot be solved.
    Returns whether the model was moved.
    """
    present = get_state(objective.model)
    for state in others:
        # The errors of the solves must be small compared with what a search may gain.
        here = objective.evaluate(value=objective.method.exact, expected=PROMISING * objective.num_observed)
        if here.solved and bool(np.isfinite(here.gradient).all()):
            break
        set_state(objective.model, state)
    return any(not bool((a == b).all()) for a, b in zip(present, get_state(objective.model), strict=True))
