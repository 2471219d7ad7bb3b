"""Starting values of periods: the lag at which the data repeat themselves.

The likelihood of a periodic kernel has separate local optima near fractions of the period, and a search that starts
near a wrong one ends there. The autocorrelation of the data reveals the right one directly.
"""

import torch
from gpytorch.kernels import PeriodicKernel
from torch import Tensor

from lkgp.data.readers import Observations
from lkgp.model import LatentKroneckerGP

# Lags up to LONGEST_LAG times the extent of the factor are considered: longer ones have few pairs. A peak of the
# autocorrelation counts if it rises by at least LEAST_CORRELATION and by SIGNIFICANT standard errors.
LONGEST_LAG, LEAST_CORRELATION, SIGNIFICANT = 0.6, 0.1, 6.0
# The period is the shortest lag whose peak rises at least this fraction of the highest one; higher peaks at longer lags
# are at multiples of the period.
NEARLY = 0.8
# The maximum number of fibres used for the autocorrelation: it trades accuracy against time and memory.
MOST_FIBRES = 500


@torch.no_grad()
def start_periods(model: LatentKroneckerGP, data: Observations) -> tuple[list[Tensor], list[str]]:
    """Set every period that still has its default value to the lag at which the data repeat themselves.

    Returns the parameters that were set, and notes for the report.
    """
    moved, notes = [], []
    for k, kernel in [(k, kernel) for term in model.terms for k, kernel in enumerate(term.kernels)]:
        for part in kernel.modules():
            if not isinstance(part, PeriodicKernel) or part.period_length.numel() != 1:
                continue
            raw = part.raw_period_length
            # GPyTorch's default is a raw value of zero.
            if not raw.requires_grad or bool((raw != 0).any()) or data.grid.coords[k].shape[1] != 1:
                continue
            period = repetition(data, k)
            constraint = part.raw_period_length_constraint
            if period is not None and bool(constraint.check(torch.tensor(period))):
                part.period_length = period
                moved.append(raw)
                notes.append(f"the period of factor {k} starts at {period:.4g}, where the data repeat themselves")
    return moved, notes


def repetition(data: Observations, axis: int) -> float | None:
    """The shortest lag along `axis` at which the autocorrelation nearly has its highest peak; None without a peak."""
    grid, x = data.grid, data.grid.coords[axis][:, 0].double()
    if len(x) < 8:
        return None
    cells = (
        grid.scatter(data.values.double() - data.values.double().mean()).view(grid.shape).movedim(axis, 0).flatten(1)
    )
    observed = grid.observed.movedim(axis, 0).flatten(1).double()
    fullest = torch.topk(observed.sum(dim=0), min(MOST_FIBRES, cells.shape[1])).indices
    cells, observed = cells[:, fullest], observed[:, fullest]
    products, pairs = cells @ cells.mT, observed @ observed.mT
    step = float((x.max() - x.min()) / (len(x) - 1))
    bins = ((x[:, None] - x).abs() / step).round().long().flatten()
    total = torch.zeros(len(x), dtype=torch.float64).index_add_(0, bins.cpu(), products.flatten().cpu())
    count = torch.zeros(len(x), dtype=torch.float64).index_add_(0, bins.cpu(), pairs.flatten().cpu())
    correlation = (total / count.clamp(min=1))[: int(LONGEST_LAG * len(x))]
    correlation = correlation / correlation[0].clamp(min=1e-300)
    falling = torch.nonzero(correlation[1:] > correlation[:-1]).flatten()
    if not len(falling):
        return None
    valley = int(falling[0])
    inner = torch.arange(max(valley, 1), len(correlation) - 1)
    is_peak = (correlation[inner] >= correlation[inner - 1]) & (correlation[inner] > correlation[inner + 1])
    peaks = inner[is_peak]
    rise = correlation[peaks] - torch.cummin(correlation, dim=0).values[peaks]
    # Every pair is counted twice; the mean of m products of unrelated values has a standard error of 1 / sqrt(m).
    clear = rise > torch.maximum(SIGNIFICANT / (count[peaks] / 2).sqrt(), torch.tensor(LEAST_CORRELATION))
    peaks, rise = peaks[clear], rise[clear]
    if not len(peaks):
        return None
    return float(peaks[torch.nonzero(rise >= NEARLY * rise.max()).flatten()[0]]) * step
