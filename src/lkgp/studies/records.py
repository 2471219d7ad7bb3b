"""The files of results. A finished result is never lost: files are appended to, or replaced in one step."""

import json
import time
from pathlib import Path
from typing import Any

from lkgp.errors import FileError, InputError
from lkgp.machine import hardware, versions
from lkgp.persistence.atomic import write_atomically

Record = dict[str, Any]


def today() -> str:
    return time.strftime("%Y-%m-%d")


def provenance() -> Record:
    """The date, the package versions and the hardware of a measurement."""
    return {"date": today(), "versions": versions(), "hardware": hardware()}


def read(path: Path) -> list[Record]:
    """All results of a file with one JSON object per line, or none if there is no such file.

    A last line that was cut off by a crash is left out.
    """
    if not path.is_file():
        return []
    records = []
    lines = path.read_text().splitlines()
    for number, line in enumerate(lines, start=1):
        try:
            records.append(json.loads(line))
        except json.JSONDecodeError:
            if number < len(lines):
                raise InputError(f"line {number} of {path} is not valid JSON; fix or remove it.") from None
    return records


def append(path: Path, record: Record) -> None:
    """Add a result on a line of its own, even if a crash cut off the line before it."""
    line = json.dumps(record) + "\n"
    if path.is_file() and (text := path.read_text()) and not text.endswith("\n"):
        # A line that is cut off is dropped; one that only lacks its end is a result, and stays.
        complete = [json.dumps(kept) + "\n" for kept in read(path)]
        write_atomically(path, lambda part: part.write_text("".join([*complete, line])))
        return
    with path.open("a") as file:
        file.write(line)


def read_benchmarks(path: Path) -> Record:
    """The content of a file of benchmark results; any other file is refused, because it would be replaced."""
    try:
        content = json.loads(path.read_text())
    except ValueError:
        content = None
    if not isinstance(content, dict) or not isinstance(content.get("runs"), list):
        raise FileError(f"{path} is not a file of benchmark results, which could be added to; choose another name.")
    return content


class BenchmarkFile:
    """The results of the benchmarks: one JSON file with one entry per case and comparator under "runs".

    content: what is in the file, with the hardware, the versions and the date of the last change
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.content: Record = read_benchmarks(path) if path.is_file() else {"runs": []}
        now = provenance()
        self.content.update(hardware=now["hardware"], versions=now["versions"], date=now["date"])

    def entry(self, case: str, comparator: str) -> Record | None:
        """The result of a comparator on a case, if there is one."""
        return next(
            (run for run in self.content["runs"] if (run["case"], run["contestant"]) == (case, comparator)), None
        )

    def keep(self, case: str, comparator: str, result: Record) -> None:
        """Replace the result of a comparator on a case and save the file; a failure does not replace a success."""
        before = self.entry(case, comparator)
        if "failed" in result and before is not None and "failed" not in before:
            return
        entry = {"case": case, "contestant": comparator, "date": self.content["date"], **result}
        self.content["runs"] = [run for run in self.content["runs"] if run is not before] + [entry]
        write_atomically(self.path, lambda part: part.write_text(json.dumps(self.content, indent=1) + "\n"))
