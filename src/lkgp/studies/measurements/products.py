"""Latent Kronecker products, and plain matrix products of the same number of multiplications beside them."""

from collections.abc import Callable
from math import prod
from typing import Any

import torch

from lkgp import PartialGrid
from lkgp.linalg import LatentKronecker
from lkgp.studies.measurements.timing import interleaved_medians, median_seconds

# Two large balanced factors, the shape of ERA5, and three factors.
SHAPES = ((2000, 2000), (1617, 744), (200, 200, 100))
# Vectors that are multiplied at once. With a single one, reading the factors from memory would dominate.
COLUMNS = 16


def random_operator(
    shape: tuple[int, ...], dtype: torch.dtype = torch.float32, missing: float = 0.3
) -> LatentKronecker:
    """A latent Kronecker matrix with random factors, whose values do not matter for the time, and random gaps."""
    generator = torch.Generator().manual_seed(0)
    factors = [torch.randn(size, size, dtype=dtype, generator=generator) for size in shape]
    coords = tuple(torch.arange(size, dtype=dtype) for size in shape)
    grid = PartialGrid(coords, torch.rand(shape, generator=generator) >= missing)
    return LatentKronecker(*factors, torch.tensor(0.1, dtype=dtype), grid=grid)


def product_seconds(shape: tuple[int, ...], repeats: int = 3) -> float:
    """The median seconds of one product of a latent Kronecker matrix with one vector, in float32."""
    operator = random_operator(shape)
    rhs = torch.randn(operator.grid.num_observed, 1)
    return median_seconds(lambda: operator @ rhs, repeats)


def compare(shape: tuple[int, ...], columns: int, dtype: torch.dtype, repeats: int = 7) -> dict[str, Any]:
    """The rates of a latent and of plain products, in multiplications and additions per second."""
    operator = random_operator(shape, dtype)
    generator = torch.Generator().manual_seed(1)
    rhs = torch.randn(operator.grid.num_observed, columns, dtype=dtype, generator=generator)
    # Each factor of the latent product is multiplied by a matrix of all cells.
    matrices = [
        (torch.randn(size, size, dtype=dtype), torch.randn(size, columns * prod(shape) // size, dtype=dtype))
        for size in shape
    ]

    def plain() -> None:
        for left, right in matrices:
            _ = left @ right

    def latent() -> None:
        _ = operator @ rhs

    seconds = interleaved_medians({"plain": plain, "latent": latent}, repeats)
    operations = 2 * sum(shape) * prod(shape) * columns
    rates = {name: operations / taken for name, taken in seconds.items()}
    name = f"{' x '.join(map(str, shape))}, {str(dtype).removeprefix('torch.')}"
    return {"name": name, **rates, "ratio": rates["latent"] / rates["plain"]}


def measure(print_line: Callable[[str], None]) -> dict[str, Any]:
    """Compare all shapes in both precisions."""
    rows = []
    for dtype in (torch.float32, torch.float64):
        for shape in SHAPES:
            rows.append(compare(shape, COLUMNS, dtype))
            print_line(f"products: {rows[-1]['name']}: {rows[-1]['ratio']:.2f} times the rate of plain products")
    return {"rows": rows}
