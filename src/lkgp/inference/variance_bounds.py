"""Bounds of the posterior variance at every cell of the fitted grid."""

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

# What 99 % of the cells do not exceed is stated.
MOST_CELLS = 0.99
# At most so many cells are looked at for that: `torch.quantile` takes no more.
MOST_JUDGED = 2**23
# No smaller error is stated in words.
STATED = 1e-3


@dataclass(frozen=True, eq=False)
class VarianceBounds:
    """lower <= v <= lower + gap, in the mean over the draws from which some of it is estimated.

    lower, gap: (n_1, ..., n_d); scatter: the standard error of their mean, (n_1, ..., n_d)
    source: in words, what they come from
    """

    lower: Tensor
    gap: Tensor
    scatter: Tensor
    source: str

    @property
    def variance(self) -> Tensor:
        """The middle, (n_1, ..., n_d)."""
        return self.lower + self.gap / 2

    def __str__(self) -> str:
        return f"{self.source}; relative error at most {max(self.error, STATED):.1%} in 99 % of the cells"

    @cached_property
    def error(self) -> float:
        """What the relative error of 99 % of the standard deviations does not exceed, if the scatter is as expected."""
        # That of a variance is twice that of a standard deviation.
        errors = ((self.gap / 2 + self.scatter) / (2 * self.variance.clamp(min=1e-300))).flatten()
        step = -(-len(errors) // MOST_JUDGED)
        return float(torch.quantile(errors[::step].double(), MOST_CELLS))
