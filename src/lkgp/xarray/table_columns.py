"""The columns of a table as times and numbers; what is neither is refused with its place in the table."""

import warnings
from collections.abc import Collection, Sequence
from datetime import tzinfo
from typing import Any

import numpy as np
import pandas as pd

from lkgp.errors import InputError
from lkgp.xarray.formats.numbers import MISSING, Mistake, read_numbers, share_of_numbers

# A column of which more than this share are numbers was meant to hold numbers; a remark rarely is one.
MOSTLY = 0.5
# The offset from UTC at the end of a date with a time of day.
OFFSET = r"[T ].*(?:Z|[+-]\d\d(?::?\d\d)?)$"


def place_of(column: pd.Series, position: int) -> str:
    """Where a cell of a column is: its line if the index of the column says so, otherwise its row from 1."""
    if column.index.name is None:
        return f"row {position + 1}"
    return f"{column.index.name} {column.index[position]}"


def check_unique(columns: Sequence[str], needed: Sequence[str]) -> None:
    """Refuse a table in which two columns have the name of one that is needed."""
    for column in needed:
        if columns.count(column) > 1:
            raise InputError(f"several columns are named {column!r}; rename or remove all but one.")


def is_number(column: pd.Series) -> bool:
    """Whether a column holds numbers; truth values are not numbers."""
    return pd.api.types.is_numeric_dtype(column) and not pd.api.types.is_bool_dtype(column)


def numbers_to_fill(frame: pd.DataFrame, others: Collection[str], is_long: bool) -> tuple[list[str], list[str]]:
    """The columns of numbers, except `others`, results of an earlier filling and, in a long table, empty ones.

    Also returns a remark on each column that is passed over because of a few cells that are not numbers.
    """
    found, remarks, example = [], [], ""
    for i, name in enumerate(frame.columns):
        column = frame.iloc[:, i]
        if not name or name in others or name.endswith(("_std", "_filled")) or (is_long and column.isna().all()):
            continue
        if is_number(column):
            found.append(name)
            continue
        mistake = first_mistake(column)
        if mistake is not None:
            cell = (
                f"{name} contains {column.iloc[mistake.row]!r} in {place_of(column, mistake.row)}, which {mistake.what}"
            )
            example = example or cell
            if share_of_numbers(column.astype(str).tolist()) > MOSTLY:
                remarks.append(cell)
    if not found:
        reason = next(iter(remarks), example)
        raise InputError(f"no column to fill contains numbers{f'; {reason}' if reason else ''}.")
    return found, [f"not filled: {remark}." for remark in remarks]


def first_mistake(column: pd.Series) -> Mistake | None:
    """Why a column is not one of numbers; None if all of its cells are missing."""
    cells = column.astype(str).where(column.notna(), "").str.strip().tolist()
    found = read_numbers(cells)
    if isinstance(found, Mistake):
        return found
    there = next((row for row, cell in enumerate(cells) if cell not in MISSING), None)
    return None if there is None else Mistake(there, "is a code or other text")


def as_numbers(column: pd.Series) -> pd.Series:
    """A column of numbers as floating-point numbers."""
    if is_number(column):
        return column.astype(float)
    mistake = first_mistake(column)
    if mistake is None:
        raise InputError(f"the column {column.name} is empty; choose another one.")
    raise InputError(
        f"the column {column.name} contains {column.iloc[mistake.row]!r} in {place_of(column, mistake.row)}, which "
        f"{mistake.what}."
    )


def as_times(column: pd.Series, date_format: str | None) -> tuple[pd.Series, str | None, tzinfo | None]:
    """Times, the format of their dates if it is not ISO 8601, and their time zone.

    Dates are returned in UTC, without a zone. Numbers stay numbers, unless they look like 20190301.
    """
    name = column.name
    empty = column.isna() | column.isin(MISSING)
    if empty.any():
        raise InputError(
            f"the column {name} is empty in {place_of(column, int(np.flatnonzero(empty)[0]))}; every row needs a time."
        )
    if date_format is None and pd.api.types.is_integer_dtype(column) and column.between(18000101, 22001231).all():
        date_format = "%Y%m%d"
    if date_format is None and is_number(column):
        return column.astype(column.to_numpy().dtype), None, None
    found: Any = column
    if not pd.api.types.is_datetime64_any_dtype(column):
        texts = column.astype(str)
        if date_format is None:
            check_offsets(column, texts)
        try:
            found = as_dates(texts, date_format or "ISO8601")
        except (ValueError, TypeError):
            readable = pd.to_datetime(texts, format=date_format or "ISO8601", utc=True, errors="coerce").notna()
            row = int(np.flatnonzero(~readable)[0]) if not readable.all() else 0
            wanted = date_format or "ISO 8601 (2019-03-01T06:00); give another format with --date-format"
            raise InputError(
                f"the column {name} contains {column.iloc[row]!r} in {place_of(column, row)}, which is not a date in "
                f"the format {wanted}."
            ) from None
    zone = found.dt.tz
    return found if zone is None else found.dt.tz_convert("UTC").dt.tz_localize(None), date_format, zone


def check_offsets(column: pd.Series, texts: pd.Series) -> None:
    """Refuse a column in which only some dates have an offset from UTC, so that others may be hours away."""
    has_offset = texts.str.contains(OFFSET)
    if has_offset.any() and not has_offset.all():
        row = int(np.flatnonzero(has_offset != has_offset.iloc[0])[0])
        which = "which has no offset" if has_offset.iloc[0] else "which has an offset"
        raise InputError(
            f"the column {column.name} contains {column.iloc[row]!r} in {place_of(column, row)}, {which} "
            f"from UTC, unlike {column.iloc[0]!r} above; give all dates an offset, or none."
        )


def as_dates(texts: pd.Series, date_format: str) -> pd.Series:
    """Dates from text: with their offset from UTC if it never changes; in UTC if it does, as with summer time."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", FutureWarning)  # older versions of pandas only warn about several offsets
        try:
            return pd.to_datetime(texts, format=date_format)
        except (ValueError, FutureWarning):
            return pd.to_datetime(texts, format=date_format, utc=True)
