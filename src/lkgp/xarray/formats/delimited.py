"""Delimited text, split into fields of which every character is kept."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

# In the order in which they are tried: those that rarely occur inside a field come first.
SEPARATORS = {"\t": "tabs", ";": "semicolons", "|": "vertical bars", ",": "commas", " ": "spaces"}
# How many records are looked at to find the separator.
SAMPLE = 100
LINE = re.compile(r"([^\r\n]*)(\r\n|\r|\n|\Z)")


@dataclass(frozen=True)
class Record:
    """A line of a table, or several lines if a quoted field contains line ends.

    line: the number of its first line, from 1
    fields: as written, with their quotation marks and spaces
    end: the characters that end it, empty at the end of a file
    """

    line: int
    fields: list[str]
    end: str

    @property
    def is_blank(self) -> bool:
        """Whether there is nothing in it but separators, which Excel writes for empty rows."""
        return not any(field.strip() for field in self.fields)


def split_lines(text: str) -> list[tuple[str, str]]:
    """The lines and the characters that end each of them."""
    lines = LINE.findall(text)
    return lines[:-1] if lines[-1] == ("", "") else lines


def split_records(lines: Sequence[tuple[str, str]], separator: str, most: int | None = None) -> list[Record]:
    """The records in lines of text; most: stop after about this many."""
    mark = re.escape(separator)
    # A quoted field may contain separators, line ends and doubled quotation marks.
    field = re.compile(rf' *"(?:[^"]|"")*+"[^{mark}]*|[^{mark}]*')
    records, number = list[Record](), 0
    while number < len(lines) and (most is None or len(records) < most):
        first, (content, end) = number, lines[number]
        number += 1
        fields = content.split(separator)
        if '"' in content:
            fields = _split_quoted(content, field)
            while _is_open(fields[-1]):
                if number == len(lines):
                    raise ValueError(f"the quotation mark in line {first + 1} is not closed")
                content, end = content + end + lines[number][0], lines[number][1]
                fields = _split_quoted(content, field)
                number += 1
        records.append(Record(first + 1, fields, end))
    return records


def _split_quoted(content: str, field: re.Pattern[str]) -> list[str]:
    fields, position = [], 0
    while position <= len(content):
        found = field.match(content, position)
        assert found is not None  # a field may be empty
        fields.append(found.group())
        if _is_open(found.group()):
            # The rest of the line belongs to this field, separators and all.
            return [*fields[:-1], content[position:]]
        position = found.end() + 1
    return fields


def _is_open(field: str) -> bool:
    """Whether a quoted field goes on in the next line: its quotation marks come in pairs once it is complete."""
    return field.lstrip(" ").startswith('"') and re.fullmatch(r' *"(?:[^"]|"")*+".*', field, re.DOTALL) is None


def content(field: str) -> str:
    """The text of a field, without its quotation marks and without the spaces around it."""
    text = field.strip()
    if '"' not in text or not text.startswith('"'):
        return text
    end = re.match(r'"(?:[^"]|"")*+"', text)
    if end is None:
        return text
    return end.group()[1:-1].replace('""', '"') + text[end.end() :]


def quoted(text: str, separator: str) -> str:
    """A text as a field, in quotation marks if it needs them."""
    if separator in text or '"' in text or "\n" in text or "\r" in text or text != text.strip():
        return '"' + text.replace('"', '""') + '"'
    return text


def requoted(field: str, separator: str) -> str:
    """A field with another separator than it was written with."""
    return field if separator not in field or field.lstrip(" ").startswith('"') else quoted(field, separator)


def find_separator(lines: Sequence[tuple[str, str]]) -> str:
    """The separator of the columns: the first that splits the header and the records after it into as many fields.

    If there is none, the one that splits the header into the most fields.
    """
    widths: dict[str, list[int]] = {}
    for separator in SEPARATORS:
        try:
            records = split_records(lines, separator, SAMPLE)
        except ValueError:  # a quotation mark that is not closed, which is told when all records are split
            records = split_records(lines[:1], separator)
        found = [len(record.fields) for record in records if not record.is_blank]
        if found and found[0] > 1 and len(records) > 1 and all(width == found[0] for width in found):
            return separator
        widths[separator] = found
    return max(widths, key=lambda separator: max(widths[separator][:1], default=0))
