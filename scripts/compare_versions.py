"""Compare two versions of lkgp on the cases of `lkgp bench`: scores, likelihoods, seconds and memory.

python scripts/compare_versions.py --before ../old --after . --cases learning-curves-100 era5-30 --repeats 3

Each version is a source tree, and each fit runs in a process of its own that imports lkgp from the `src` folder of that
tree. The data and the kernels are made once, by the lkgp that runs this script, and the same files are given to both
versions. The versions take turns, and which of them is first alternates, so that a machine that slows down slows down
both; the ratio of times is the median over such pairs. Every finished fit is appended to the output file, one JSON
object per line, so that an interrupted run loses nothing; the table includes earlier pairs of the same two versions.

Most cases need data from the folder named by the environment variable LKGP_DATA.
"""

import argparse
import json
import os
import pickle
import statistics
import subprocess
import sys
import tempfile
import time
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
# What is compared: the entry of the record, its name in the table, its unit, and its format.
QUANTITIES = (
    ("test_nll", "test NLL", 1, ".5f"),
    ("test_rmse", "test RMSE", 1, ".5f"),
    ("log_likelihood", "log-likelihood per observation", 1, ".6f"),
    ("seconds", "seconds, median", 1, ".2f"),
    ("peak_memory", "peak memory, GB", 1e9, ".3f"),
)
COSTS = ("seconds", "peak_memory")
PER_OBSERVATION = ("log_likelihood", "log-likelihoods per observation", ".5f")

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


def fit(tree: Path, folder: Path, problem: Problem, seed: int) -> Record:
    """Fit the saved problem with one version in a process of its own; after a failure, {"failed": why}."""
    environment = os.environ | {"PYTHONPATH": str(tree / "src")}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(WORKER), str(folder), str(seed)],
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


def run_case(name: str, trees: dict[str, Path], repeats: int, vary_seed: bool, output: Path) -> None:
    """Fit one case alternately with both versions."""
    family, case = cases_of(name)[0]
    problem = run_of(family, case, "lkgp").problem()
    began = time.strftime("%Y-%m-%dT%H:%M:%S")
    with tempfile.TemporaryDirectory() as folder:
        save_problem(problem, Path(folder))
        for repeat in range(repeats):
            for label in (BEFORE, AFTER) if repeat % 2 == 0 else (AFTER, BEFORE):
                # Other programs that compete for the cores slow fits down many times; the record shows whether any did.
                load = os.getloadavg()[0]
                seed = repeat if vary_seed else 0
                found = fit(trees[label], Path(folder), problem, seed)
                what = {
                    "case": name,
                    "seed": seed,
                    "pair": f"{began} {repeat}",
                    **identity(label, trees[label]),
                    "load": load,
                }
                append(output, {**what, **found, **provenance()})
                how = found.get("failed") or f"{found['seconds']:.2f} s, {found['method']}"
                print(f"{name}: {label}: {how}", flush=True)


def finished_pairs(name: str, trees: dict[str, Path], records: list[Record]) -> list[dict[str, Record]]:
    """The fits of a case that both versions finished one right after the other, by label."""
    known = [identity(label, tree) for label, tree in trees.items()]
    pairs: dict[str, dict[str, Record]] = {}
    for record in records:
        if record["case"] == name and {k: record[k] for k in known[0]} in known and "failed" not in record:
            pairs.setdefault(record["pair"], {})[record["label"]] = record
    return [pair for pair in pairs.values() if len(pair) == len(trees)]


def table_of(name: str, pairs: list[dict[str, Record]]) -> str:
    """The medians of both versions, their difference, the median ratio within a pair, and all times, as Markdown."""
    if not pairs:
        return f"## {name}\n\nThere is no pair of finished fits."
    lines = [f"## {name}", "", "| | before | after | difference | ratio |", "|---|---|---|---|---|"]
    for entry, title, unit, form in QUANTITIES:
        before, after = (statistics.median(pair[label][entry] / unit for pair in pairs) for label in (BEFORE, AFTER))
        # Scores and log-likelihoods may be negative or near zero, so that their ratio says nothing.
        ratios = [pair[AFTER][entry] / pair[BEFORE][entry] for pair in pairs] if entry in COSTS else []
        ratio = f"{statistics.median(ratios):.3f}" if ratios else ""
        lines.append(f"| {title} | {before:{form}} | {after:{form}} | {after - before:+.2g} | {ratio} |")
    for entry, title, form in (("seconds", "seconds", ".2f"), ("test_nll", "test NLL", ".4f"), PER_OBSERVATION):
        everything = [", ".join(f"{pair[label][entry]:{form}}" for pair in pairs) for label in (BEFORE, AFTER)]
        lines.append(f"| all {title} | {everything[0]} | {everything[1]} | | |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", type=Path, required=True, help="Source tree of the earlier version.")
    parser.add_argument("--after", type=Path, required=True, help="Source tree of the later version.")
    parser.add_argument("--cases", nargs="+", default=CASES, help="Names of cases of `lkgp bench`.")
    parser.add_argument("--repeats", type=int, default=3, help="Fits per case and version.")
    parser.add_argument("--vary-seed", action="store_true", help="Use another random seed in every repeat.")
    parser.add_argument("--output", type=Path, default=Path("comparison.jsonl"), help="Append every fit to this file.")
    chosen = parser.parse_args()
    trees = {BEFORE: chosen.before.resolve(), AFTER: chosen.after.resolve()}
    for tree in trees.values():
        if not (tree / "src" / "lkgp").is_dir():
            parser.error(f"{tree} is not a source tree of lkgp: it has no folder src/lkgp.")
    for name in chosen.cases:
        cases_of(name)  # refuses unknown names before hours have passed
    for name in chosen.cases:
        run_case(name, trees, chosen.repeats, chosen.vary_seed, chosen.output)
        pairs = finished_pairs(name, trees, read(chosen.output))
        print(f"\n{table_of(name, pairs)}\n", flush=True)


if __name__ == "__main__":
    main()
