"""A length far beyond the extent of the points no longer matters, and nothing leads back from there.

A step that is too long, or an optimum on a part of the data, leaves a length where the likelihood is flat, although a
much shorter one may be better. When a search has ended, such lengths are set back to where they begin to matter.
"""

from collections.abc import Sequence

import numpy as np
import torch

from lkgp.fitting.candidates import Lengths
from lkgp.fitting.exploration import State, get_state, set_state
from lkgp.fitting.objective import Objective
from lkgp.fitting.profile import set_value

# Lengths are set back if they exceed the longest one that is worth trying by this factor, which was chosen and not
# measured: whether such a length matters is decided by the gradient.
TOO_LONG = 2.0


def shorter_start(objective: Objective, lengths: Sequence[Lengths]) -> State | None:
    """Hyperparameters with lengths set back that the likelihood then wants even shorter; None if there are none.

    The model of the objective is not changed.
    """
    before = get_state(objective.model)
    changed: dict[int, np.ndarray] = {}
    for one in lengths:
        raw, length = one.kernel.raw_lengthscale, one.kernel.lengthscale.detach()
        longest = one.longest.to(length)
        longest = longest.log().mean().exp() if length.numel() == 1 else longest
        far = length.view(-1) > TOO_LONG * longest
        if bool(far.any()):
            back = length.view(-1).where(~far, longest)
            set_value(raw, one.kernel.raw_lengthscale_constraint, back.view(length.shape))
            changed[id(raw)] = far.cpu().numpy()
    if not changed:
        return None
    here = objective.evaluate(value=objective.method.exact)
    found = False
    for p, old in zip(objective.model.parameters(), before, strict=True):
        if id(p) in changed and here.solved and bool(np.isfinite(here.gradient).all()):
            # A length that should become longer again is where it belongs, or does not matter.
            shorter = changed[id(p)] & (here.gradient[list(objective.parameters.positions(p))] < 0)
            keep = torch.as_tensor(shorter, device=p.device).view(p.shape)
            p.data.copy_(p.data.where(keep, old))
            found = found or bool(shorter.any())
    state = get_state(objective.model)
    set_state(objective.model, before)
    return state if found else None
