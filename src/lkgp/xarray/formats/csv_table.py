"""A table of text of which every character is kept, except in cells that are filled."""

from collections.abc import Iterator
from dataclasses import dataclass
from math import isnan
from pathlib import Path

import numpy as np
import pandas as pd

from lkgp.xarray.formats.base import OpenTable, TableFormat
from lkgp.xarray.formats.delimited import SEPARATORS, Records, is_blank, quoted, requoted, split_fields
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

    def fields(self, values: np.ndarray, column: str, separator: str) -> list[str]:
        """Numbers (N,) as fields with the decimal sign of a column, or of others if it has none; NaN is empty."""
        texts = ["" if isnan(value) else repr(value) for value in values.tolist()]
        if self.commas and column not in self.points:
            return [quoted(text.replace(".", ","), separator) for text in texts]
        return texts


class CSVTable(OpenTable):
    """A table with its text.

    records: all lines, of which those that are not blank are the header and the rows of the frame
    """

    def __init__(self, file_format: TableFormat, frame: pd.DataFrame, records: Records, dialect: Dialect) -> None:
        super().__init__(file_format, frame, str(dialect))
        self.dialect, self.records = dialect, records
        # The records that are the header and the rows, and the blank lines before each of them and at the end.
        self.lines: list[int] = []
        self.blanks: dict[int, list[int]] = {}
        for i, text in enumerate(records.texts):
            if is_blank(text, dialect.separator):
                self.blanks.setdefault(len(self.lines), []).append(i)
            else:
                self.lines.append(i)

    def write(self, edit: TableEdit, path: Path) -> None:
        separator = self.dialect.separator
        if is_tab_separated(path) != self.dialect.tabs:
            separator = "," if self.dialect.tabs else "\t"
        usual = self.records.ends[self.lines[0]] or "\n"
        written = [part for text, end in self.edited(edit, separator) for part in (text, end or usual)]
        written[-1] = self.records.ends[-1]  # which may be missing
        write_bytes(self.dialect.mark + "".join(written).encode(self.dialect.encoding), path)

    def edited(self, edit: TableEdit, separator: str) -> Iterator[tuple[str, str]]:
        """Every record of the edited table, and the characters that end it; these are empty for a new one."""
        names, rows = list(self.frame.columns), self.lines[1:]
        copied = [(i, edit.copied[name]) for i, name in enumerate(names) if name in edit.copied]
        replaced = [
            (i, self.dialect.fields(edit.replaced[name], name, separator))
            for i, name in enumerate(names)
            if name in edit.replaced
        ]
        added = [
            self.dialect.fields(values, name.removesuffix("_std"), separator) for name, values in edit.added.items()
        ]
        yield from self.blank_lines(0)
        header = self.fields(self.lines[0], separator) + [quoted(name, separator) for name in edit.added]
        yield separator.join(header), self.records.ends[self.lines[0]]
        for position, (row, *new) in enumerate(zip(edit.origin.tolist(), *added, strict=True)):
            if row >= 0:
                yield from self.blank_lines(row + 1)
                fields, end = self.fields(rows[row], separator), self.records.ends[rows[row]]
            else:
                fields, end = [""] * len(names), ""
                for i, source in copied:
                    if source[position] >= 0:
                        fields[i] = self.fields(rows[source[position]], separator)[i]
            fields += [""] * (len(names) - len(fields))
            for i, texts in replaced:
                fields[i] = texts[position] or fields[i]
            # Separators at the end of a row, which the header does not have, stay at its end.
            yield separator.join(fields[: len(names)] + new + fields[len(names) :]), end
        yield from self.blank_lines(len(self.lines))

    def fields(self, record: int, separator: str) -> list[str]:
        """The fields of a record, to be separated by `separator`."""
        fields = split_fields(self.records.texts[record], self.dialect.separator)
        same = separator == self.dialect.separator
        return fields if same else [requoted(field, separator) for field in fields]

    def blank_lines(self, before: int) -> Iterator[tuple[str, str]]:
        """The blank lines before the header (0), before a row (from 1), or at the end, and what ends them."""
        for i in self.blanks.get(before, ()):
            yield self.records.texts[i], self.records.ends[i]


def is_tab_separated(path: Path) -> bool:
    """Whether the name of a file says that tabs separate its columns."""
    return ".tsv" in (suffix.lower() for suffix in path.suffixes)
