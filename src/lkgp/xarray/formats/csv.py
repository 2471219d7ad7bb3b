"""Tables as text, with commas, semicolons, tabs or other separators."""

from collections.abc import Collection
from pathlib import Path

import numpy as np
import pandas as pd

from lkgp.xarray.formats.base import TableFormat, register
from lkgp.xarray.formats.csv_table import CSVTable, Dialect, is_tab_separated
from lkgp.xarray.formats.delimited import Record, content, find_separator, split_lines, split_records
from lkgp.xarray.formats.numbers import NumberColumn, read_numbers
from lkgp.xarray.formats.text_files import decode, read_bytes

# Whole numbers below this are exact as floating-point numbers.
EXACT = 2**53


class CSV(TableFormat):
    name = "CSV"
    endings = (".csv", ".tsv", ".txt")

    def open(self, path: Path, text_columns: Collection[str], number_columns: Collection[str]) -> CSVTable:
        text, encoding, mark = decode(read_bytes(path))
        lines, tabs = split_lines(text), is_tab_separated(path)
        separator = "\t" if tabs else find_separator(lines)
        records = split_records(lines, separator)
        if all(record.is_blank for record in records):
            raise ValueError("it is empty")
        header, *rows = (record for record in records if not record.is_blank)
        names = [content(field) for field in header.fields]
        for row in rows:
            check_width(row, len(names), separator)
        columns: list[np.ndarray] = []
        signs: dict[str, list[str]] = {",": [], ".": [], "": []}
        for i, name in enumerate(names):
            cells = [content(row.fields[i]) if i < len(row.fields) else "" for row in rows]
            numbers = None
            if name and name.lower() not in text_columns:
                numbers = read_numbers(cells, comma_is_decimal=separator == ";")
            if numbers is None or numbers.mistake is not None or (numbers.code and name.lower() not in number_columns):
                columns.append(np.array(cells, dtype=object))
            else:
                columns.append(as_whole(numbers))
                signs[numbers.decimal].append(name)
        frame = pd.concat([pd.Series(column) for column in columns], axis=1).set_axis(names, axis=1)
        frame.index = pd.Index([row.line for row in rows], name="line")
        return CSVTable(
            self, frame, records, Dialect(encoding, mark, separator, tabs, tuple(signs[","]), tuple(signs["."]))
        )

    def read(self, path: Path, text_columns: Collection[str]) -> pd.DataFrame:
        return self.open(path, text_columns, ()).frame.reset_index(drop=True)

    def write(self, frame: pd.DataFrame, path: Path) -> None:
        frame.to_csv(path, index=False, sep="\t" if is_tab_separated(path) else ",")


def check_width(row: Record, width: int, separator: str) -> None:
    """Refuse a row with more fields than the header has; empty ones at the end are only separators too many."""
    if any(content(field) for field in row.fields[width:]):
        advice = "; a number with a decimal comma must be in quotation marks" if separator == "," else ""
        raise ValueError(f"line {row.line} has {len(row.fields)} fields, but the header has {width}{advice}")


def as_whole(numbers: NumberColumn) -> np.ndarray:
    """The values of a column, as integers if all of them are whole numbers."""
    exact = numbers.whole and bool((np.abs(numbers.values) < EXACT).all())
    return numbers.values.astype(np.int64) if exact else numbers.values


register(CSV())
