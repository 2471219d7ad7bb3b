"""A latent Kronecker product beside a plain matrix product of the same size, in the same process.

python benchmarks/products.py
"""

import statistics
import time

import torch

from lkgp import PartialGrid
from lkgp.operators import LatentKronecker


def seconds(function) -> float:
    began = time.perf_counter()
    function()
    return time.perf_counter() - began


def compare(shape: tuple[int, ...], columns: int, dtype: torch.dtype, repeats: int = 5) -> None:
    generator = torch.Generator().manual_seed(0)
    factors = [torch.randn(size, size, dtype=dtype, generator=generator) for size in shape]
    grid = PartialGrid(tuple(torch.arange(size, dtype=dtype) for size in shape), torch.rand(shape, generator=generator) < 0.7)
    operator = LatentKronecker(*factors, torch.tensor(0.1, dtype=dtype), grid=grid)
    rhs = torch.randn(grid.num_observed, columns, dtype=dtype, generator=generator)
    plain = torch.randn(shape[0], columns * grid.num_cells // shape[0], dtype=dtype, generator=generator)
    ours, theirs = [], []
    with torch.no_grad():
        for _ in range(repeats + 1):  # interleaved; the first round warms up
            theirs.append(seconds(lambda: factors[0] @ plain))
            ours.append(seconds(lambda: operator @ rhs))
    plain_rate = 2 * shape[0] * plain.numel() / statistics.median(theirs[1:])
    our_rate = 2 * sum(shape) * grid.num_cells * columns / statistics.median(ours[1:])
    print(
        f"{' x '.join(map(str, shape)):>16} {str(dtype)[6:]:>8} {columns:3d} columns: latent Kronecker {our_rate / 1e9:6.1f} GFLOP/s, "
        f"plain {plain_rate / 1e9:6.1f} GFLOP/s, ratio {our_rate / plain_rate:.2f}"
    )


if __name__ == "__main__":
    for dtype in (torch.float32, torch.float64):
        compare((2000, 2000), 16, dtype)
