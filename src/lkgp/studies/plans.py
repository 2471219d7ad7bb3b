"""Which runs make an experiment."""

from collections.abc import Sequence

from lkgp.errors import InputError
from lkgp.studies.datasets import LCBENCH_SETS
from lkgp.studies.methods import ITERATIVE, NAMES
from lkgp.studies.runs import Run
from lkgp.studies.splits import CUT_CURVES

EXPERIMENTS = ("synthetic", "sarcos", "lcbench", "climate")
# The sets of the paper's first table: every fifth.
MAIN_SETS = ("APSFailure", "MiniBooNE", "blood-transfusion-service-center", "covertype", "higgs", "kr-vs-kp", "segment")
ROBOT_RATIOS = tuple(i / 10 for i in range(1, 10))
CLIMATE_RATIOS = tuple(i / 10 for i in range(1, 6))
# Rows of the small grids.
SMALL_CURVES, SMALL_STATES = 400, 1000


def plan(
    experiment: str,
    preset: str,
    *,
    methods: Sequence[str] = (),
    datasets: Sequence[str] = (),
    ratios: Sequence[float] = (),
    seeds: int | None = None,
) -> list[Run]:
    """The runs of an experiment, those with the same data one after the other; empty selections mean all.

    seeds: how many; those of the preset by default
    """
    if experiment not in EXPERIMENTS[1:]:
        raise InputError(f"there is no experiment {experiment!r}; there are {', '.join(EXPERIMENTS)}.")
    if preset not in ("small", "paper"):
        raise InputError(f"there is no preset {preset!r}; there are small and paper.")
    unknown = [name for name in methods if name not in NAMES]
    if unknown:
        raise InputError(f"there is no method {unknown[0]!r}; there are {', '.join(NAMES)}.")
    small = preset == "small"
    shares: tuple[float, ...]
    if experiment == "lcbench":
        sets, shares = tuple(datasets) or (MAIN_SETS if small else LCBENCH_SETS), (CUT_CURVES,)
        size, count = SMALL_CURVES if small else None, 2 if small else 10
    elif experiment == "sarcos":
        sets, shares = tuple(datasets) or (("test",) if small else ("training",)), tuple(ratios) or ROBOT_RATIOS
        size, count = SMALL_STATES if small else None, 1 if small else 5
    else:
        sets, shares = tuple(datasets) or (("ERA5/3",) if small else ("TG", "RR")), tuple(ratios) or CLIMATE_RATIOS
        size, count = None, 1 if small else 5
    chosen = tuple(methods) or tuple(name for name in NAMES if name != ITERATIVE or experiment != "climate")
    return [
        Run(experiment, dataset, method, seed, share, size, preset)
        for seed in range(seeds if seeds is not None else count)
        for dataset in sets
        for share in shares
        for method in chosen
    ]
