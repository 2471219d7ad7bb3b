"""A latent Kronecker product beside a plain matrix product of the same number of multiplications, in the same process."""

import statistics
import time
from collections.abc import Callable
from math import prod
from typing import Any

import torch

from lkgp.studies.synthetic import operator_of

SHAPES = ((2000, 2000), (1617, 744), (200, 200, 100))
COLUMNS = 16


def compare(shape: tuple[int, ...], columns: int, dtype: torch.dtype, repeats: int = 7) -> dict[str, Any]:
    """The rates of both, multiplications and additions by second, as medians of interleaved runs."""
    operator = operator_of(shape, dtype)
    generator = torch.Generator().manual_seed(1)
    rhs = torch.randn(operator.grid.num_observed, columns, dtype=dtype, generator=generator)
    # The first factor times a matrix of all cells is what one factor of the latent product does.
    matrices = [
        (torch.randn(size, size, dtype=dtype), torch.randn(size, columns * prod(shape) // size, dtype=dtype))
        for size in shape
    ]

    def plain() -> None:
        for left, right in matrices:
            _ = left @ right

    def latent() -> None:
        _ = operator @ rhs

    times: dict[str, list[float]] = {"plain": [], "latent": []}
    with torch.no_grad():
        for _ in range(repeats + 1):  # interleaved; the first round warms up
            for name, function in (("plain", plain), ("latent", latent)):
                began = time.perf_counter()
                function()
                times[name].append(time.perf_counter() - began)
    operations = 2 * sum(shape) * prod(shape) * columns
    rates = {name: operations / statistics.median(found[1:]) for name, found in times.items()}
    name = f"{' x '.join(map(str, shape))}, {str(dtype)[6:]}"
    return {"name": name, **rates, "ratio": rates["latent"] / rates["plain"]}


def measure(tell: Callable[[str], None]) -> dict[str, Any]:
    """All shapes in both precisions."""
    rows = []
    for dtype in (torch.float32, torch.float64):
        for shape in SHAPES:
            rows.append(compare(shape, COLUMNS, dtype))
            tell(f"products: {rows[-1]['name']}: {rows[-1]['ratio']:.2f} of the rate of plain products")
    return {"rows": rows}
