"""Tables of results in Markdown: means over seeds with standard errors, average ranks, and the paper's numbers."""

import math
import statistics
from collections.abc import Callable, Sequence

from lkgp.studies.pages.published import paper_name, paper_results
from lkgp.studies.records import Record

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
# The metrics by which the paper ranks methods; less is better.
RANKED = ("train_rmse", "test_rmse", "train_nll", "test_nll", "seconds")


def mean_and_error(values: Sequence[float]) -> tuple[float, float]:
    """The mean, and its standard error; NaN for that of a single value."""
    return statistics.fmean(values), statistics.stdev(values) / math.sqrt(len(values)) if len(values) > 1 else math.nan


def average_ranks(scores: dict[str, dict[str, float]]) -> dict[str, tuple[float, float]]:
    """The mean and standard deviation of each method's rank over datasets; 1 is the lowest score, and ties share ranks.

    scores: of each method, by dataset; only datasets that all methods have are ranked
    """
    from scipy.stats import rankdata  # noqa: PLC0415  (slow to import)

    shared = set.intersection(*(set(found) for found in scores.values())) if scores else set()
    ranks: dict[str, list[float]] = {method: [] for method in scores}
    for dataset in shared:
        for method, rank in zip(scores, rankdata([scores[method][dataset] for method in scores]), strict=True):
            ranks[method].append(float(rank))
    return {method: (statistics.fmean(found), statistics.pstdev(found)) for method, found in ranks.items() if found}


def gather(
    records: Sequence[Record], metric: str, column: Callable[[Record], str]
) -> dict[str, dict[str, list[float]]]:
    """method -> column -> the metric for every seed; failed runs are left out."""
    found: dict[str, dict[str, list[float]]] = {}
    for record in records:
        if "failed" not in record:
            value = record[metric] / (1e9 if metric == "peak_memory" else 1)
            found.setdefault(record["method"], {}).setdefault(column(record), []).append(value)
    return found


def plus_minus(mean: float, error: float, digits: int) -> str:
    """A mean, with its standard error if that is known."""
    return f"{mean:.{digits}f}" + ("" if math.isnan(error) else f" ± {error:.{digits}f}")


def comparison(
    records: Sequence[Record],
    metric: str,
    methods: Sequence[str],
    columns: Sequence[str],
    column: Callable[[Record], str],
) -> list[str]:
    """A table with methods as rows and datasets as columns; the best of each column is bold.

    column: the column that a record belongs to
    """
    title, digits = METRICS[metric]
    found = gather(records, metric, column)
    present = [method for method in methods if method in found]
    means = {m: {c: mean_and_error(v)[0] for c, v in found[m].items()} for m in present}
    ranked = metric in RANKED
    ranks = average_ranks(means) if ranked else {}
    failed = {(r["method"], column(r)) for r in records if "failed" in r}
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
            text = plus_minus(mean, error, digits) + "\\*" * ((method, c) in unfinished)
            best = ranked and mean == min(means[m][c] for m in present if c in means[m])
            cells.append(f"**{text}**" if best else text)
        if ranked:
            cells.append(f"{ranks[method][0]:.2f} ± {ranks[method][1]:.2f}" if method in ranks else "")
        lines.append(f"| {method} | " + " | ".join(cells) + " |")
    return lines


def beside_the_paper(records: Sequence[Record], method: str, paper_method: str = "LKGP") -> list[str]:
    """A table of our test NLL and RMSE and the paper's for every set, and how often ours is at most as large."""
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
            text = plus_minus(ours, error, 3)
            cells += [f"**{text}**" if better else text, plus_minus(theirs, their_error, 3)]
        cells.append(f"{statistics.median(found['seconds'][dataset]):.0f}")
        lines.append("| " + " | ".join(cells) + " |")
    if count:
        nll, rmse = wins["test_nll"], wins["test_rmse"]
        lines += ["", f"At or below the paper's: test NLL on {nll} of {count} sets, test RMSE on {rmse}."]
    return lines
