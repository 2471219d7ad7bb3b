"""`lkgp inspect`."""

import json
from pathlib import Path
from typing import Annotated

import lkgp.xarray
from lkgp.cli.console import print_line, typer
from lkgp.cli.errors import report_errors
from lkgp.cli.options import (
    AsJson,
    DateFormat,
    FactorChoice,
    Factors,
    MaxMemory,
    Space,
    Station,
    Time,
    Variables,
    read_size,
)
from lkgp.cli.source import Source


def inspect(
    source: Annotated[Path, typer.Argument(metavar="FILE", help="A netCDF, Zarr, CSV or Parquet file.")],
    variable: Variables = None,
    space: Space = None,
    time: Time = None,
    factor: Factors = None,
    station: Station = None,
    date_format: DateFormat = None,
    max_memory: MaxMemory = None,
    as_json: AsJson = False,
) -> None:
    """Show what is missing and how it would be filled, without fitting a model.

    The summary gives the gaps and where they are, the factors and the method that would be used, and the time and
    memory that filling would take.
    """
    with report_errors():
        opened = Source.open(source, variable, time, station, date_format)
        choice = FactorChoice.read(space, opened.time, factor)
        limit = read_size(max_memory)
        previews = [
            lkgp.xarray.inspect(
                opened.dataset[name], space=choice.space, time=choice.time, factors=choice.factors, max_memory=limit
            )
            for name in opened.variables
        ]
        if as_json:
            print_line(json.dumps([preview.to_dict() for preview in previews]))
        else:
            print_line("\n\n".join(str(preview) for preview in previews))
