"""A summary of a fitted model in plain sentences, in the units of the data."""

import math

from gpytorch.kernels import Kernel, MaternKernel, PeriodicKernel, RBFKernel, RQKernel, ScaleKernel

from lkgp.xarray.coordinate_scaling import CoordinateScaling
from lkgp.xarray.model import FieldModel

# Lengths beyond this many standard deviations of the coordinates are not given: the data say nothing about them.
BEYOND = 100.0
# The distance, in length scales, at which the correlation has fallen to one half: the root r of k(r) = 1/2, by the
# smoothness nu of a Matern kernel; None stands for the squared exponential, where r = sqrt(2 log 2).
HALF_DISTANCE = {0.5: 0.693, 1.5: 0.969, 2.5: 1.042, None: 1.177}


def summarize(model: FieldModel) -> list[str]:
    """One sentence for the noise, and one for every part of each factor's kernel that has a length scale."""
    report, units = model.gp.report_, model.layout.field.attrs.get("units", "")
    lines = []
    for kernel, scaling in zip(model.gp.model_.kernels, model.layout.scalings, strict=True):
        lines += [f"Along {scaling.factor.name}: {phrase}." for phrase in describe_kernel(kernel, scaling)]
    if report.noise_std is not None:
        amount = f"{report.noise_std:.3g} {units}".rstrip()
        lines.append(f"Noise of a single measurement (standard deviation): {amount}.")
    if not report.converged:
        lines.append("The fit did not converge, so treat the error bars with caution.")
    return lines + [f"Chosen automatically: {note}." for note in model.notes]


def describe_kernel(kernel: Kernel, scaling: CoordinateScaling) -> list[str]:
    """One phrase for each part of a kernel that has a length scale in the units of the data."""
    if isinstance(kernel, ScaleKernel):
        return describe_kernel(kernel.base_kernel, scaling)
    parts = list(getattr(kernel, "kernels", []))
    repeats = next((part for part in parts if isinstance(part, PeriodicKernel)), None)
    if repeats is not None:
        period = format_length(repeats.period_length.item() * scaling.scale[0], "days")
        lifetimes = [length for part in parts if part is not repeats for length in half_distances(part, scaling)]
        lifetime = f" that keeps its shape over {lifetimes[0]}" if lifetimes else ""
        return [f"a cycle of {period}{lifetime}"]
    if parts:
        return [phrase for part in parts for phrase in describe_kernel(part, scaling)]
    return [f"the correlation falls to one half over {length}" for length in half_distances(kernel, scaling)]


def half_distances(kernel: Kernel, scaling: CoordinateScaling) -> list[str]:
    """The distances at which the correlation has fallen to one half, one for each length scale."""
    if not isinstance(kernel, (MaternKernel, RBFKernel, RQKernel)) or scaling.factor.kind == "category":
        return []
    if isinstance(kernel, RQKernel):
        # (1 + r^2 / (2 a))^-a = 1/2 at r = sqrt(2 a (2^(1/a) - 1))
        alpha = kernel.alpha.item()
        half = math.sqrt(2 * alpha * math.expm1(min(math.log(2) / alpha, 700.0)))
    else:
        half = HALF_DISTANCE[kernel.nu if isinstance(kernel, MaternKernel) else None]
    columns = kernel.active_dims.tolist() if kernel.active_dims is not None else list(range(len(scaling.scale)))
    length_scales = kernel.lengthscale.detach().flatten().tolist()
    return [
        format_length(half * length_scale * scaling.scale[column], scaling.units[column])
        if half * length_scale < BEYOND
        else "far more than the extent of the data"
        for length_scale, column in zip(length_scales, columns, strict=False)
    ]


def format_length(number: float, unit: str) -> str:
    """A length in a suitable unit."""
    if unit == "days":
        for limit, divisor, name in (
            (1 / 24, 1440.0, "minutes"),
            (2.0, 24.0, "hours"),
            (730.0, 1.0, "days"),
            (math.inf, 1 / 365.2425, "years"),
        ):
            if number < limit:
                return f"{three_digits(number * divisor)} {name}"
    return f"{three_digits(number)} {unit}"


def three_digits(number: float) -> str:
    """A number with three significant digits; without an exponent up to a million."""
    text = f"{number:.3g}"
    return f"{float(text):.0f}" if 1e3 <= float(text) < 1e6 else text
