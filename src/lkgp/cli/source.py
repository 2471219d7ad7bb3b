"""The file that a command reads, whether it holds gridded fields or a table."""

from dataclasses import dataclass
from pathlib import Path

import xarray as xr
from lkgp.cli.console import print_note
from lkgp.errors import InputError
from lkgp.xarray.datasets import choose_variables
from lkgp.xarray.formats import OpenTable, find_format, is_table
from lkgp.xarray.formats.field_edit import FieldEdit
from lkgp.xarray.formats.files import (
    check_conversion,
    group_names,
    open_table,
    read_dataset,
    reading_values,
    write_edited,
    write_filled,
    write_table,
)
from lkgp.xarray.tables import PLACE_NAMES, STATION_NAMES, TIME_NAMES, Table


@dataclass(frozen=True, eq=False)
class Source:
    """The content of a file.

    path: its name; dataset: all of it, as labelled fields; variables: the ones to process, which are in memory
    time: the time dimension, as far as it is known
    table, opened: the table with the roles of its columns, and as it is in the file; None for gridded fields
    """

    path: Path
    dataset: xr.Dataset
    variables: list[str]
    time: str | None
    table: Table | None = None
    opened: OpenTable | None = None

    @classmethod
    def open(
        cls,
        path: Path,
        variables: list[str] | None,
        time: str | None,
        station: str | None,
        date_format: str | None,
        quiet: bool = False,
    ) -> "Source":
        """Read a file; quiet: whether to say nothing about repeated rows."""
        if is_table(path):
            return cls._open_table(path, variables, time, station, date_format, quiet)
        if station is not None:
            raise InputError("--station applies only to tables; in a gridded file, the stations are a dimension.")
        dataset = read_dataset(path)
        if not dataset.data_vars and (groups := group_names(path)):
            raise InputError(
                f"all variables of {path} are in groups ({', '.join(groups)}), and only those outside of groups are "
                "filled; save a group as a file of its own."
            )
        with reading_values(path):
            chosen = choose_variables(dataset, variables)
            for name in chosen:
                dataset[name].load()
        return cls(path, dataset, chosen, time)

    @classmethod
    def _open_table(
        cls,
        path: Path,
        variables: list[str] | None,
        time: str | None,
        station: str | None,
        date_format: str | None,
        quiet: bool,
    ) -> "Source":
        times = {*TIME_NAMES, *([time.lower()] if time is not None else [])}
        places = {name for names in PLACE_NAMES.values() for name in names}
        opened = open_table(
            path,
            # Dates in a given format stay text: 01032019 is not the number 1032019.
            text_columns={*STATION_NAMES, *([station.lower()] if station is not None else [])}
            | (times if date_format is not None else set()),
            number_columns=places | {name.lower() for name in variables or ()} | times,
        )
        if opened.note and not quiet:
            print_note(f"{path.name} has {opened.note}")
        table = Table.of(opened.frame, time, station, variables or (), date_format)
        if not quiet:
            for remark in table.remarks:
                print_note(remark)
        if table.repeated and not quiet:
            print_note(
                f"{table.repeated} rows repeat a station and time; the model uses their average, "
                "and the table keeps them unchanged."
            )
        dataset = table.to_dataset()
        return cls(path, dataset, [str(name) for name in dataset.data_vars], table.time, table, opened)

    @property
    def note(self) -> str:
        """How the file was read, where that had to be found out; else empty."""
        return "" if self.opened is None else self.opened.note

    def check_output(self, path: Path) -> None:
        """Refuse an output whose format cannot hold everything in this file."""
        if self.table is None:
            check_conversion(self.path, path)

    def write(self, result: xr.Dataset, path: Path, smooth: bool) -> None:
        """Write the filled dataset, as a table if it came from one; smooth: whether to replace observed values."""
        if self.table is None or self.opened is None:
            write_filled(self.path, FieldEdit.of(self.dataset, result, self.variables), path)
        elif find_format(path) is self.opened.file_format:
            write_edited(self.opened, self.table.edit(result, smooth), path)
        else:
            write_table(self.table.filled(result, smooth), path)
