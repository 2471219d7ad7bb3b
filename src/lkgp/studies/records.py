"""Files of results, one JSON line each, in which no finished result is ever lost."""

import json
from pathlib import Path
from typing import Any

from lkgp.errors import InputError
from lkgp.persistence.atomic import write_atomically

Record = dict[str, Any]


def read(path: Path) -> list[Record]:
    """All results of a file; a last line that was cut off by a crash is left out, and no file is no results."""
    if not path.is_file():
        return []
    records = []
    lines = path.read_text().splitlines()
    for number, line in enumerate(lines, start=1):
        try:
            records.append(json.loads(line))
        except json.JSONDecodeError:
            if number < len(lines):
                raise InputError(f"line {number} of {path} is not JSON; mend or remove it.") from None
    return records


def append(path: Path, record: Record) -> None:
    """Add a result, on a line of its own even where a crash cut the last one off."""
    line = json.dumps(record) + "\n"
    if path.is_file() and (text := path.read_text()) and not text.endswith("\n"):
        # What was cut off goes; a result that only lacks the end of its line stays.
        whole = [json.dumps(kept) + "\n" for kept in read(path)]
        write_atomically(path, lambda part: part.write_text("".join([*whole, line])))
        return
    with path.open("a") as file:
        file.write(line)
