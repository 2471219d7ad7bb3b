"""What latent Kronecker structure saves: time of kernels and products, and memory, with and without it (figure 2).

Balanced grids, p = q = sqrt(n), over ten-dimensional points, in float32. Nothing is missing, so that n is the same for
both.
"""

from collections.abc import Callable
from pathlib import Path

import torch
from gpytorch.kernels import RBFKernel

from lkgp import PartialGrid
from lkgp.linalg import LatentKronecker
from lkgp.machine import peak_memory
from lkgp.studies.measurements.timing import REPEATS, median_seconds
from lkgp.studies.processes import call_in_own_process
from lkgp.studies.records import append, provenance, read

DIMENSIONS = 10
# Points per factor: a quarter of an order of magnitude apart.
SIDES = (10, 18, 32, 56, 100, 178, 316, 562, 1000, 1778, 3162, 5623, 10000)
# Without structure, n^2 numbers are stored; sizes that need more than this many (4.4 GB) are not tried.
LARGEST_MATRIX = 1.1e9
# Factors with more points than this take seconds to evaluate, so that one repeat is enough.
LARGE_SIDE = 3000
LONGEST_SECONDS = 3600.0


def measure_one(side: int, structured: bool) -> dict[str, float]:
    """Seconds of evaluating the kernels and of one product, and bytes, for a side x side grid."""
    before = peak_memory()
    generator = torch.Generator().manual_seed(0)
    halves = [torch.randn(side, DIMENSIONS // 2, generator=generator) for _ in range(2)]
    kernel_seconds, product = (with_structure if structured else without_structure)(halves, generator)
    return {"kernel_seconds": kernel_seconds, "product_seconds": product, "bytes": peak_memory() - before}


def with_structure(halves: list[torch.Tensor], generator: torch.Generator) -> tuple[float, float]:
    """Seconds of evaluating both factors, and of one product. halves: the points of both factors, (side, d / 2)"""
    side = len(halves[0])
    kernels = [RBFKernel(ard_num_dims=DIMENSIONS // 2) for _ in range(2)]
    factors: list[torch.Tensor] = []

    def evaluate() -> None:
        factors[:] = [kernel(x).to_dense() for kernel, x in zip(kernels, halves, strict=True)]

    seconds = median_seconds(evaluate, 1 if side > LARGE_SIDE else REPEATS)
    grid = PartialGrid(tuple(torch.arange(float(side)) for _ in range(2)), torch.ones(side, side, dtype=torch.bool))
    operator = LatentKronecker(*factors, torch.tensor(0.1), grid=grid)
    rhs = torch.randn(side * side, 1, generator=generator)
    return seconds, median_seconds(lambda: operator @ rhs)


def without_structure(halves: list[torch.Tensor], generator: torch.Generator) -> tuple[float, float]:
    """The same for one dense matrix over all cells."""
    side = len(halves[0])
    rows = torch.cat([halves[0].repeat_interleave(side, dim=0), halves[1].repeat(side, 1)], dim=1)
    kernel = RBFKernel(ard_num_dims=DIMENSIONS)
    matrix: list[torch.Tensor] = []

    def evaluate() -> None:
        matrix[:] = [kernel(rows).to_dense()]

    seconds = median_seconds(evaluate, 1)
    rhs = torch.randn(side * side, 1, generator=generator)
    return seconds, median_seconds(lambda: matrix[0] @ rhs)


def measure(path: Path, print_line: Callable[[str], None], sides: tuple[int, ...] = SIDES) -> None:
    """Measure the sizes that are not in `path` yet, each in a process of its own, and append the results."""
    known = {(record["side"], record["structured"]) for record in read(path)}
    for side in sides:
        for structured in (True, False):
            if (side, structured) in known or (not structured and side**4 > LARGEST_MATRIX):
                continue
            size = {"side": side, "structured": structured}
            found = call_in_own_process(measure_one, size, LONGEST_SECONDS)
            what = f"{side} x {side} {'with' if structured else 'without'} structure"
            if "failed" in found:
                print_line(f"{what}: failed: {found['failed']}")
                continue
            append(path, {"experiment": "synthetic", **size, **found, **provenance()})
            seconds = f"kernels {found['kernel_seconds']:.3g} s, product {found['product_seconds']:.3g} s"
            print_line(f"{what}: {seconds}, {found['bytes'] / 1e6:.0f} MB")
