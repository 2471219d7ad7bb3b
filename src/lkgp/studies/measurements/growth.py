"""How time and memory grow with balanced grids: from 1e4 to 1e8 cells for a product, and to 1e7 for a fit."""

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from gpytorch.kernels import MaternKernel, ScaleKernel

from lkgp import LKGP
from lkgp.machine import peak_memory
from lkgp.studies.measurements.products import product_seconds
from lkgp.studies.measurements.resources import DIMENSIONS
from lkgp.studies.processes import call_in_own_process

# Points per factor: half an order of magnitude of cells apart, and as many as fit into memory and an hour.
PRODUCT_SIZES = (100, 316, 1000, 3162, 10000)
FIT_SIZES = (100, 316, 1000, 3162)
LONGEST_SECONDS = 3600.0
# The cost of a product over sqrt(n) x sqrt(n) cells grows as n (sqrt(n) + sqrt(n)).
PREDICTED_EXPONENT = 1.5


def kernel_seconds(points: int) -> float:
    """The seconds of evaluating one factor over ten-dimensional points."""
    kernel = MaternKernel(nu=2.5, ard_num_dims=DIMENSIONS)
    x = torch.randn(points, DIMENSIONS, generator=torch.Generator().manual_seed(0))
    began = time.perf_counter()
    with torch.no_grad():
        kernel(x).to_dense()
    return time.perf_counter() - began


def fit_seconds(size: int) -> float:
    """The seconds of a fit, with its mean, to size x size cells of a smooth function with noise, 30 % missing."""
    generator = np.random.default_rng(0)
    a, b = np.linspace(0, 1, size), np.linspace(0, 1, size)
    smooth = np.sin(9 * a)[:, None] * np.cos(7 * b) + np.sin(20 * (a[:, None] + b))
    values = smooth + 0.1 * generator.standard_normal((size, size))
    values[generator.random((size, size)) < 0.3] = np.nan
    began = time.perf_counter()
    LKGP([ScaleKernel(MaternKernel(nu=2.5)), MaternKernel(nu=2.5)]).fit([a, b], values)
    return time.perf_counter() - began


def measure_one(kind: str, size: int) -> dict[str, Any]:
    """Seconds and peak memory of this process. kind: product or fit; size: points per factor"""
    kernel = kernel_seconds(size) if kind == "product" else 0.0
    seconds = product_seconds((size, size)) if kind == "product" else fit_seconds(size)
    return {"cells": size**2, "seconds": seconds, "kernel": kernel, "peak memory": peak_memory()}


def measure(print_line: Callable[[str], None]) -> dict[str, Any]:
    """Measure every size in a process of its own, so that its peak memory is known; sizes that fail are left out."""
    rows: dict[str, list[dict[str, float]]] = {"product": [], "fit": []}
    for kind, sizes in (("product", PRODUCT_SIZES), ("fit", FIT_SIZES)):
        for size in sizes:
            row = call_in_own_process(measure_one, {"kind": kind, "size": size}, LONGEST_SECONDS)
            if "failed" in row:
                print_line(f"growth: {kind}, {size} x {size}: failed: {row['failed']}")
                continue
            rows[kind].append(row)
            print_line(f"growth: {kind}, {size} x {size}: {row['seconds']:.4g} s, {row['peak memory'] / 1e9:.2f} GB")
    return {"rows": rows, "predicted": PREDICTED_EXPONENT}
