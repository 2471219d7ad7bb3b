"""What was fitted, in words and in the units of the data."""

import math

from gpytorch.kernels import Kernel, MaternKernel, PeriodicKernel, RBFKernel, ScaleKernel

from lkgp.xarray.model import FieldModel
from lkgp.xarray.points import Ruler

# The distance, in length scales, at which the correlation has fallen to one half.
HALF = {0.5: 0.693, 1.5: 0.969, 2.5: 1.042, None: 1.177}


def in_words(model: FieldModel) -> list[str]:
    """A sentence for the noise and for every part of the kernel of each factor that has a length."""
    report, units = model.gp.report_, model.layout.field.attrs.get("units", "")
    lines = []
    for kernel, ruler in zip(model.gp.model_.kernels, model.layout.rulers, strict=True):
        lines += [f"Along {ruler.factor.name}: {sentence}." for sentence in sentences(kernel, ruler)]
    if report.noise_std is not None:
        lines.append(
            f"What single measurements add of their own (noise): {report.noise_std:.3g} {units}".rstrip() + "."
        )
    if not report.converged:
        lines.append("The fit did not converge; take error bars with care.")
    return lines + [f"Chosen automatically: {note}." for note in model.notes]


def sentences(kernel: Kernel, ruler: Ruler) -> list[str]:
    """Of a kernel and of its parts, as far as words are known for them."""
    if isinstance(kernel, ScaleKernel):
        return sentences(kernel.base_kernel, ruler)
    parts = list(getattr(kernel, "kernels", []))
    repeats = next((part for part in parts if isinstance(part, PeriodicKernel)), None)
    if repeats is not None:
        period = length(repeats.period_length.item() * ruler.scale[0], "days")
        keeps = [part for part in parts if part is not repeats]
        how_long = (
            f", which keeps its shape over {reach(keeps[0], ruler)[0]}" if keeps and reach(keeps[0], ruler) else ""
        )
        return [f"a cycle of {period}{how_long}"]
    if parts:
        return [sentence for part in parts for sentence in sentences(part, ruler)]
    return [f"likeness falls to one half over {words}" for words in reach(kernel, ruler)]


def reach(kernel: Kernel, ruler: Ruler) -> list[str]:
    """The distances at which the correlation has fallen to one half, one for each length scale."""
    if not isinstance(kernel, (MaternKernel, RBFKernel)) or ruler.factor.kind == "category":
        return []
    half = HALF[kernel.nu if isinstance(kernel, MaternKernel) else None]
    columns = kernel.active_dims.tolist() if kernel.active_dims is not None else list(range(len(ruler.scale)))
    scales = kernel.lengthscale.detach().flatten().tolist()
    return [
        length(half * scale * ruler.scale[column], ruler.units[column])
        for scale, column in zip(scales, columns, strict=False)
    ]


def length(number: float, unit: str) -> str:
    """A length with a unit that suits it."""
    if unit == "days":
        for limit, divisor, name in (
            (1 / 24, 1440.0, "minutes"),
            (2.0, 24.0, "hours"),
            (730.0, 1.0, "days"),
            (math.inf, 1 / 365.2425, "years"),
        ):
            if number < limit:
                return f"{number * divisor:.3g} {name}"
    return f"{number:.3g} {unit}"
