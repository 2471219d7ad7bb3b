"""What the sections of the page about the experiments have in common."""

from collections.abc import Sequence
from typing import Any

from lkgp.studies.pages import tables
from lkgp.studies.records import Record
from lkgp.studies.registry import PRESETS, comparators
from lkgp.studies.runs import key

METRICS_OVER_MISSING = ("test_nll", "test_rmse", "test_in_95", "seconds", "peak_memory")


def method_names() -> list[str]:
    """The comparators of the experiments, in the order of tables and figures."""
    return list(dict.fromkeys(name for preset in PRESETS for name in comparators(preset)))


def latest(records: Sequence[Record]) -> list[Record]:
    """The last result of every run; one that worked takes precedence over one that failed."""
    found: dict[tuple[Any, ...], Record] = {}
    for record in records:
        if "failed" not in record or key(record) not in found or "failed" in found[key(record)]:
            found[key(record)] = record
    return list(found.values())


def measured_on(records: Sequence[Record]) -> str:
    """One line about the machine, the packages and the dates."""
    complete = [record for record in records if "hardware" in record]
    if not complete:
        return ""
    machine = complete[-1]["hardware"]
    # a record names the packages that were installed for it
    known = {name: number for record in complete for name, number in record["versions"].items()}
    packages = ", ".join(f"{name} {number}" for name, number in known.items())
    days = sorted({record["date"] for record in complete})
    dates = days[0] + (f" to {days[-1]}" if len(days) > 1 else "")
    threads = "1 thread" if machine["threads"] == 1 else f"{machine['threads']} threads"
    return f"{threads} of {machine['processor']}; {packages}; {dates}."


def tables_over_missing(records: list[Record]) -> list[str]:
    """One table per metric, with the shares of missing cells as columns."""
    columns = [f"{share:.0%}" for share in sorted({record["missing"] for record in records})]
    lines = []
    for metric in METRICS_OVER_MISSING:
        lines += tables.comparison(records, metric, method_names(), columns, lambda r: f"{r['missing']:.0%}")
        lines.append("")
    return lines
