"""How time and memory grow with the data: balanced grids, n cells from 1e4 to 1e8 for a product, to 1e7 for a fit."""

import json
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from gpytorch.kernels import MaternKernel, ScaleKernel

from lkgp import LKGP
from lkgp.machine import peak_memory, run_module
from lkgp.studies.synthetic import DIMENSIONS, median_seconds, operator_of

PRODUCT_SIZES = (100, 316, 1000, 3162, 10000)
FIT_SIZES = (100, 316, 1000, 3162)
LONGEST_SECONDS = 3600.0


def product_seconds(shape: tuple[int, ...], repeats: int = 3) -> float:
    """The median time of one product of the latent Kronecker matrix, float32, with one vector."""
    operator = operator_of(shape)
    rhs = torch.randn(operator.grid.num_observed, 1)
    return median_seconds(lambda: operator @ rhs, repeats)


def kernel_seconds(points: int) -> float:
    """The time of evaluating one factor over ten-dimensional points."""
    kernel = MaternKernel(nu=2.5, ard_num_dims=DIMENSIONS)
    x = torch.randn(points, DIMENSIONS, generator=torch.Generator().manual_seed(0))
    began = time.perf_counter()
    with torch.no_grad():
        kernel(x).to_dense()
    return time.perf_counter() - began


def fit_seconds(size: int) -> float:
    """A fit on size x size cells of a smooth function with noise, 30 % missing, and its mean."""
    generator = np.random.default_rng(0)
    a, b = np.linspace(0, 1, size), np.linspace(0, 1, size)
    values = (
        np.sin(9 * a)[:, None] * np.cos(7 * b)
        + np.sin(20 * (a[:, None] + b))
        + 0.1 * generator.standard_normal((size, size))
    )
    values[generator.random((size, size)) < 0.3] = np.nan
    began = time.perf_counter()
    LKGP([ScaleKernel(MaternKernel(nu=2.5)), MaternKernel(nu=2.5)]).fit([a, b], values)
    return time.perf_counter() - began


def measure(tell: Callable[[str], None]) -> dict[str, Any]:
    """Every size in a process of its own, so that its peak memory is known; those that fail are told and left out."""
    rows: dict[str, list[dict[str, float]]] = {"product": [], "fit": []}
    for kind, sizes in (("product", PRODUCT_SIZES), ("fit", FIT_SIZES)):
        for size in sizes:
            row = run_module("lkgp.studies.growth", [kind, str(size)], "", LONGEST_SECONDS)
            if "failed" in row:
                tell(f"growth: {kind}, {size} x {size}: {row['failed']}")
                continue
            rows[kind].append(row)
            tell(f"growth: {kind}, {size} x {size}: {row['seconds']:.4g} s, {row['peak memory'] / 1e9:.2f} GB")
    return {"rows": rows, "predicted": 1.5}


def main() -> None:
    kind, size = sys.argv[1], int(sys.argv[2])
    kernel = kernel_seconds(size) if kind == "product" else 0.0
    seconds = product_seconds((size, size)) if kind == "product" else fit_seconds(size)
    print(json.dumps({"cells": size**2, "seconds": seconds, "kernel": kernel, "peak memory": peak_memory()}))


if __name__ == "__main__":
    main()
