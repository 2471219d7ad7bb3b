"""Default kernels, from what the points of a factor are."""

import numpy as np
from gpytorch.kernels import Kernel, MaternKernel, PeriodicKernel, ScaleKernel

from lkgp.xarray.points import NUMBERS, Ruler

# Days in a year, by calendar; 365.2425 in those that are not here.
YEAR = {"noleap": 365.0, "365_day": 365.0, "all_leap": 366.0, "366_day": 366.0, "360_day": 360.0, "julian": 365.25}
# A cycle is looked for if at least so many samples fall into it, and if the data span so many of it.
SAMPLES_A_CYCLE, DAYS_SEEN, YEARS_SEEN = 4.0, 3.0, 1.5
# Where lengths start: so many steps of time; for a cycle, how long it keeps its shape, in cycles, and how smooth it is.
FIRST_STEPS, FIRST_CYCLES, FIRST_SHAPE = 10.0, 10.0, 1.0


def default_kernels(rulers: list[Ruler], points: list[np.ndarray]) -> tuple[list[Kernel], list[str]]:
    """One kernel a factor, of which one has the output scale, and notes about the cycles that were put in.

    points: of each factor, (n_k, d_k)
    """
    kernels, notes = [], []
    for ruler, x in zip(rulers, points, strict=True):
        kernel, cycles = over_time(ruler, x[:, 0]) if ruler.factor.kind == "time" else (plain(ruler, x.shape[1]), [])
        kernels.append(kernel)
        notes += [f"a {cycle} cycle along {ruler.factor.name}" for cycle in cycles]
    if not any(ruler.factor.kind == "time" for ruler in rulers):
        kernels[0] = ScaleKernel(kernels[0])
    return kernels, notes


def plain(ruler: Ruler, columns: int) -> Kernel:
    """Matern-5/2 with one length for places and for categories, and one a column otherwise."""
    kind = ruler.factor.kind
    if kind == "sphere" and columns > 3:
        return MaternKernel(nu=2.5, active_dims=(0, 1, 2)) * MaternKernel(nu=2.5, active_dims=(3,))
    return (
        MaternKernel(nu=2.5)
        if kind in ("sphere", "longitude", "category")
        else MaternKernel(nu=2.5, ard_num_dims=columns)
    )


def over_time(ruler: Ruler, x: np.ndarray) -> tuple[Kernel, list[str]]:
    """Matern-5/2, and a daily and a yearly cycle, that change slowly, where sampling and span allow to see them."""
    unit = ruler.scale[0]
    ordered = np.unique(x)
    step, span = (
        (float(np.median(np.diff(ordered))), float(ordered[-1] - ordered[0])) if len(ordered) > 1 else (1.0, 0.0)
    )
    weather = MaternKernel(nu=2.5)
    weather.lengthscale = FIRST_STEPS * step
    kernel: Kernel = ScaleKernel(weather)
    cycles = []
    year = YEAR.get(ruler.calendar, 365.2425)
    for name, period, seen in (("daily", 1.0 / unit, DAYS_SEEN), ("yearly", year / unit, YEARS_SEEN)):
        if ruler.calendar != NUMBERS and step * SAMPLES_A_CYCLE <= period * (1 + 1e-6) and span >= seen * period:
            kernel = kernel + ScaleKernel(cycle(period))
            cycles.append(name)
    return kernel, cycles


def cycle(period: float) -> Kernel:
    """A cycle of a known period whose shape changes slowly."""
    repeats = PeriodicKernel()
    repeats.period_length = period
    repeats.raw_period_length.requires_grad_(False)
    repeats.lengthscale = FIRST_SHAPE
    changes = MaternKernel(nu=2.5)
    changes.lengthscale = FIRST_CYCLES * period
    return repeats * changes
