"""Measure again, on this machine, the tuned numbers of the cost model and of the products with Kronecker structure.

python scripts/calibrate_costs.py                        # a few minutes on two cores; best while nothing else runs
python scripts/calibrate_costs.py --quick --only EIGH READING

It prints a table and changes nothing. Functions that are compared take turns, and the median over the rounds of the
ratio of their times counts, so that a machine whose speed varies disturbs it little; but threads that compete with
those of other programs for the cores disturb it much, and then OMP_NUM_THREADS=1 helps. "x1.50 at 504" means that the
way which is taken from the constant on is 1.5 times as fast there. A value is to be changed only if the measured one
differs from it by more than half: near the point where two ways are equally fast, either will do.

Not measured here, because they are not times: tolerances, limits of memory, and what GRADIENT_NATS, TRIAL_CONDITION,
RESTARTS, MOST_MODES and MOST_INFORMED say about convergence.
"""

import argparse
import math
import os
import time
from collections.abc import Callable
from types import ModuleType

import torch
from calibration import cost_model, factorisations, products
from calibration.comparing import Effort, Found

from lkgp import linalg
from lkgp.inference import choice, costs, direct, observation_costs, spectral, spectrum_estimate
from lkgp.linalg import eigenbasis, kronecker, leading_modes, transform
from lkgp.linalg.factors import base as factors_base
from lkgp.linalg.factors import toeplitz

# A value is kept if the measured one differs by no more than this factor.
NEAR = 1.5
FULL, QUICK = Effort(seconds=1.0), Effort(seconds=0.2)

# Every constant, the module that it is in, and the function that measures it.
MEASUREMENTS: dict[str, tuple[ModuleType, Callable[[Effort], Found]]] = {
    "EIGH": (spectrum_estimate, cost_model.eigh),
    "MOST_PLANNED_POINTS": (spectrum_estimate, cost_model.most_planned_points),
    "CHECKS": (spectral, cost_model.checks),
    "SOLVE_ARRAYS": (costs, cost_model.solve_arrays),
    "DIRECT_ARRAYS": (direct, cost_model.direct_arrays),
    "OUTSIDE": (costs, factorisations.outside),
    "READING": (costs, cost_model.reading),
    "TRIANGULAR": (costs, factorisations.triangular),
    "CHOLESKY": (direct, factorisations.cholesky),
    "INVERSE": (direct, factorisations.inverse),
    "SUBSTITUTION": (direct, factorisations.substitution),
    "ENTRIES": (direct, factorisations.entries),
    "FORMING": (observation_costs, cost_model.forming),
    "ITERATIONS_PER_ROOT": (leading_modes, cost_model.iterations_per_root),
    "BLOCK_WEIGHT": (leading_modes, cost_model.block_weight),
    "ITERATIONS_AT_RANDOM": (spectral, cost_model.iterations_at_random),
    "CHEAP_FIT": (choice, cost_model.cheap_fit),
    "CHEAP_POSTERIOR": (choice, cost_model.cheap_posterior),
    "PIVOTED_PAYS": (eigenbasis, products.pivoted_pays),
    "TOEPLITZ_PAYS": (toeplitz, products.toeplitz_pays),
    "SHORT": (linalg.products, products.short),
    "NARROW": (linalg.products, products.narrow),
    "WIDE": (linalg.products, products.wide),
    "ALIGNED_FROM": (linalg.products, products.aligned_from),
    "CHUNK_CELLS": (kronecker, products.chunk_cells),
    "CHUNK_COLUMNS": (kronecker, products.chunk_columns),
    "FEW_ROWS": (transform, products.few_rows),
    "LOW_RANK_PAYS": (spectral, products.low_rank_pays),
    "POINTS_PER_MODE": (spectral, products.points_per_mode),
    "MOST_MODES_BY_ROWS": (factors_base, products.most_modes_by_rows),
}


def row(name: str, effort: Effort) -> tuple[str, str, str, str, str]:
    """One line of the table: the constant, where it is, its value, what was measured, and what to put there."""
    module, measure = MEASUREMENTS[name]
    value = float(getattr(module, name))
    words, found = measure(effort)
    shown = {0.0: "less than all", math.inf: "more than all"}.get(found, f"{found:.3g}")
    put = "keep" if value / NEAR <= found <= NEAR * value else shown
    return name, module.__name__, f"{value:g}", f"{shown} ({words})", put


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=MEASUREMENTS, metavar="NAME", help="Measure only these constants.")
    parser.add_argument("--quick", action="store_true", help="Spend a fifth of the time on each comparison.")
    chosen = parser.parse_args()
    torch.manual_seed(0)
    began = time.perf_counter()
    print(f"{torch.get_num_threads()} threads; load of the machine {os.getloadavg()[0]:.1f}\n")
    print("| constant | where | value | measured | put there |\n|---|---|---|---|---|")
    for name in chosen.only or MEASUREMENTS:
        print(f"| {' | '.join(row(name, QUICK if chosen.quick else FULL))} |", flush=True)
    print(f"\n{time.perf_counter() - began:.0f} s; load of the machine now {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
