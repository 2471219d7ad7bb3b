"""How rough a field is along its factors: kernels are compared by the likelihood of parts of the field."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from gpytorch.kernels import Kernel
from gpytorch.likelihoods import GaussianLikelihood

from lkgp.data.readers import from_array
from lkgp.data.standardization import Standardization
from lkgp.fitting.objective import Progress
from lkgp.fitting.smoothness import Comparison, Form, choose_forms
from lkgp.model import LatentKroneckerGP, Mean, Noise
from lkgp.xarray.layout import Layout


@dataclass(frozen=True, eq=False)
class ChosenKernels:
    """Kernels, mean and noise with hyperparameters from parts of a field, for values of variance one.

    fitted_on: the number of observations in the parts
    whole: whether these are all observations
    tried: for every factor that had a choice, its "factor" and "candidates", the best first, each with its "name", the
        log likelihood of the parts in "nats", the number of "parameters" of the model, and its "worth" in nats
    note: the same in words, one line per factor
    """

    kernels: list[Kernel]
    mean: Mean
    noise: Noise
    fitted_on: int
    whole: bool
    tried: list[dict[str, Any]]
    notes: list[str]


def choose_kernels(
    layout: Layout,
    points: Sequence[np.ndarray],
    values: np.ndarray,
    kernels: Sequence[Kernel],
    forms: Sequence[Sequence[Form]],
    noise: GaussianLikelihood,
    *,
    seed: int,
    progress: Progress | None,
) -> ChosenKernels | None:
    """The kernels that are most likely on parts of a field; None if there is nothing to choose or to learn from.

    points: one array (n_k, d_k) per factor
    values: (n_1, ..., n_d), NaN where missing
    kernels: one per factor, for those without a choice
    forms: the choice for every factor, possibly none
    noise: where the noise starts, for values of variance one
    """
    seen = values[np.isfinite(values)]
    if not any(forms) or len(seen) < 2 or bool((seen == seen[0]).all()):
        return None
    observations = from_array(list(points), values.astype(float))
    data = Standardization.of(observations, coords=False).apply(observations)
    found = choose_forms(
        LatentKroneckerGP(list(kernels), noise=noise).double(), forms, data, seed=seed, progress=progress
    )
    if found is None:
        return None
    names = [factor.name for factor in layout.factors]
    on_all = found.parts.whole
    where = (
        "all observations" if on_all else f"{found.parts.observations} observations in {len(found.parts.parts)} parts"
    )
    return ChosenKernels(
        kernels=list(found.model.kernels),
        mean=found.model.mean,
        noise=found.model.noise,
        fitted_on=found.parts.observations,
        whole=on_all,
        tried=[
            {"factor": names[one.factor], "candidates": [dict(vars(trial)) for trial in one.trials]}
            for one in found.comparisons
        ],
        notes=[describe(one, names[one.factor], where) for one in found.comparisons],
    )


def describe(comparison: Comparison, name: str, where: str) -> str:
    """What was chosen along a factor, and how much less the other candidates were worth."""
    best, *others = comparison.trials
    rest = ", ".join(f"{trial.name} {best.worth - trial.worth:.1f}" for trial in others)
    against = f"; worth less, in nats of log likelihood after 1/2 log n for each hyperparameter: {rest}" if rest else ""
    return f"{best.name} along {name}, by the likelihood of {where}{against}"
