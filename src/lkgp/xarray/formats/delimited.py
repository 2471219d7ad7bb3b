"""Delimited text, split into fields of which every character is kept."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache

# In the order in which they are tried: those that rarely occur inside a field come first.
SEPARATORS = {"\t": "tabs", ";": "semicolons", "|": "vertical bars", ",": "commas", " ": "spaces"}
# How many records are looked at to find the separator.
SAMPLE = 100
LINE = re.compile(r"([^\r\n]*)(\r\n|\r|\n|\Z)")
# A quoted field may contain separators, line ends and doubled quotation marks; it need not end with the second mark.
QUOTED = re.compile(r' *"((?:[^"]|"")*+)"')


@dataclass(frozen=True)
class Records:
    """The records of a table: lines, or several lines if a quoted field contains line ends.

    Plain lists of text, because millions of small objects are slow.

    texts: as written, without the characters that end them; ends: these characters, empty at the end of a file
    lines: the number of the first line of each, from 1
    """

    texts: list[str] = field(default_factory=list)
    ends: list[str] = field(default_factory=list)
    lines: list[int] = field(default_factory=list)

    def append(self, text: str, end: str, line: int) -> None:
        self.texts.append(text)
        self.ends.append(end)
        self.lines.append(line)


def split_lines(text: str) -> list[tuple[str, str]]:
    """The lines and the characters that end each of them."""
    lines = LINE.findall(text)
    return lines[:-1] if lines[-1] == ("", "") else lines


def split_records(lines: Sequence[tuple[str, str]], separator: str, most: int | None = None) -> Records:
    """The records in lines of text; most: stop after this many."""
    records, number = Records(), 0
    while number < len(lines) and (most is None or len(records.texts) < most):
        first, (text, end) = number, lines[number]
        number += 1
        while '"' in text and is_open(split_fields(text, separator)[-1]):
            if number == len(lines):
                raise ValueError(f"the quotation mark in line {first + 1} is not closed")
            text, end = text + end + lines[number][0], lines[number][1]
            number += 1
        records.append(text, end, first + 1)
    return records


@lru_cache
def field_pattern(separator: str) -> re.Pattern[str]:
    """A field up to the next separator."""
    mark = re.escape(separator)
    return re.compile(rf"{QUOTED.pattern}[^{mark}]*|[^{mark}]*")


def split_fields(text: str, separator: str) -> list[str]:
    """The fields of a record, with their quotation marks and the spaces around them."""
    if '"' not in text:
        return text.split(separator)
    fields, position = list[str](), 0
    while position <= len(text):
        found = field_pattern(separator).match(text, position)
        assert found is not None  # a field may be empty
        if is_open(found.group()):
            return [*fields, text[position:]]  # the rest of the line is in quotation marks, separators and all
        fields.append(found.group())
        position = found.end() + 1
    return fields


def is_open(field: str) -> bool:
    """Whether a quoted field goes on in the next line."""
    return field.lstrip(" ").startswith('"') and QUOTED.match(field) is None


def is_blank(text: str, separator: str) -> bool:
    """Whether there is nothing in a record but separators, which Excel writes for empty rows."""
    return not text.strip(f"{separator} \t")


def content(field: str) -> str:
    """The text of a field, without its quotation marks and without the spaces around it."""
    found = QUOTED.match(field)
    if found is None:
        return field.strip()
    return found.group(1).replace('""', '"') + field[found.end() :].strip()


def quoted(text: str, separator: str) -> str:
    """A text as a field, in quotation marks if it needs them."""
    if separator in text or '"' in text or "\n" in text or "\r" in text or text != text.strip():
        return '"' + text.replace('"', '""') + '"'
    return text


def requoted(field: str, separator: str) -> str:
    """A field with another separator than it was written with."""
    return field if separator not in field or QUOTED.match(field) else quoted(field, separator)


def find_separator(lines: Sequence[tuple[str, str]]) -> str:
    """The separator of the columns: the first that splits the header and the records after it into as many fields.

    If there is none, the one that splits the header into the most fields.
    """
    widths: dict[str, list[int]] = {}
    for separator in SEPARATORS:
        try:
            texts = split_records(lines, separator, SAMPLE).texts
        except ValueError:  # a quotation mark that is not closed, which is told when all records are split
            texts = [lines[0][0]]
        found = [len(split_fields(text, separator)) for text in texts if not is_blank(text, separator)]
        if len(found) > 1 and found[0] > 1 and all(width == found[0] for width in found):
            return separator
        widths[separator] = found
    # Of separators that split the header into as many fields, the last is the most usual.
    return max(reversed(SEPARATORS), key=lambda separator: max(widths[separator][:1], default=0))
