"""Numbers as people write them in tables: with a decimal point or a decimal comma, and with words for missing ones."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

# What stands for a missing value in columns of numbers; in a column of names, each of these may be a name.
MISSING = frozenset(["", "NA", "N/A", "n/a", "NaN", "nan", "null", "NULL", "None", "<NA>", "#N/A", "-"])
POINT = re.compile(r"[+-]?(?:(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?|inf|Inf)", re.ASCII)
COMMA = re.compile(r"[+-]?(?:\d+,?\d*|,\d+)(?:[eE][+-]?\d+)?", re.ASCII)
# 1,234 is 1.234 with a decimal comma, and 1234 with a comma between thousands; 0,234 and 12,34 have only one meaning.
EITHER = re.compile(r"[+-]?[1-9]\d{0,2},\d{3}", re.ASCII)
WHOLE = re.compile(r"[+-]?\d+", re.ASCII)
# A zero in front of another digit: a code such as 007, not a quantity.
CODE = re.compile(r"0\d+", re.ASCII)


@dataclass(frozen=True, eq=False)
class NumberColumn:
    """A column of text that was read as numbers.

    values: (rows,), NaN where the number is missing; meaningless if there is a mistake
    decimal: the decimal sign, "." or ","; empty if no number has one
    whole: whether there are only whole numbers, none of them missing
    code: whether some have a zero in front, as codes have
    share: of the cells that are not missing, how many are numbers with either decimal sign, from 0 to 1
    mistake: the first row that is not a number, and what to say about it; None if all rows are numbers or missing
    """

    values: np.ndarray
    decimal: str
    whole: bool
    code: bool
    share: float
    mistake: tuple[int, str] | None


def read_numbers(texts: Sequence[str], comma_is_decimal: bool = False) -> NumberColumn:
    """Read a column as numbers, with one decimal sign in all rows and without any sign between thousands.

    comma_is_decimal: whether 1,234 can only mean 1.234, as where semicolons separate the columns
    """
    cells = [text.strip() for text in texts]
    there = [row for row, cell in enumerate(cells) if cell not in MISSING]
    no_point = [row for row in there if not POINT.fullmatch(cells[row])]
    mistake = _mistake_with_comma(cells, there, no_point, comma_is_decimal) if no_point else None
    values = np.full(len(cells), np.nan)
    if mistake is None:
        values[there] = [float(cells[row].replace(",", ".")) for row in there]
    whole = len(there) == len(cells) > 0 and all(WHOLE.fullmatch(cell) for cell in cells)
    decimal = "," if no_point else "." if any("." in cells[row] for row in there) else ""
    code = any(CODE.fullmatch(cells[row]) for row in there)
    wrong = sum(COMMA.fullmatch(cells[row]) is None for row in no_point)
    return NumberColumn(values, decimal, whole, code, 1 - wrong / max(len(there), 1), mistake)


def _mistake_with_comma(
    cells: list[str], there: list[int], no_point: list[int], comma_is_decimal: bool
) -> tuple[int, str] | None:
    """The first row that is not a number, if some rows (`no_point`) are not numbers with a decimal point."""
    neither = next((row for row in no_point if not COMMA.fullmatch(cells[row])), None)
    if neither is not None:
        return neither, "is not a number"
    with_point = next((row for row in there if "." in cells[row]), None)
    if with_point is not None:
        first, second = sorted((with_point, no_point[0]))
        signs = ("point", "comma") if first == with_point else ("comma", "point")
        return second, f"has a decimal {signs[1]}, while {cells[first]!r} above has a decimal {signs[0]}"
    if not comma_is_decimal and all(EITHER.fullmatch(cells[row]) for row in no_point):
        return no_point[0], "may mean a thousand or a decimal fraction; write it without the comma, or with a point"
    return None
