"""A posterior variance at every cell of the fitted grid, and how accurate it is."""

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
class VarianceEstimate:
    """Variances that need no draws of the posterior, or few.

    variance: (n_1, ..., n_d); doubt: their standard errors, (n_1, ..., n_d)
    source: in words, what they come from; failure: why a solve behind them did not converge, empty if all did
    """

    variance: Tensor
    doubt: Tensor
    source: str
    failure: str = ""

    @cached_property
    def error(self) -> float:
        """What the relative standard error of 99 % of the standard deviations does not exceed."""
        # That of a variance is twice that of a standard deviation.
        errors = (self.doubt / (2 * self.variance.clamp(min=1e-300))).flatten()
        return float(torch.quantile(errors[:: -(-len(errors) // MOST_JUDGED)].double(), MOST_CELLS))

    def __str__(self) -> str:
        return f"{self.source}; relative standard error at most {max(self.error, STATED):.1%} in 99 % of the cells"
