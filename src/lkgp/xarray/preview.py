"""What is known before a fit: what is missing, how it would be filled, and what that would cost."""

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from lkgp.data.subsets import largest_part
from lkgp.gp import LKGP
from lkgp.xarray.coordinate_scaling import flatten_coords
from lkgp.xarray.gaps import Gaps
from lkgp.xarray.layout import Layout
from lkgp.xarray.time_series import to_series

# About how many evaluations of the likelihood a fit takes on all observations, or on the part of them on which it may
# end. The predicted time of the fit is proportional to this.
EVALUATIONS = 12
# Bytes that Python takes with torch and xarray before it has any data, and how many float64 arrays of the size of the
# field are in memory at once.
BASE_MEMORY, FIELD_ARRAYS = 0.4e9, 6
# The speed of the machine is that of the fastest of several matrix products of this size. Each takes a millisecond, so
# that at least one is not interrupted by what else runs: on a busy core with 25 billion multiplications a second, 23
# were found, but between 2 and 4 with sizes of 512 and 1024.
SPEED_TEST_SIZE, SPEED_TESTS = 256, 20


@dataclass(frozen=True)
class Preview:
    """What is known before a fit.

    name: the name of the field
    cells, observed: the number of cells of the grid, and of those observed
    never: the number of cells at places without any observation; they are not part of the grid
    gaps: the pattern of the gaps
    where: one line per factor: how much is missing along it, and where the most
    factors: one description per factor
    method: how inference would be done with the kernels and hyperparameters at which a fit, or the choice, starts
    seconds, memory: estimates for fitting and filling together; memory in bytes
    notes: choices that were made automatically
    """

    name: str
    cells: int
    observed: int
    never: int
    gaps: str
    where: list[str]
    factors: list[str]
    method: str
    seconds: float
    memory: float
    notes: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        never = f"; {self.never} more cells are at places without any observation" if self.never else ""
        lines = [
            f"field    {self.name}: {self.observed} of {self.cells} cells observed; {self.gaps}{never}",
            *(f"missing  {line}" for line in self.where),
            f"factors  {'; '.join(self.factors)}",
            f"method   {self.method}",
            f"estimate {format_duration(self.seconds)} and {self.memory / 1e9:.1f} GB of memory",
        ]
        return "\n".join(lines + [f"note     {note}" for note in self.notes])

    def to_dict(self) -> dict[str, Any]:
        return dict(vars(self))


def format_duration(seconds: float) -> str:
    """A duration that is known only roughly."""
    if seconds < 10:
        return "a few seconds"
    return f"about {seconds:.0f} seconds" if seconds < 90 else f"about {seconds / 60:.0f} minutes"


def make_preview(
    gp: LKGP,
    layout: Layout,
    points: Sequence[np.ndarray],
    values: np.ndarray,
    *,
    sufficient_observations: int,
    fitted_on_all: bool = True,
    beforehand: float = 0.0,
    notes: Sequence[str] = (),
) -> Preview:
    """What fitting `gp` to a field would take; nothing is fitted.

    points: one array (n_k, d_k) per factor
    values: (n_1, ..., n_d), NaN where missing
    sufficient_observations: the fit may end on a part of the data with at least this many observations
    fitted_on_all: whether hyperparameters are fitted after kernels have been chosen
    beforehand: the multiplications that are done before the fit, to choose kernels
    """
    after = gp.plan(points, values)
    # One evaluation of the likelihood costs far less than all samples.
    fitting = gp.plan(points, values, fitting=True) if fitted_on_all else after
    observed, missing = int(np.isfinite(values).sum()), np.isnan(values)
    part = largest_part(observed)
    share = part / observed if part >= sufficient_observations else 1.0
    costs = [(EVALUATIONS * share if fitted_on_all else 0.0, fitting.cost), (1.0, after.cost)]
    multiplications = beforehand + sum(times * cost.multiplications for times, cost in costs if cost is not None)
    # Without a cost there is no prediction of the memory of the solves.
    memory = max(fitting.cost.memory, after.cost.memory) if fitting.cost and after.cost else 0.0
    pattern = str(Gaps.of(to_series(~missing, layout))) if layout.time is not None else f"{missing.mean():.1%} missing"
    return Preview(
        name=str(layout.field.name if layout.field.name is not None else "field"),
        cells=int(values.size),
        observed=observed,
        never=int(layout.field.size - values.size),
        gaps=pattern,
        where=[where_missing(missing, layout, axis) for axis in range(values.ndim)] if missing.any() else [],
        factors=[str(factor) for factor in layout.factors],
        method=after.why,
        seconds=multiplications / multiplications_per_second(),
        memory=BASE_MEMORY + FIELD_ARRAYS * 8.0 * layout.field.size + memory,
        notes=list(notes),
    )


def where_missing(missing: np.ndarray, layout: Layout, axis: int) -> str:
    """How much is missing along one factor, and where the most; missing: (n_1, ..., n_d)."""
    shares = missing.mean(axis=tuple(k for k in range(missing.ndim) if k != axis))
    factor, worst = layout.factors[axis], int(np.argmax(shares))
    position = int(np.flatnonzero(layout.on_grid[axis])[worst])
    at = ", ".join(
        f"{name} {format_label(values[position])}"
        for name, values in zip(factor.coords, flatten_coords(factor, layout.field.coords), strict=True)
    )
    return f"along {factor.name}: {shares.min():.0%} to {shares.max():.0%}, the most at {at}"


def format_label(label: Any) -> str:
    """A label as people write it."""
    if isinstance(label, np.datetime64):
        return str(label.astype("datetime64[m]")).removesuffix("T00:00").replace("T", " ")
    return f"{label:g}" if isinstance(label, (float, np.floating)) else str(label)


def multiplications_per_second() -> float:
    """The speed of this machine in a matrix product in float64."""
    matrix, fastest = torch.rand(SPEED_TEST_SIZE, SPEED_TEST_SIZE, dtype=torch.float64), math.inf
    for _ in range(SPEED_TESTS):  # the first product also starts threads
        began = time.perf_counter()
        matrix @ matrix
        fastest = min(fastest, time.perf_counter() - began)
    return SPEED_TEST_SIZE**3 / fastest
