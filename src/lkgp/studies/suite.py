"""The benchmarks: which case is run by whom, each run in a process of its own, one after the other."""

import json
import math
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from lkgp.errors import InputError
from lkgp.machine import hardware, peak_memory, run_module, versions
from lkgp.persistence.atomic import write_atomically
from lkgp.studies import growth, problems, products, pruning
from lkgp.studies.contestants import Result, contestant

# A run that takes longer than this is given up, and said to be.
LONGEST_SECONDS = 3600.0
# A run that takes longer than this is not repeated.
REPEATED_SECONDS = 100.0


@dataclass(frozen=True)
class Bout:
    """One case and its contestants, of which the first is lkgp.

    repeats: runs of those that take no longer than REPEATED_SECONDS, interleaved; of the others there is one
    """

    case: str
    contestants: tuple[str, ...]
    repeats: int = 3


PAPER, PLAIN = "the paper's settings, by its steps", "iterative GP without the grid, by its steps"
COUNTED, PLAIN_COUNTED = "the paper's settings, by its iterations", "iterative GP without the grid, by its iterations"
GRID, DENSE = "lkgp, with the grid", "lkgp, without the grid"
BOUTS = {
    "curves": [
        Bout("learning-curves-100", ("lkgp", "scikit-learn")),
        Bout("learning-curves-400", ("lkgp", "BoTorch LatentKroneckerGP", PAPER)),
        Bout("learning-curves-2000", ("lkgp", "BoTorch LatentKroneckerGP", PAPER)),
    ],
    "curves-whole": [Bout("learning-curves-400", ("lkgp", "the paper's settings"))],
    "weather": [Bout(f"era5-{missing}", ("lkgp", COUNTED)) for missing in (10, 30, 50)],
    # Up to 50 % missing, lkgp itself chooses the way with the grid.
    "robot": [
        *(Bout(f"sarcos-{missing}", ("lkgp", DENSE, PLAIN_COUNTED)) for missing in (10, 30)),
        Bout("sarcos-50", ("lkgp", DENSE, PLAIN)),
        *(Bout(f"sarcos-{missing}", ("lkgp", GRID, DENSE, PLAIN)) for missing in (70, 90)),
    ],
    "climate": [Bout(f"climate-{missing}", ("lkgp",)) for missing in (10, 30, 50)],
}
Measure = Callable[[Callable[[str], None]], dict[str, Any]]
MEASURES: dict[str, dict[str, Measure]] = {
    "products": {"products": products.measure},
    "growth": {"growth": growth.measure},
    "pruning": {
        **{f"pruning-{name}": partial(pruning.measure, dataset=name) for name in (*pruning.SETS, *pruning.OTHER_SETS)},
        **{
            f"pruning-fresh-{name}": partial(pruning.measure_fresh, dataset=name)
            for name in (*pruning.SETS, *pruning.OTHER_SETS)
        },
        "pruning-many": pruning.measure_many,
    },
}
GROUPS = (*BOUTS, *MEASURES)


def make_case(name: str) -> problems.Problem:
    """A case by its name: learning-curves-400, era5-30, sarcos-90, climate-10."""
    kind, _, number = name.rpartition("-")
    makers: dict[str, Callable[[float], problems.Problem]] = {
        "learning-curves": lambda curves: problems.learning_curves(curves=int(curves)),
        "era5": lambda missing: problems.era5(missing / 100),
        "sarcos": lambda missing: problems.sarcos(missing / 100),
        "climate": lambda missing: problems.simulated_climate(missing / 100),
    }
    if kind not in makers or not number.isdigit():
        raise InputError(f"there is no case {name!r}; there are {', '.join(f'{kind}-NUMBER' for kind in makers)}.")
    return makers[kind](float(number))


def run_alone(
    case: str, name: str, optimum: dict[str, list[float]] | None = None, timeout: float = LONGEST_SECONDS
) -> Result:
    """One contestant in a process of its own; its peak memory is that of the process."""
    given = json.dumps(optimum) if optimum is not None and name in (PAPER, PLAIN, COUNTED, PLAIN_COUNTED) else ""
    return run_module("lkgp.studies.suite", [case, name], given, timeout)


