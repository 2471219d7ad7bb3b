"""Tables of results as Markdown: means over seeds with standard errors, average ranks, and the paper's numbers."""

import csv
import math
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from scipy.stats import rankdata

Record = dict[str, Any]
# metric -> title, digits
METRICS = {
    "train_rmse": ("train RMSE", 3),
    "test_rmse": ("test RMSE", 3),
    "train_nll": ("train NLL", 3),
    "test_nll": ("test NLL", 3),
    "test_crps": ("test CRPS (of LKGP: from 200 quantiles)", 3),
    "test_in_95": ("share of test values in the 95 % interval", 3),
    "seconds": ("seconds", 1),
    "peak_memory": ("peak memory, GB", 2),
}
# What the paper ranks its methods by; less is better.
RANKED = ("train_rmse", "test_rmse", "train_nll", "test_nll", "seconds")


def paper_results() -> dict[tuple[str, str, str], tuple[float, float]]:
    """(dataset, method, metric) -> mean and standard error, as published in the tables of Lin et al. (ICML 2025)."""
    with Path(__file__).with_name("paper_results.csv").open() as file:
        return {
            (row["dataset"], row["model"], row["metric"]): (float(row["mean"]), float(row["stderr"]))
            for row in csv.DictReader(file)
        }


def paper_name(dataset: str) -> str | None:
    """The short name that the paper's tables have for a set: blood for blood-transfusion-service-center."""
    names = {name for name, _, _ in paper_results()}
    return next((name for name in sorted(names, key=len, reverse=True) if dataset.startswith(name)), None)


def mean_and_error(values: Sequence[float]) -> tuple[float, float]:
    """The mean, and its standard error; NaN for that of a single value."""
    return statistics.fmean(values), statistics.stdev(values) / math.sqrt(len(values)) if len(values) > 1 else math.nan


def average_ranks(scores: dict[str, dict[str, float]]) -> dict[str, tuple[float, float]]:
    """The mean and deviation of each method's rank over data sets, 1 for the least score; equal ones share the mean of theirs.

    scores: of each method, by data set; only sets that all methods have are ranked
    """
    shared = set.intersection(*(set(found) for found in scores.values())) if scores else set()
    ranks: dict[str, list[float]] = {method: [] for method in scores}
    for dataset in shared:
        for method, rank in zip(scores, rankdata([scores[method][dataset] for method in scores]), strict=True):
            ranks[method].append(float(rank))
    return {method: (statistics.fmean(found), statistics.pstdev(found)) for method, found in ranks.items() if found}


def gather(
    records: Sequence[Record], metric: str, column: Callable[[Record], str]
) -> dict[str, dict[str, list[float]]]:
    """method -> column -> the metric of every seed; failed runs are left out."""
    found: dict[str, dict[str, list[float]]] = {}
    for record in records:
        if "failed" not in record:
            value = record[metric] / (1e9 if metric == "peak_memory" else 1)
            found.setdefault(record["method"], {}).setdefault(column(record), []).append(value)
    return found


def comparison(
    records: Sequence[Record],
    metric: str,
    methods: Sequence[str],
    columns: Sequence[str],
    column: Callable[[Record], str],
) -> list[str]:
    """Methods as rows, data sets as columns, and the average rank; the best of each column is bold."""
    title, digits = METRICS[metric]
    found = gather(records, metric, column)
    present = [method for method in methods if method in found]
    means = {m: {c: mean_and_error(v)[0] for c, v in found[m].items()} for m in present}
    ranked = metric in RANKED
    ranks = average_ranks(means) if ranked else {}
    failed = {(r["method"], column(r)): r["failed"] for r in records if "failed" in r}
    unfinished = {(r["method"], column(r)) for r in records if not r.get("report", {}).get("converged", True)}
    heads = [title, *columns, *(["average rank"] if ranked else [])]
    lines = ["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
    for method in present:
        cells = []
        for c in columns:
            if c not in found[method]:
                cells.append("failed" if (method, c) in failed else "")
                continue
            mean, error = mean_and_error(found[method][c])
            text = (
                f"{mean:.{digits}f}"
                + ("" if math.isnan(error) else f" ± {error:.{digits}f}")
                + "\\*" * ((method, c) in unfinished)
            )
            best = ranked and mean == min(means[m][c] for m in present if c in means[m])
            cells.append(f"**{text}**" if best else text)
        if ranked:
            cells.append(f"{ranks[method][0]:.2f} ± {ranks[method][1]:.2f}" if method in ranks else "")
        lines.append(f"| {method} | " + " | ".join(cells) + " |")
    return lines


def beside_the_paper(records: Sequence[Record], method: str, paper_method: str = "LKGP") -> list[str]:
    """Ours and the paper's test NLL and RMSE for every set, and how often ours is at or below."""
    found = {
        metric: gather(records, metric, lambda r: r["dataset"]).get(method, {})
        for metric in ("test_nll", "test_rmse", "seconds")
    }
    published = paper_results()
    lines = [
        "| data | seeds | test NLL | the paper's | test RMSE | the paper's | seconds |",
        "|---|---|---|---|---|---|---|",
    ]
    wins = {"test_nll": 0, "test_rmse": 0}
    count = 0
    for dataset in sorted(found["test_nll"], key=str.lower):
        name = paper_name(dataset)
        if name is None:
            continue
        count += 1
        cells = [dataset, str(len(found["test_nll"][dataset]))]
        for metric in ("test_nll", "test_rmse"):
            ours, error = mean_and_error(found[metric][dataset])
            theirs, their_error = published[(name, paper_method, metric)]
            better = round(ours, 3) <= theirs
            wins[metric] += better
            text = f"{ours:.3f}" + ("" if math.isnan(error) else f" ± {error:.3f}")
            cells += [f"**{text}**" if better else text, f"{theirs:.3f} ± {their_error:.3f}"]
        cells.append(f"{statistics.median(found['seconds'][dataset]):.0f}")
        lines.append("| " + " | ".join(cells) + " |")
    if count:
        lines += [
            "",
            f"At or below the paper's: test NLL on {wins['test_nll']} of {count} sets, test RMSE on {wins['test_rmse']}.",
        ]
    return lines
