"""Tables as text, with commas, semicolons, tabs or other separators."""

from collections.abc import Collection
from pathlib import Path

import numpy as np
import pandas as pd

from lkgp.xarray.formats.base import TableFormat, register
from lkgp.xarray.formats.csv_table import CSVTable, Dialect, is_tab_separated
from lkgp.xarray.formats.delimited import (
    Records,
    content,
    find_separator,
    is_blank,
    split_fields,
    split_lines,
    split_records,
)
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
        rows = [i for i, record in enumerate(records.texts) if not is_blank(record, separator)]
        if not rows:
            raise ValueError("it is empty")
        names = [content(field) for field in split_fields(records.texts[rows[0]], separator)]
        read = content if '"' in text else str.strip
        columns: list[np.ndarray] = []
        signs: dict[str, list[str]] = {",": [], ".": [], "": []}
        for name, fields in zip(names, columns_of(records, rows[1:], len(names), separator), strict=True):
            cells = [read(field) for field in fields]
            numbers = None
            if name and name.lower() not in text_columns:
                numbers = read_numbers(cells, comma_is_decimal=separator == ";")
            if not isinstance(numbers, NumberColumn) or (numbers.code and name.lower() not in number_columns):
                columns.append(np.array(cells, dtype=object))
            else:
                columns.append(as_whole(numbers))
                signs[numbers.decimal].append(name)
        frame = pd.concat([pd.Series(column) for column in columns], axis=1).set_axis(names, axis=1)
        frame.index = pd.Index([records.lines[i] for i in rows[1:]], name="line")
        dialect = Dialect(encoding, mark, separator, tabs, tuple(signs[","]), tuple(signs["."]))
        return CSVTable(self, frame, records, dialect)

    def read(self, path: Path, text_columns: Collection[str]) -> pd.DataFrame:
        return self.open(path, text_columns, ()).frame.reset_index(drop=True)

    def write(self, frame: pd.DataFrame, path: Path) -> None:
        frame.to_csv(path, index=False, sep="\t" if is_tab_separated(path) else ",")


def columns_of(records: Records, rows: list[int], width: int, separator: str) -> list[list[str]]:
    """The fields of every column of the header in these records.

    A row that ends early ends with empty fields; one with more fields is refused, unless these are only separators.
    """
    columns: list[list[str]] = [[] for _ in range(width)]
    for i in rows:
        fields = split_fields(records.texts[i], separator)
        if len(fields) != width:
            if any(content(field) for field in fields[width:]):
                advice = "; a number with a decimal comma must be in quotation marks" if separator == "," else ""
                raise ValueError(
                    f"line {records.lines[i]} has {len(fields)} fields, but the header has {width}{advice}"
                )
            fields = fields[:width] + [""] * (width - len(fields))
        for column, field in zip(columns, fields, strict=True):
            column.append(field)
    return columns


def as_whole(numbers: NumberColumn) -> np.ndarray:
    """The values of a column, as integers if all of them are whole numbers."""
    exact = numbers.whole and bool((np.abs(numbers.values) < EXACT).all())
    return numbers.values.astype(np.int64) if exact else numbers.values


register(CSV())
