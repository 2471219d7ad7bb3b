"""From which share of missing cells on a dense matrix over the observed cells is cheaper than the grid (figure 3)."""

from collections.abc import Callable
from math import prod
from pathlib import Path

import torch

from lkgp.studies.measurements.products import COLUMNS, random_operator
from lkgp.studies.measurements.timing import median_seconds
from lkgp.studies.records import append, read

MISSING = tuple(i / 20 for i in range(2, 20))
# The states of the small preset of the robot arm, and all of its test states; and its joints.
STATES, JOINTS = (1000, 4449), 7
# Bytes of a number in float32.
NUMBER = 4.0


def measure_one(shape: tuple[int, int], missing: float) -> dict[str, float]:
    """Seconds of a product and bytes of the matrices, with and without structure, on the same incomplete grid."""
    operator = random_operator(shape, missing=missing)
    n = operator.grid.num_observed
    rhs, dense = torch.randn(n, COLUMNS), torch.randn(n, n)
    return {
        "observed": n,
        "cells": prod(shape),
        "with_seconds": median_seconds(lambda: operator @ rhs),
        "without_seconds": median_seconds(lambda: dense @ rhs),
        "with_bytes": NUMBER * sum(size**2 for size in shape),
        "without_bytes": NUMBER * n**2,
    }


def measure(path: Path, print_line: Callable[[str], None], states: tuple[int, ...] = STATES) -> None:
    """Measure every share of missing cells that is not in `path` yet, and append the results."""
    known = {(record["states"], record["missing"]) for record in read(path)}
    for size in states:
        for missing in MISSING:
            if (size, missing) in known:
                continue
            record = {"states": size, "missing": missing, **measure_one((size, JOINTS), missing)}
            append(path, record)
            times = f"{record['with_seconds']:.3g} s with structure, {record['without_seconds']:.3g} s without"
            print_line(f"{size} x {JOINTS}, {missing:.0%} missing: a product takes {times}")
