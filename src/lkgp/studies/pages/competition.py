"""The page about the competitions: our runs in one table with the published entries, and beside other packages."""

import csv
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from lkgp.studies.cases.competition import DATASETS, SATELLITE, comparators
from lkgp.studies.comparators.fill import FILL
from lkgp.studies.pages.sections import latest, measured_on
from lkgp.studies.records import Record, read
from lkgp.studies.registry import COMPARATORS

# The file of the results, and of the page beside that of the experiments.
RESULTS, PAGE = "competition.jsonl", "competition.md"

INTRODUCTION = """\
# Competitions

`lkgp fill` on the data of two competitions of spatial statistics, with nothing chosen by hand: `lkgp experiment \
competition` runs it and the other methods one after the other on the same machine, and `lkgp experiment report` \
writes this page from `{folder}/competition.jsonl`, one JSON line per run. Every method sees the training values only; \
the withheld values serve for the scores.

MAE and RMSE are of the predictive mean; CRPS and INT, the mean score of 95 % intervals, are of a Gaussian with the \
predictive mean and standard deviation, noise included; CVG is the share of withheld values inside the 95 % intervals. \
Less is better except for CVG, where 0.95 is right. The best of each column is bold.
"""

METHODS = """\
Of the methods without error bars, those are as wide as their errors on a tenth of the training values, held out at \
random. Distances in time are scaled to spread as much as those in space.
"""

TITLES = {
    SATELLITE: "Satellite temperatures through clouds (Heaton et al., 2019)",
    "kaust-1": "KAUST 2022, problem 2a, set 1: whole places withheld",
    "kaust-4": "KAUST 2022, problem 2a, set 4: single cells withheld",
    "kaust-7": "KAUST 2022, problem 2a, set 7: the last ten times withheld",
}
SOURCES = {SATELLITE: "Land surface temperature in degrees Celsius on 300 x 500 cells."}
PUBLISHED = (
    " The entries with two decimals are those published by Heaton et al., *A Case Study Competition Among Methods for "
    "Analyzing Large Spatial Data*, Journal of Agricultural, Biological and Environmental Statistics 24 (2019), "
    "398-425, table 3, on other machines."
)
KAUST_SOURCE = (
    "A simulated field at 1000 places of the unit square and 100 times (Abdulah et al., *The Second Competition on "
    "Spatial Statistics for Large Datasets*, 2022, arXiv 2211.03119). `lkgp fill` sees the coordinates x and y."
)
# The columns that have a best entry, their titles, and the value that is best; None for the least.
COLUMNS = (("mae", "MAE", None), ("rmse", "RMSE", None), ("crps", "CRPS", None), ("interval_95", "INT", None))
COVERAGE = ("in_95", "CVG", 0.95)


@dataclass(frozen=True)
class Entry:
    """One row of a table.

    scores: by the names in `COLUMNS` and `COVERAGE`; empty if the method failed
    cost: what is said about its time
    ours: whether it was run here
    """

    method: str
    scores: dict[str, float]
    cost: str
    ours: bool


def published() -> list[Entry]:
    """The entries of Heaton et al. (2019) on the satellite data."""
    with (files("lkgp.studies") / "competition_results.csv").open() as file:
        rows = list(csv.DictReader(file))
    names = [name for name, _, _ in (*COLUMNS, COVERAGE)]
    return [
        Entry(
            row["method"],
            {name: float(row[name]) for name in names},
            f"{row['minutes']} min, {row['cores']} core{'s' if row['cores'] != '1' else ''}" if row["minutes"] else "",
            ours=False,
        )
        for row in rows
    ]


