"""Draws of what modes leave of the parts of a sum along an axis.

Let g be a draw of a part with the covariance K_c along the axis, in a direction of the other axes. With the modes Q and
their duals D, K_c D = Q and D^T Q = I, the draw g - Q D^T g has the covariance K_c - Q Q^T.
"""

import torch
from torch import Tensor

from lkgp.linalg.lasting_modes import LastingModes


def leftover_draws(lasting: LastingModes, num: int, generator: torch.Generator) -> Tensor:
    """Draws at every point of the axis, in the order of the factor, and of the others, (n_k, s, num)."""
    root, places = lasting.root, len(lasting.root)
    total = torch.zeros(0)
    for part, factor in enumerate(lasting.parts):
        noise = factor.noise_root()
        normals = torch.randn(noise.width, places * num, generator=generator, dtype=root.dtype, device=generator.device)
        draws = noise.times(normals).view(-1, places, num)
        for one in lasting.sets:
            own = one.part == part
            # Modes are those of the leading directions of the others.
            few = draws[:, : one.others.shape[1]]
            flat = few.reshape(len(draws), -1)
            few -= (one.axis[:, own] @ (one.duals[:, own].mT @ flat)).view(few.shape)
        total = draws if part == 0 else total + draws
    # R g for the root R of the covariance of the others
    return torch.einsum("ij,tjc->tic", root, total) if lasting.parts else total
