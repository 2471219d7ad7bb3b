"""Draws of what modes leave of the parts of a sum along an axis.

Let g be a draw of a part with the covariance K_c along the axis, in a direction of the other axes. With the modes Q and
their duals D, K_c D = Q and D^T Q = I, the draw g - Q D^T g has the covariance K_c - Q Q^T.
"""

import torch
from torch import Tensor

from lkgp.linalg.lasting_modes import LastingModes


def leftover_draws(lasting: LastingModes, num: int, generator: torch.Generator) -> Tensor:
    """Draws at every point of the axis, in the order of the factor, and of the others, (n_k, s, num)."""
    root = lasting.root
    points = len(lasting.parts[0].entries_diagonal())
    found = torch.empty(points, len(root), num, dtype=root.dtype, device=root.device)
    for column in range(num):
        # R g for the root R of the covariance of the others
        found[:, :, column] = _in_directions(lasting, generator) @ root.mT
    return found


def _in_directions(lasting: LastingModes, generator: torch.Generator) -> Tensor:
    """g at every point of the axis in every direction of the others, summed over the parts, (n_k, s)."""
    root = lasting.root
    total = torch.zeros((), dtype=root.dtype, device=root.device)
    for part, factor in enumerate(lasting.parts):
        noise = factor.noise_root()
        shape = (noise.width, len(root))
        draw = noise.times(torch.randn(shape, generator=generator, dtype=root.dtype, device=root.device))
        for one in lasting.sets:
            own = one.part == part
            # Modes are those of the leading directions of the others.
            few = draw[:, : one.others.shape[1]]
            few -= one.axis[:, own] @ (one.duals[:, own].mT @ few)
        total = total + draw
    return total
