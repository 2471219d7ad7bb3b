"""Default kernels, chosen by the kind of points of each factor."""

import numpy as np
from gpytorch.kernels import Kernel, MaternKernel, PeriodicKernel, ScaleKernel

from lkgp.xarray.coordinate_scaling import PLAIN_NUMBERS, CoordinateScaling

# Days per year by calendar; 365.2425 in any other calendar.
DAYS_PER_YEAR = {
    "noleap": 365.0,
    "365_day": 365.0,
    "all_leap": 366.0,
    "366_day": 366.0,
    "360_day": 360.0,
    "julian": 365.25,
}
# A cycle gets a kernel of its own if it is sampled at least this often per period (two samples would be the Nyquist
# limit; four also show its shape) ...
SAMPLES_PER_CYCLE = 4.0
# ... and if the data span at least this many days or years; with fewer, it is hard to tell from other variation.
MIN_DAYS, MIN_YEARS = 3.0, 1.5
# Where length scales start: in steps of time; for a cycle, how many periods it keeps its shape, and how smooth the
# shape is. The fit changes them.
FIRST_STEPS, FIRST_PERIODS, FIRST_SMOOTHNESS = 10.0, 10.0, 1.0


def default_kernels(scalings: list[CoordinateScaling], points: list[np.ndarray]) -> tuple[list[Kernel], list[str]]:
    """One kernel per factor, exactly one factor with output scales, and notes about the cycles that were included.

    points: the points with observations, one array (n_k, d_k) per factor
    """
    kernels, notes = [], []
    for scaling, x in zip(scalings, points, strict=True):
        if scaling.factor.kind == "time":
            kernel, cycles = time_kernel(scaling, x[:, 0])
            notes += [f"a {cycle} cycle along {scaling.factor.name}" for cycle in cycles]
        else:
            kernel = matern_kernel(scaling, x.shape[1])
        kernels.append(kernel)
    if not any(scaling.factor.kind == "time" for scaling in scalings):
        kernels[0] = ScaleKernel(kernels[0])
    return kernels, notes


def matern_kernel(scaling: CoordinateScaling, columns: int) -> Kernel:
    """Matern-5/2 with a single length scale for places and categories, otherwise with one per column."""
    kind = scaling.factor.kind
    if kind == "sphere" and columns > 3:
        return MaternKernel(nu=2.5, active_dims=(0, 1, 2)) * MaternKernel(nu=2.5, active_dims=(3,))
    if kind in ("sphere", "longitude", "category"):
        return MaternKernel(nu=2.5)
    return MaternKernel(nu=2.5, ard_num_dims=columns)


def time_kernel(scaling: CoordinateScaling, x: np.ndarray) -> tuple[Kernel, list[str]]:
    """Matern-5/2 plus slowly changing daily and yearly cycles where the times can resolve them; and their names.

    x: the scaled times, (t,)
    """
    unit = scaling.scale[0]
    ordered = np.unique(x)
    step, span = 1.0, 0.0
    if len(ordered) > 1:
        step, span = float(np.median(np.diff(ordered))), float(ordered[-1] - ordered[0])
    weather = MaternKernel(nu=2.5)
    weather.lengthscale = FIRST_STEPS * step
    kernel: Kernel = ScaleKernel(weather)
    cycles = []
    year = DAYS_PER_YEAR.get(scaling.calendar, 365.2425)
    for name, period, min_periods in (("daily", 1.0 / unit, MIN_DAYS), ("yearly", year / unit, MIN_YEARS)):
        resolved = step * SAMPLES_PER_CYCLE <= period * (1 + 1e-6) and span >= min_periods * period
        if scaling.calendar != PLAIN_NUMBERS and resolved:
            kernel = kernel + ScaleKernel(cycle_kernel(period))
            cycles.append(name)
    return kernel, cycles


def cycle_kernel(period: float) -> Kernel:
    """A cycle of a known period whose shape changes slowly."""
    repeats = PeriodicKernel()
    repeats.period_length = period
    repeats.raw_period_length.requires_grad_(False)
    repeats.lengthscale = FIRST_SMOOTHNESS
    changes = MaternKernel(nu=2.5)
    changes.lengthscale = FIRST_PERIODS * period
    return repeats * changes
