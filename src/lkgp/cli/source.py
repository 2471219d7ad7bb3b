"""The file that a command reads, whether it holds gridded fields or a table."""

from dataclasses import dataclass
from pathlib import Path

import xarray as xr
from lkgp.cli.console import print_note
from lkgp.errors import InputError
from lkgp.xarray.datasets import choose_variables
from lkgp.xarray.formats import is_table
from lkgp.xarray.formats.files import read_dataset, read_table, reading_values, write_dataset, write_table
from lkgp.xarray.tables import STATION_NAMES, Table


@dataclass(frozen=True, eq=False)
class Source:
    """The content of a file.

    dataset: all of it, as labelled fields; variables: the ones to process, which are in memory
    time: the time dimension, as far as it is known; table: None for gridded fields
    """

    dataset: xr.Dataset
    variables: list[str]
    time: str | None
    table: Table | None = None

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
        with reading_values(path):
            chosen = choose_variables(dataset, variables)
            for name in chosen:
                dataset[name].load()
        return cls(dataset, chosen, time)

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
        text_columns = (*STATION_NAMES, *([station.lower()] if station is not None else []))
        table = Table.of(read_table(path, text_columns), time, station, variables or (), date_format)
        if table.repeated and not quiet:
            print_note(
                f"{table.repeated} rows repeat a station and time; the model uses their average, "
                "and the table keeps them unchanged."
            )
        dataset = table.to_dataset()
        return cls(dataset, [str(name) for name in dataset.data_vars], table.time, table)

    def write(self, result: xr.Dataset, path: Path, smooth: bool) -> None:
        """Write the filled dataset, as a table if it came from one; smooth: whether to replace observed values."""
        if self.table is None:
            write_dataset(result, path)
        else:
            write_table(self.table.filled(result, smooth), path)