def measured(records: list[Record], dataset: str) -> list[Entry]:
    """The entries that were run, in the order in which they are registered."""
    found = {record["method"]: record for record in records}
    entries = []
    for method in [name for name in comparators(dataset) if name in found]:
        record = found[method]
        if "failed" in record:
            entries.append(Entry(method, {}, f"failed: {record['failed']}", ours=True))
            continue
        scores = {name: record[f"test_{name}"] for name, _, _ in (*COLUMNS, COVERAGE)}
        entries.append(Entry(method, scores, seconds_of(record, found.get(FILL)), ours=True))
    return entries


def seconds_of(record: Record, reference: Record | None) -> str:
    """The seconds of a run, and how many times as long that is as `lkgp fill` took."""
    text = f"{record['seconds']:.2f} s" if record["seconds"] < 10 else f"{record['seconds']:.0f} s"
    if reference is None or "failed" in reference or record is reference:
        return text
    ratio = record["seconds"] / reference["seconds"]
    return f"{text} ({f'{ratio:.2g}' if ratio >= 0.01 else 'less than 0.01'} times)"


def table(entries: list[Entry]) -> list[str]:
    """The lines of a table; the best of each column is bold."""
    columns = (*COLUMNS, COVERAGE)
    scored = [entry for entry in entries if entry.scores]
    digits = 3 if all(entry.ours for entry in scored) else 2

    def distance(entry: Entry, name: str, wanted: float | None) -> float:
        # As it is printed, so that entries that look the same are both best.
        shown = round(entry.scores[name], digits)
        return shown if wanted is None else round(abs(shown - wanted), digits)

    lines = ["| | " + " | ".join(title for _, title, _ in columns) + " | time |", "|" + "---|" * (len(columns) + 2)]
    for entry in entries:
        cells = []
        for name, _, wanted in columns:
            if not entry.scores:
                cells.append("")
                continue
            best = distance(entry, name, wanted) == min(distance(other, name, wanted) for other in scored)
            text = f"{entry.scores[name]:.2f}" if not entry.ours else f"{entry.scores[name]:.3f}"
            cells.append(f"**{text}**" if best else text)
        name = f"`{entry.method}`" if entry.method == FILL else entry.method
        lines.append(f"| {name} | " + " | ".join(cells) + f" | {entry.cost} |")
    return lines


def section(records: list[Record], dataset: str, preset: str) -> list[str]:
    """The lines about one dataset."""
    entries = measured(records, dataset)
    source = SOURCES.get(dataset, KAUST_SOURCE)
    if dataset == SATELLITE and preset == "full":
        source += PUBLISHED
        entries = sorted([*entries, *published()], key=lambda entry: entry.scores.get("rmse", float("inf")))
    first = next((record for record in records if "cells" in record), None)
    size = f" {first['observed']} of {first['cells']} cells are observed." if first else ""
    part = "" if preset == "full" else " A small part of the data, to try the command; no result of the competition."
    quick = " --quick" if preset == "quick" else ""
    return [
        f"## {TITLES[dataset]}" + (", a small part" if part else ""),
        "",
        source + size + part,
        "",
        f"`lkgp experiment competition{quick} --dataset {dataset}`",
        "",
        *table(entries),
        "",
    ]


def write(results: Path, page: Path) -> bool:
    """Write the page from the results in a folder. Returns whether there were any."""
    records = latest(read(results / RESULTS))
    if not records:
        return False
    lines = [INTRODUCTION.format(folder=results.name), METHODS, *settings_table(), ""]
    for preset in ("full", "quick"):
        for dataset in DATASETS:
            chosen = [r for r in records if (r["dataset"], r["preset"]) == (dataset, preset)]
            if chosen:
                lines += section(chosen, dataset, preset)
    page.write_text("\n".join([*lines, measured_on(records)]).rstrip() + "\n")
    return True


def settings_table() -> list[str]:
    """A table of the settings of every method."""
    names = dict.fromkeys(name for dataset in DATASETS for name in comparators(dataset))
    rows = [f"| {name} | {COMPARATORS.get(name).settings('full', 'competition')} |" for name in names]
    return ["| | settings |", "|---|---|", *rows]
