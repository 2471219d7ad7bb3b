"""What a fit will take, before it begins."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from lkgp.data.readers import Observations, from_array
from lkgp.data.scaling import Scaling
from lkgp.data.subsets import largest_part
from lkgp.gp import LKGP
from lkgp.inference.methods import plan
from lkgp.model.model import LatentKroneckerGP
from lkgp.xarray.field import Layout
from lkgp.xarray.gaps import Gaps
from lkgp.xarray.points import flat

# A fit takes about so many evaluations of the likelihood on the whole data, or on the part on which it may end.
EVALUATIONS = 12
# What a program with torch and xarray takes before it has any data, and arrays of the size of the field that are held at once.
BASE_MEMORY, FIELD_ARRAYS = 0.4e9, 6
# The machine's speed is measured on a product of matrices of this size.
MEASURED = 1024


@dataclass(frozen=True)
class Outlook:
    """What is known before a fit.

    name: of the field; cells: of the grid; observed: of them; never: cells of places at which nothing was ever observed
    gaps: what they look like; where: along each factor, the share that is missing, and the point with the largest
    factors: in words; method: how it would be done with the hyperparameters at which a fit starts
    seconds, memory: predicted, of fit and filling together; neither is a promise
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
        never = f"; {self.never} further cells are at places where nothing was ever observed" if self.never else ""
        lines = [
            f"field    {self.name}: {self.observed} of {self.cells} cells observed; {self.gaps}{never}",
            *(f"missing  {line}" for line in self.where),
            f"factors  {'; '.join(self.factors)}",
            f"method   {self.method}",
            f"will take about {in_words(self.seconds)} and {self.memory / 1e9:.1f} GB of memory",
        ]
        return "\n".join(lines + [f"note     {note}" for note in self.notes])

    def to_dict(self) -> dict[str, Any]:
        return dict(vars(self))


def in_words(seconds: float) -> str:
    if seconds < 10:
        return "some seconds"
    return f"{seconds:.0f} seconds" if seconds < 90 else f"{seconds / 60:.0f} minutes"


def look_ahead(
    gp: LKGP, layout: Layout, points: Sequence[np.ndarray], values: np.ndarray, notes: Sequence[str]
) -> Outlook:
    """What fitting `gp`, which has kernels, to values (n_1, ..., n_d) would take."""
    assert gp.kernels is not None
    data = from_array(points, values)
    scaling = Scaling.standard(data.values.double())
    data = Observations(data.grid, scaling.apply(data.values.double()), data.counts.double())
    model = LatentKroneckerGP(list(gp.kernels), noise=gp.noise).double()
    fitting = plan(model, data, gp.solver, gp.max_memory, fitting=True).cost
    after = plan(model, data, gp.solver, gp.max_memory)
    part, enough = largest_part(data.grid.num_observed), getattr(gp.optimizer, "enough", None)
    share = part / data.grid.num_observed if enough is not None and part >= enough else 1.0
    work = (EVALUATIONS * share * fitting.multiplications if fitting else 0.0) + (
        after.cost.multiplications if after.cost else 0.0
    )
    memory = max(cost.memory for cost in (fitting, after.cost) if cost) if fitting and after.cost else 0.0
    return Outlook(
        name=str(layout.field.name if layout.field.name is not None else "field"),
        cells=int(values.size),
        observed=int(data.grid.num_observed),
        never=int(layout.field.size - values.size),
        gaps=str(Gaps.of(series(np.isfinite(values), layout)))
        if layout.time is not None
        else f"{np.isnan(values).mean():.1%} missing",
        where=[where_missing(~np.isfinite(values), layout, axis) for axis in range(values.ndim)]
        if np.isnan(values).any()
        else [],
        factors=[str(factor) for factor in layout.factors],
        method=after.why,
        seconds=work / multiplications_a_second(),
        memory=BASE_MEMORY + FIELD_ARRAYS * 8.0 * layout.field.size + memory,
        notes=list(notes),
    )


def where_missing(missing: np.ndarray, layout: Layout, axis: int) -> str:
    """How much is missing along one factor, and where the most; missing: (n_1, ..., n_d)."""
    shares = (
        missing.mean(axis=tuple(k for k in range(missing.ndim) if k != axis))
        if missing.ndim > 1
        else missing.astype(float)
    )
    factor, worst = layout.factors[axis], int(np.argmax(shares))
    position = int(np.flatnonzero(layout.kept[axis])[worst])
    at = ", ".join(
        f"{name} {shown(values[position])}"
        for name, values in zip(factor.coords, flat(factor, layout.field.coords), strict=True)
    )
    return f"along {factor.name}: {shares.min():.0%} to {shares.max():.0%}, the most at {at}"


def shown(label: Any) -> str:
    """A label as people write it."""
    if isinstance(label, np.datetime64):
        return str(label.astype("datetime64[m]")).removesuffix("T00:00").replace("T", " ")
    return f"{label:g}" if isinstance(label, (float, np.floating)) else str(label)


def time_axis(layout: Layout) -> int:
    """The axis of time, or the last where there is none."""
    return next((k for k, factor in enumerate(layout.factors) if factor.kind == "time"), len(layout.factors) - 1)


def series(cells: np.ndarray, layout: Layout) -> np.ndarray:
    """Cells (n_1, ..., n_d) as (m, t): series in time, or along the last factor where there is no time."""
    axis = time_axis(layout)
    return np.moveaxis(cells, axis, -1).reshape(-1, cells.shape[axis])[:, time_order(layout)]


def from_series(rows: np.ndarray, shape: tuple[int, ...], layout: Layout) -> np.ndarray:
    """The inverse of `series`: rows (m, t) as cells of a shape (n_1, ..., n_d)."""
    axis = time_axis(layout)
    others = [n for k, n in enumerate(shape) if k != axis]
    return np.moveaxis(rows[:, np.argsort(time_order(layout))].reshape(*others, shape[axis]), -1, axis)


def time_order(layout: Layout) -> np.ndarray:
    """The positions of the times from the first to the last, whatever their order in the field, (t,)."""
    axis = time_axis(layout)
    if layout.time is None:
        return np.arange(int(layout.kept[axis].sum()))
    return np.argsort(layout.points()[axis][:, 0], kind="stable")


def multiplications_a_second() -> float:
    """Of a matrix product in float64, as measured now."""
    matrix = torch.rand(MEASURED, MEASURED, dtype=torch.float64)
    matrix @ matrix
    began = time.perf_counter()
    matrix @ matrix
    return MEASURED**3 / (time.perf_counter() - began)
