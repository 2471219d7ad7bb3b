"""Compare two versions of lkgp on the cases of `lkgp bench`: scores, likelihoods, seconds and memory.

python scripts/compare_versions.py --before ../old --after . --cases learning-curves-100 era5-30 --repeats 3

Each version is a source tree, and each fit runs in a process of its own that imports lkgp from the `src` folder of that
tree. The data and the kernels are made once, by the lkgp that runs this script, and the same files are given to both
versions. The versions take turns, and which of them is first alternates, so that a machine that slows down slows down
both. Every finished fit is appended to the output file, one JSON object per line; the table includes the fits of the
same two versions that were in that file before.

Cases need data from the folder that the environment variable LKGP_DATA names, except for climate-10, -30 and -50.
"""

import argparse
import json
import os
import pickle
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from lkgp.studies.benchmarks import cases_of, run_of
from lkgp.studies.predictions import Prediction
from lkgp.studies.problems import FIRST_NOISE, Problem
from lkgp.studies.records import append, provenance, read
from lkgp.studies.scoring import score

CASES = ("learning-curves-100", "learning-curves-400", "learning-curves-2000", "era5-30", "sarcos-50")
WORKER = Path(__file__).with_name("fit_saved_problem.py")
BEFORE, AFTER = "before", "after"
# What is compared, its name in the table, and how it is written.
QUANTITIES = (
    ("test_nll", "test NLL", "{:.5f}"),
    ("test_rmse", "test RMSE", "{:.5f}"),
    ("log_likelihood", "log-likelihood per observation", "{:.6f}"),
    ("seconds", "seconds, median", "{:.2f}"),
    ("peak_memory", "peak memory, GB", "{:.3f}"),
)

Record = dict[str, Any]


def save_problem(problem: Problem, folder: Path) -> None:
    """Write what a fit needs: the arrays, and the kernels with their first hyperparameters."""
    coords = {f"coords_{k}": x for k, x in enumerate(problem.coords)}
    np.savez(folder / "problem.npz", seen=problem.seen, noise=FIRST_NOISE, **coords)
    (folder / "kernels.pickle").write_bytes(pickle.dumps(problem.make_kernels()))


def version_of(tree: Path) -> str:
    """The commit of a source tree, and whether it has been edited since; empty if it is not a git repository."""
    command = ["git", "-C", str(tree), "describe", "--always", "--dirty", "--abbrev=12"]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()


def fit(tree: Path, folder: Path, problem: Problem) -> Record:
    """Fit the saved problem with one version in a process of its own; after a failure, {"failed": why}."""
    environment = os.environ | {"PYTHONPATH": str(tree / "src")}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(WORKER), str(folder)],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        return {"failed": (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]}
    found: Record = json.loads(done.stdout.splitlines()[-1])
    if not Path(found["imported"]).is_relative_to(tree / "src"):
        return {"failed": f"lkgp was imported from {found['imported']}, not from {tree}"}
    with np.load(folder / "prediction.npz") as arrays:
        scores = score(problem, Prediction(arrays["mean"], arrays["std"]))
    found["log_likelihood"] /= int(problem.observed.sum())
    return {**found, "seconds": sum(found["stages"].values()), **scores}


def identity(label: str, tree: Path) -> Record:
    """What says that a record in the file is of the same version."""
    return {"label": label, "tree": str(tree), "version": version_of(tree)}


def run_case(name: str, trees: dict[str, Path], repeats: int, output: Path) -> None:
    """Fit one case alternately with both versions."""
    family, case = cases_of(name)[0]
    problem = run_of(family, case, "lkgp").problem()
    with tempfile.TemporaryDirectory() as folder:
        save_problem(problem, Path(folder))
        for repeat in range(repeats):
            order = (BEFORE, AFTER) if repeat % 2 == 0 else (AFTER, BEFORE)
            for label in order:
                found = fit(trees[label], Path(folder), problem)
                append(output, {"case": name, **identity(label, trees[label]), **found, **provenance()})
                how = found.get("failed") or f"{found['seconds']:.2f} s, {found['method']}"
                print(f"{name}: {label}: {how}", flush=True)


def table_of(name: str, records: list[Record]) -> str:
    """The medians of both versions, their difference and their ratio, and all times, as Markdown."""
    runs = {label: [r for r in records if r["label"] == label and "failed" not in r] for label in (BEFORE, AFTER)}
    if not all(runs.values()):
        return f"## {name}\n\nThere is no finished fit of {' and '.join(k for k, found in runs.items() if not found)}."
    lines = [f"## {name}", "", "| | before | after | difference | ratio |", "|---|---|---|---|---|"]
    for entry, title, form in QUANTITIES:
        unit = 1e9 if entry == "peak_memory" else 1.0
        before, after = (statistics.median(run[entry] for run in runs[label]) / unit for label in (BEFORE, AFTER))
        # Ratios say something about times and memory only: scores and log-likelihoods may be negative or near zero.
        ratio = f"{after / before:.3f}" if entry in ("seconds", "peak_memory") else ""
        lines.append(
            f"| {title} | {form.format(before)} | {form.format(after)} | {after - before:+.2g} | {ratio} |"
        )
    times = {label: ", ".join(f"{run['seconds']:.2f}" for run in found) for label, found in runs.items()}
    lines.append(f"| all seconds | {times[BEFORE]} | {times[AFTER]} | | |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", type=Path, required=True, help="Source tree of the earlier version.")
    parser.add_argument("--after", type=Path, required=True, help="Source tree of the later version.")
    parser.add_argument("--cases", nargs="+", default=CASES, help="Names of cases of `lkgp bench`.")
    parser.add_argument("--repeats", type=int, default=3, help="Fits per case and version.")
    parser.add_argument("--output", type=Path, default=Path("comparison.jsonl"), help="Append every fit to this file.")
    chosen = parser.parse_args()
    trees = {BEFORE: chosen.before.resolve(), AFTER: chosen.after.resolve()}
    for tree in trees.values():
        if not (tree / "src" / "lkgp").is_dir():
            parser.error(f"{tree} is not a source tree of lkgp: it has no folder src/lkgp.")
    for name in chosen.cases:
        cases_of(name)  # refuses unknown names before hours have passed
    for name in chosen.cases:
        run_case(name, trees, chosen.repeats, chosen.output)
        known = [identity(label, tree) for label, tree in trees.items()]
        same = [r for r in read(chosen.output) if r["case"] == name and {k: r[k] for k in known[0]} in known]
        print(f"\n{table_of(name, same)}\n", flush=True)


if __name__ == "__main__":
    main()