def bouts_of(name: str) -> list[Bout]:
    """The bouts of a group, or those about one case."""
    found = BOUTS.get(name) or [bout for bouts in BOUTS.values() for bout in bouts if bout.case == name][:1]
    if not found:
        cases_of_all = dict.fromkeys(bout.case for bouts in BOUTS.values() for bout in bouts)
        raise InputError(
            f"there is no benchmark {name!r}; there are {', '.join(GROUPS)}, and the cases {', '.join(cases_of_all)}."
        )
    return found


def measures_of(name: str) -> dict[str, Measure]:
    """What is measured of lkgp alone: the cases of a group, or one of them; none for bouts."""
    return MEASURES.get(name) or {
        case: measure for cases in MEASURES.values() for case, measure in cases.items() if case == name
    }


def run(
    names: list[str],
    output: Path,
    tell: Callable[[str], None] = print,
    timeout: float = LONGEST_SECONDS,
    only: list[str] | None = None,
) -> dict[str, Any]:
    """Run groups of bouts, or those about single cases, and keep every result in `output` as soon as it is there.

    only: these contestants; the results of the others stay as they are in `output`
    """
    for name in only or []:
        contestant(name)  # refuses what nobody is called
    chosen = {name: [] if measures_of(name) else bouts_of(name) for name in names}
    kept: dict[str, Any] = json.loads(output.read_text()) if output.is_file() else {"runs": []}
    kept.update(hardware=hardware(), versions=versions(), date=time.strftime("%Y-%m-%d"))

    def keep(case: str, name: str, result: Result) -> None:
        entry = {"case": case, "contestant": name, "date": kept["date"], **result}
        before = [r for r in kept["runs"] if (r["case"], r["contestant"]) == (case, name) and "failed" not in r]
        if "failed" in result and before:  # what was measured before is not lost
            return
        kept["runs"] = [r for r in kept["runs"] if (r["case"], r["contestant"]) != (case, name)] + [entry]
        write_atomically(output, lambda part: part.write_text(json.dumps(kept, indent=1) + "\n"))

    def optimum_of(case: str) -> dict[str, list[float]] | None:
        """Where the search of lkgp has ended: the place to which the paths of long fits lead."""
        return next(
            (r.get("raw parameters") for r in kept["runs"] if (r["case"], r["contestant"]) == (case, "lkgp")), None
        )

    for what, bouts in chosen.items():
        for case, measure in measures_of(what).items():
            keep(case, "lkgp", measure(tell))
        for bout in bouts:
            results: dict[str, list[Result]] = {name: [] for name in bout.contestants if not only or name in only}
            for repeat in range(bout.repeats):  # interleaved
                for name, found in results.items():
                    if repeat and found[0].get("total", math.inf) > REPEATED_SECONDS:
                        continue
                    found.append(run_alone(bout.case, name, optimum_of(bout.case), timeout))
                    tell(f"{bout.case}: {name}: {in_words(found[-1])}")
                    keep(bout.case, name, median(found))
    return kept


def median(results: list[Result]) -> Result:
    """The run of the median time, with the times of all."""
    worked = sorted((r for r in results if "failed" not in r), key=lambda r: r["total"])
    if not worked:
        return results[0]
    return {
        **worked[(len(worked) - 1) // 2],
        "totals": [r["total"] for r in worked],
        "total": statistics.median(r["total"] for r in worked),
    }


def in_words(result: Result) -> str:
    if "failed" in result:
        return f"failed: {result['failed']}"
    quality = (
        f", test NLL {result['nll']:.3f}, RMSE {result['rmse']:.4f}"
        if "nll" in result
        else f" ({result.get('how', '')})"
    )
    return f"{result['total']:.1f} s, {result['peak memory'] / 1e9:.2f} GB{quality}"


def main() -> None:
    """Run one contestant and print its result: what `run_alone` calls."""
    name, who = sys.argv[1:3]
    given = sys.stdin.read()
    try:
        case = make_case(name)
        # The rate of the machine in the same process: one product with the latent Kronecker matrix, for one vector.
        product = growth.product_seconds(case.values.shape)
        result = contestant(who)(case, json.loads(given)) if given else contestant(who)(case)
    except ModuleNotFoundError as missing:
        sys.exit(f"{name} by {who} needs {missing.name}; install it with: pip install 'lkgp[bench]'")
    except InputError as error:
        sys.exit(str(error))
    peak = peak_memory()
    cells = {"cells": int(case.observed.size), "observed": int(case.observed.sum()), "truth": case.truth}
    print(json.dumps({**result, "peak memory": peak, "product": product, **cells}))


if __name__ == "__main__":
    main()
