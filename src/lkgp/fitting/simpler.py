"""A sum of kernels contains simpler models, and a fit must not end below them.

When a search has ended, each part of a sum is removed in turn, and the rest is improved. If the likelihood is then
larger, the search begins again there, with the part at a small scale.
"""

import copy
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from lkgp.fitting.candidates import removable_parts
from lkgp.fitting.exploration import REMOVED, State, get_state
from lkgp.fitting.objective import Objective
from lkgp.fitting.optimizers import Optimizer
from lkgp.fitting.profile import multiply
from lkgp.model import LatentKroneckerGP

# The scale of a removed part, relative to its own: nothing of it is left.
NOTHING = 1e-8
# A part that is worth more than this, in nats per observation, is not removed.
INDISPENSABLE = 0.02


@dataclass(frozen=True, eq=False)
class SimplerStart:
    """Hyperparameters near the optimum of a simpler model.

    value: the objective at that optimum
    part: which part of a sum it lacks, counted from 1
    """

    state: State
    value: float
    part: int


def simpler_start(
    model: LatentKroneckerGP,
    value_of: Callable[[LatentKroneckerGP], float],
    objective_of: Callable[[LatentKroneckerGP], Objective],
    optimizer: Optimizer,
) -> SimplerStart | None:
    """Hyperparameters near a simpler model that is better than `model`; None if there is none.

    value_of: the log likelihood plus log prior of a model
    objective_of: the same as the objective of a search
    """
    found, best = None, None
    for number, scales in enumerate(removable_parts(model)):
        best = value_of(model) if best is None else best
        simple = copy.deepcopy(model)
        removed = list(removable_parts(simple))[number]
        multiply(simple, removed, NOTHING)
        for p in removed:
            p.requires_grad_(False)
        try:
            objective = objective_of(simple)
            if value_of(simple) < best - INDISPENSABLE * objective.num_observed:
                continue
            optimizer.maximise(objective)
            value = value_of(simple)
        except (np.linalg.LinAlgError, torch.linalg.LinAlgError):
            continue
        if value > best:
            for p, given in zip(removed, scales, strict=True):
                p.data.copy_(given.data)
            multiply(simple, removed, REMOVED)
            found, best = SimplerStart(get_state(simple), value, number + 1), value
    return found
