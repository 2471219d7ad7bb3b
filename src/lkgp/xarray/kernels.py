"""Default kernels, and those among which the likelihood chooses, by the kind of points of each factor."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from gpytorch.kernels import Kernel, MaternKernel, PeriodicKernel, RQKernel, ScaleKernel

from lkgp.fitting.smoothness import Form
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


class Columns(NamedTuple):
    """Which columns of a factor a kernel reads.

    lengths: the number of length scales; None for a single one
    active: the columns; None for all
    """

    lengths: int | None = None
    active: tuple[int, ...] | None = None


def matern(nu: float) -> Callable[[Columns], Kernel]:
    """A function that makes a Matern kernel."""
    return lambda columns: MaternKernel(nu=nu, ard_num_dims=columns.lengths, active_dims=columns.active)


def rational_quadratic(columns: Columns) -> Kernel:
    """A mixture of many scales, from short to long."""
    return RQKernel(ard_num_dims=columns.lengths, active_dims=columns.active)


def two_scales(columns: Columns) -> Kernel:
    """A rough part, and a smoother one that is meant for longer distances, with a scale relative to the first."""
    return matern(0.5)(columns) + ScaleKernel(matern(1.5)(columns))


# The kernels among which the likelihood chooses for places, times and other numbers; another candidate is one more
# entry. The comparison begins with the first, which is neither the roughest nor the smoothest.
SHAPES: dict[str, Callable[[Columns], Kernel]] = {
    "Matern-3/2": matern(1.5),
    "Matern-1/2": matern(0.5),
    "Matern-5/2": matern(2.5),
    "rational quadratic": rational_quadratic,
    "Matern-1/2 + Matern-3/2": two_scales,
}
# Smoothness can only be seen along a factor with at least this many points with observations; with fewer, and for
# categories, which are all equally far apart, the kernel is Matern-5/2.
MIN_POINTS = 8


def default_kernels(
    scalings: list[CoordinateScaling], points: list[np.ndarray], smoothness: float = 2.5
) -> tuple[list[Kernel], list[str]]:
    """One Matern kernel per factor, exactly one factor with output scales, and notes about the cycles in them.

    points: the points with observations, one array (n_k, d_k) per factor
    smoothness: nu of the kernels, 0.5, 1.5 or 2.5
    """
    made = [make_form(scalings, points, k, "", matern(smoothness)) for k in range(len(scalings))]
    cycles = [
        f"a {cycle} cycle along {scaling.factor.name}"
        for scaling, x in zip(scalings, points, strict=True)
        if scaling.factor.kind == "time"
        for cycle, _ in find_cycles(scaling, x[:, 0])
    ]
    return [form.kernel for form in made], cycles


def default_forms(scalings: list[CoordinateScaling], points: list[np.ndarray]) -> list[list[Form]]:
    """The kernels among which the likelihood chooses, for each factor; none where there is no choice.

    points: the points with observations, one array (n_k, d_k) per factor
    """
    return [
        [make_form(scalings, points, k, name, shape) for name, shape in SHAPES.items()]
        if scaling.factor.kind != "category" and len(x) >= MIN_POINTS
        else []
        for k, (scaling, x) in enumerate(zip(scalings, points, strict=True))
    ]


def make_form(
    scalings: list[CoordinateScaling],
    points: list[np.ndarray],
    k: int,
    name: str,
    shape: Callable[[Columns], Kernel],
) -> Form:
    """The kernel of factor k with a given shape; arguments as in `default_forms`."""
    scaling, x = scalings[k], points[k]
    kind, columns = scaling.factor.kind, x.shape[1]
    if kind == "time":
        return time_form(scaling, x[:, 0], name, shape)
    has_time = any(other.factor.kind == "time" for other in scalings)
    kernel: Kernel
    if kind == "sphere" and columns > 3:
        core = shape(Columns(active=(0, 1, 2)))
        kernel = core * MaternKernel(nu=2.5, active_dims=(3,))
    else:
        one_length = kind in ("sphere", "map", "longitude", "category")
        kernel = core = shape(Columns(None if one_length else columns))
    return Form(name, ScaleKernel(kernel) if k == 0 and not has_time else kernel, core)


def time_form(scaling: CoordinateScaling, x: np.ndarray, name: str, shape: Callable[[Columns], Kernel]) -> Form:
    """A kernel plus slowly changing daily and yearly cycles where the times can resolve them.

    x: the scaled times, (t,)
    """
    step, _ = step_and_span(x)
    core = shape(Columns())
    for part in core.modules():
        if isinstance(part, Kernel) and part.has_lengthscale:
            part.lengthscale = FIRST_STEPS * step
    kernel: Kernel = ScaleKernel(core)
    for _, period in find_cycles(scaling, x):
        kernel = kernel + ScaleKernel(cycle_kernel(period))
    return Form(name, kernel, core)


def step_and_span(x: np.ndarray) -> tuple[float, float]:
    """The typical step of some times (t,), and the time that they span."""
    ordered = np.unique(x)
    if len(ordered) < 2:
        return 1.0, 0.0
    return float(np.median(np.diff(ordered))), float(ordered[-1] - ordered[0])


def find_cycles(scaling: CoordinateScaling, x: np.ndarray) -> list[tuple[str, float]]:
    """The names and the scaled periods of the cycles that the scaled times x (t,) can resolve."""
    if scaling.calendar == PLAIN_NUMBERS:
        return []
    unit, (step, span) = scaling.scale[0], step_and_span(x)
    year = DAYS_PER_YEAR.get(scaling.calendar, 365.2425)
    return [
        (name, period)
        for name, period, min_periods in (("daily", 1.0 / unit, MIN_DAYS), ("yearly", year / unit, MIN_YEARS))
        if step * SAMPLES_PER_CYCLE <= period * (1 + 1e-6) and span >= min_periods * period
    ]


def cycle_kernel(period: float) -> Kernel:
    """A cycle of a known period whose shape changes slowly."""
    repeats = PeriodicKernel()
    repeats.period_length = period
    repeats.raw_period_length.requires_grad_(False)
    repeats.lengthscale = FIRST_SMOOTHNESS
    changes = MaternKernel(nu=2.5)
    changes.lengthscale = FIRST_PERIODS * period
    return repeats * changes
