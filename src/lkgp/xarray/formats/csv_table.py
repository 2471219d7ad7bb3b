"""A table of text of which every character is kept, except in cells that are filled."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from lkgp.xarray.formats.base import OpenTable, TableFormat
from lkgp.xarray.formats.delimited import SEPARATORS, Record, quoted, requoted
from lkgp.xarray.formats.table_edit import TableEdit
from lkgp.xarray.formats.text_files import write_bytes


@dataclass(frozen=True)
class Dialect:
    """How a table is written as text.

    encoding, mark: of the characters, and the byte-order mark with which the file begins
    separator: of the columns; tabs: whether the name of the file asks for tabs
    commas, points: the names of the columns with a decimal comma and with a decimal point
    """

    encoding: str
    mark: bytes
    separator: str
    tabs: bool
    commas: tuple[str, ...]
    points: tuple[str, ...]

    def __str__(self) -> str:
        """What differs from UTF-8 with commas, or with tabs if the name says so, and points; empty if nothing does."""
        found = []
        if self.encoding != "UTF-8" or self.mark:
            found.append(f"text in {self.encoding}" + (" with a byte-order mark" if self.mark else ""))
        if self.separator != ("\t" if self.tabs else ","):
            found.append(f"columns separated by {SEPARATORS[self.separator]}")
        if self.commas:
            found.append(f"a decimal comma in {', '.join(self.commas)}")
        return "; ".join(found)

    def number(self, value: Any, column: str) -> str:
        """A number with the decimal sign of a column, or of others if that has none; empty if it is missing."""
        if np.isnan(value):
            return ""
        text = repr(value.item())
        return text.replace(".", ",") if self.commas and column not in self.points else text


class CSVTable(OpenTable):
    """A table with its text.

    records: all lines, of which those that are not blank are the header and the rows of the frame
    """

    def __init__(self, file_format: TableFormat, frame: pd.DataFrame, records: list[Record], dialect: Dialect) -> None:
        super().__init__(file_format, frame, str(dialect))
        self.dialect, self.last_end = dialect, records[-1].end
        self.lines: list[Record] = []  # the header and the rows
        self.blanks: list[list[Record]] = [[]]  # the blank lines before each of them, and at the end
        for record in records:
            if record.is_blank:
                self.blanks[-1].append(record)
            else:
                self.lines.append(record)
                self.blanks.append([])

    def write(self, edit: TableEdit, path: Path) -> None:
        separator = self.dialect.separator
        if is_tab_separated(path) != self.dialect.tabs:
            separator = "," if self.dialect.tabs else "\t"
        usual = self.lines[0].end or "\n"
        written = []
        same = separator == self.dialect.separator
        for fields, end in self.edited(edit, separator):
            text = separator.join(fields if same else [requoted(field, separator) for field in fields])
            written += [text, end or usual]
        written[-1] = self.last_end  # which may be missing
        write_bytes(self.dialect.mark + "".join(written).encode(self.dialect.encoding), path)

    def edited(self, edit: TableEdit, separator: str) -> Iterator[tuple[list[str], str]]:
        """The fields and the end of every line of the edited table."""
        names, width, rows = list(self.frame.columns), len(self.lines[0].fields), self.lines[1:]
        copied = [(i, edit.copied[name]) for i, name in enumerate(names) if name in edit.copied]
        replaced = [(i, name, edit.replaced[name]) for i, name in enumerate(names) if name in edit.replaced]
        yield from ((record.fields, record.end) for record in self.blanks[0])
        yield self.lines[0].fields + [quoted(name, separator) for name in edit.added], self.lines[0].end
        for position, row in enumerate(edit.origin):
            if row >= 0:
                yield from ((record.fields, record.end) for record in self.blanks[row + 1])
                fields, end = rows[row].fields + [""] * (width - len(rows[row].fields)), rows[row].end
            else:
                fields, end = [""] * width, ""
                for i, source in copied:
                    fields[i] = rows[source[position]].fields[i] if source[position] >= 0 else ""
            for i, name, values in replaced:
                if not np.isnan(values[position]):
                    fields[i] = quoted(self.dialect.number(values[position], name), separator)
            new = [
                quoted(self.dialect.number(values[position], name.removesuffix("_std")), separator)
                for name, values in edit.added.items()
            ]
            # Separators at the end of a row, which the header does not have, stay at its end.
            yield fields[:width] + new + fields[width:], end
        yield from ((record.fields, record.end) for record in self.blanks[-1])


def is_tab_separated(path: Path) -> bool:
    """Whether the name of a file says that tabs separate its columns."""
    return ".tsv" in (suffix.lower() for suffix in path.suffixes)
