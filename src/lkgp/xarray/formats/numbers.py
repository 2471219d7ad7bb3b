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
# The characters of numbers with a decimal point, or of none; and columns, one cell in each line, of whole numbers,
# and with a zero in front of another digit: a code such as 007, not a quantity.
POINT_CHARACTERS = re.compile(r"[0-9.+\-eE\n]*")
WHOLE = re.compile(r"[+\-0-9\n]+")
CODE = re.compile(r"^0[0-9]+$", re.MULTILINE)
# From how many cells the share of numbers in a column is estimated.
SAMPLE = 1000


@dataclass(frozen=True, eq=False)
class NumberColumn:
    """A column of text that was read as numbers.

    values: (rows,), NaN where the number is missing
    decimal: the decimal sign, "." or ","; empty if no number has one
    whole: whether there are only whole numbers, none of them missing
    code: whether some have a zero in front, as codes have
    """

    values: np.ndarray
    decimal: str
    whole: bool
    code: bool


@dataclass(frozen=True)
class Mistake:
    """Why a column cannot be read as numbers: its first row that is not a number, and what to say about that."""

    row: int
    what: str


def read_numbers(cells: Sequence[str], comma_is_decimal: bool = False) -> NumberColumn | Mistake:
    """Read a column as numbers, with one decimal sign in all rows and without any sign between thousands.

    cells: without spaces around them
    comma_is_decimal: whether 1,234 can only mean 1.234, as where semicolons separate the columns
    """
    there = [row for row, cell in enumerate(cells) if cell not in MISSING]
    texts = [cells[row] for row in there]
    joined, decimal = "\n".join(texts), "."
    # Most columns have a decimal point; for these, no cell is looked at on its own.
    numbers = _as_floats(texts) if POINT_CHARACTERS.fullmatch(joined) else None
    if numbers is None:
        mistake = _first_mistake(texts, comma_is_decimal)
        if mistake is not None:
            return Mistake(there[mistake.row], mistake.what)
        decimal = "," if "," in joined else "."
        numbers = _as_floats([text.replace(",", ".") for text in texts])
    values = np.full(len(cells), np.nan)
    values[there] = numbers
    whole = len(there) == len(cells) and WHOLE.fullmatch(joined) is not None
    return NumberColumn(values, decimal if decimal in joined else "", whole, CODE.search(joined) is not None)


def share_of_numbers(cells: Sequence[str]) -> float:
    """The share of numbers, with either decimal sign, among the first cells that are not missing; from 0 to 1."""
    texts = [cell for cell in cells if cell not in MISSING][:SAMPLE]
    found = sum(bool(POINT.fullmatch(text) or COMMA.fullmatch(text)) for text in texts)
    return found / max(len(texts), 1)


def _as_floats(texts: list[str]) -> list[float] | None:
    try:
        return [float(text) for text in texts]
    except ValueError:
        return None


def _first_mistake(texts: list[str], comma_is_decimal: bool) -> Mistake | None:
    for row, text in enumerate(texts):
        if not POINT.fullmatch(text) and not COMMA.fullmatch(text):
            return Mistake(row, "is not a number")
    points = next((row for row, text in enumerate(texts) if "." in text), None)
    commas = [row for row, text in enumerate(texts) if "," in text]
    if points is not None and commas:
        first, second = sorted((points, commas[0]))
        signs = ("point", "comma") if first == points else ("comma", "point")
        return Mistake(second, f"has a decimal {signs[1]}, while {texts[first]!r} above has a decimal {signs[0]}")
    if commas and not comma_is_decimal and all(EITHER.fullmatch(texts[row]) for row in commas):
        return Mistake(
            commas[0], "may mean a thousand or a decimal fraction; write it without the comma, or with a point"
        )
    return None
