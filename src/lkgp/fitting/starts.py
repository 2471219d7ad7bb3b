"""Where a search begins: at the optima on ever larger parts of the data."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from torch import Tensor

from lkgp.data.readers import Observations
from lkgp.data.subsets import coarse_levels
from lkgp.fitting.objective import Objective, Progress
from lkgp.fitting.optimizers import BFGS
from lkgp.inference import plan
from lkgp.linalg.kronecker import LatentKronecker, OperatorFactory
from lkgp.model import LatentKroneckerGP

# What is a sufficient improvement, per observation, on data that are only a beginning.
COARSE_IMPROVEMENT = 1e-3


@dataclass(frozen=True)
class PartialSearch:
    """How the search on the largest part of the data went.

    sizes: observations of all parts, in their order
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
    sufficient: int | None,
    seed: int,
    progress: Progress | None,
    max_memory: float | None,
    operators: OperatorFactory = LatentKronecker,
) -> PartialSearch | None:
    """Move the hyperparameters of `model` to the optima on ever larger parts of the data. None if the data are too few
    for parts.

    periods: that were read off the data, of which parts would not know better; they are free in the largest part only,
        and only if it has the observations that are `sufficient` to end the search
    """
    found: PartialSearch | None = None
    sizes: tuple[int, ...] = ()
    parts = list(coarse_levels(data, seed))
    for part in parts:
        ends = sufficient is not None and part is parts[-1] and part.grid.num_observed >= sufficient
        for period in periods:
            period.requires_grad_(ends)
        if not any(p.requires_grad for p in model.parameters()):
            continue
        method = plan(model, part, "auto", max_memory, fitting=True).method.for_fitting()
        objective = Objective(
            model, part, method, seed=seed, progress=progress, max_memory=max_memory, operators=operators
        )
        start = objective.parameters.get()
        try:
            outcome = replace(BFGS(), improvement=COARSE_IMPROVEMENT).maximise(objective, from_part=found is not None)
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
