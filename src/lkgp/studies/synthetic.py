"""What latent structure saves: time of kernels and products, and memory, with and without it (the paper's figure 2 and break-even).

Balanced grids, p = q = sqrt(n), over ten-dimensional points, float32. Nothing is missing, so that both ways have the same n.
"""

import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from math import prod
from pathlib import Path
from typing import Any

import torch
from gpytorch.kernels import RBFKernel

from lkgp import PartialGrid
from lkgp.linalg import LatentKronecker
from lkgp.machine import hardware, peak_memory, versions
from lkgp.studies.records import append, read

DIMENSIONS = 10
SIDES = (10, 18, 32, 56, 100, 178, 316, 562, 1000, 1778, 3162, 5623, 10000)
# Without structure, n^2 numbers are kept; more than this many do not fit.
LARGEST_MATRIX = 1.1e9
REPEATS = 5
BREAK_EVEN_RATIOS = tuple(i / 20 for i in range(2, 20))


def median_seconds(function: Callable[[], object], repeats: int = REPEATS) -> float:
    """The median time of a function; the first call, which warms up, does not count."""
    times = []
    with torch.no_grad():
        for _ in range(repeats + 1):
            began = time.perf_counter()
            function()
            times.append(time.perf_counter() - began)
    return statistics.median(times[1:])


def operator_of(shape: tuple[int, ...], dtype: torch.dtype = torch.float32, missing: float = 0.3) -> LatentKronecker:
    """Random factors: what they hold does not matter to the time."""
    generator = torch.Generator().manual_seed(0)
    factors = [torch.randn(size, size, dtype=dtype, generator=generator) for size in shape]
    grid = PartialGrid(
        tuple(torch.arange(size, dtype=dtype) for size in shape), torch.rand(shape, generator=generator) >= missing
    )
    return LatentKronecker(*factors, torch.tensor(0.1, dtype=dtype), grid=grid)


def measure_one(side: int, structured: bool) -> dict[str, float]:
    """Seconds of evaluating the kernels and of one product, and bytes, for a side x side grid."""
    before = peak_memory()
    generator = torch.Generator().manual_seed(0)
    halves = [torch.randn(side, DIMENSIONS // 2, generator=generator) for _ in range(2)]
    kernels = [RBFKernel(ard_num_dims=DIMENSIONS // 2) for _ in range(2)]
    if structured:
        factors: list[torch.Tensor] = []

        def evaluate() -> None:
            factors[:] = [kernel(x).to_dense() for kernel, x in zip(kernels, halves, strict=True)]

        kernel_seconds = median_seconds(evaluate, 1 if side > 3000 else REPEATS)
        grid = PartialGrid(tuple(torch.arange(float(side)) for _ in range(2)), torch.ones(side, side, dtype=torch.bool))
        operator = LatentKronecker(*factors, torch.tensor(0.1), grid=grid)
        rhs = torch.randn(side * side, 1, generator=generator)
        product = median_seconds(lambda: operator @ rhs)
    else:
        rows = torch.cat([halves[0].repeat_interleave(side, dim=0), halves[1].repeat(side, 1)], dim=1)
        whole = RBFKernel(ard_num_dims=DIMENSIONS)
        matrix: list[torch.Tensor] = []

        def evaluate() -> None:
            matrix[:] = [whole(rows).to_dense()]

        kernel_seconds = median_seconds(evaluate, 1)
        rhs = torch.randn(side * side, 1, generator=generator)
        product = median_seconds(lambda: matrix[0] @ rhs)
    return {"kernel_seconds": kernel_seconds, "product_seconds": product, "bytes": peak_memory() - before}


def break_even_one(shape: tuple[int, int], missing: float) -> dict[str, float]:
    """Seconds of a product and bytes of the matrices, with and without structure, on the same incomplete grid."""
    operator = operator_of(shape, missing=missing)
    n = operator.grid.num_observed
    rhs, dense = torch.randn(n, 16), torch.randn(n, n)
    return {
        "observed": n,
        "cells": prod(shape),
        "with_seconds": median_seconds(lambda: operator @ rhs),
        "without_seconds": median_seconds(lambda: dense @ rhs),
        "with_bytes": 4.0 * sum(size**2 for size in shape),
        "without_bytes": 4.0 * n**2,
    }


def measure(path: Path, tell: Callable[[str], None], sides: tuple[int, ...] = SIDES) -> None:
    """Measure what is not in `path` yet, each size in a process of its own; one JSON line each."""
    known = {(record["side"], record["structured"]) for record in read(path)}
    for side in sides:
        for structured in (True, False):
            if (side, structured) in known or (not structured and side**4 > LARGEST_MATRIX):
                continue
            command = [sys.executable, "-m", "lkgp.studies.synthetic", str(side), str(int(structured))]
            found = json.loads(
                subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()[-1]
            )
            record: dict[str, Any] = {"experiment": "synthetic", "side": side, "structured": structured, **found}
            record.update(date=time.strftime("%Y-%m-%d"), versions=versions(), hardware=hardware())
            append(path, record)
            way = "with" if structured else "without"
            seconds = f"kernels {found['kernel_seconds']:.3g} s, product {found['product_seconds']:.3g} s"
            tell(f"{side} x {side} {way} structure: {seconds}, {found['bytes'] / 1e6:.0f} MB")


def measure_break_even(
    path: Path, tell: Callable[[str], None], states: tuple[int, ...] = (1000, 4449), joints: int = 7
) -> None:
    """Products over a grid of states x joints at every share of missing cells, where they are not in `path` yet."""
    known = {(record["states"], record["missing"]) for record in read(path)}
    for size in states:
        for missing in BREAK_EVEN_RATIOS:
            if (size, missing) in known:
                continue
            record = {"states": size, "missing": missing, **break_even_one((size, joints), missing)}
            append(path, record)
            with_structure, without = record["with_seconds"], record["without_seconds"]
            tell(
                f"{size} x {joints}, {missing:.0%} missing: product {with_structure:.3g} s with structure, {without:.3g} s without"
            )


if __name__ == "__main__":
    print(json.dumps(measure_one(int(sys.argv[1]), sys.argv[2] == "1")))
