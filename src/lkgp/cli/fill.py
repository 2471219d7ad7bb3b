"""`lkgp fill`."""

import json
from collections.abc import Sequence
from dataclasses import replace
from functools import reduce
from pathlib import Path
from time import perf_counter
from typing import Annotated

from lkgp.cli.console import print_line, typer
from lkgp.cli.errors import report_errors
from lkgp.cli.fill_paths import FillPaths
from lkgp.cli.filled_variable import FilledVariable, fill_variable
from lkgp.cli.options import (
    AsJson,
    DateFormat,
    FactorChoice,
    Factors,
    MaxMemory,
    NoStd,
    Overwrite,
    Quiet,
    Smoothness,
    Space,
    Station,
    Time,
    Variables,
    read_size,
)
from lkgp.cli.progress import solve_progress
from lkgp.cli.source import Source
from lkgp.errors import InputError
from lkgp.machine import peak_memory
from lkgp.webpage import write_page
from lkgp.xarray.datasets import check, insert_filled

Smooth = Annotated[bool, typer.Option("--smooth", help="Also replace observed values with the noise-free field.")]
NeverObserved = Annotated[
    bool, typer.Option("--never-observed", help="Also fill places at which nothing was ever observed.")
]
Validate = Annotated[bool, typer.Option("--validate", help="Withhold some values, predict them, and print the scores.")]
Calibrate = Annotated[
    bool, typer.Option("--calibrate", help="Rescale the error bars to match the errors on withheld values.")
]


def fill(
    source: Annotated[
        Path,
        typer.Argument(metavar="INPUT", help="A netCDF or Zarr file, or a long or wide table (CSV or Parquet)."),
    ],
    output: Annotated[Path, typer.Argument(metavar="OUTPUT", help="The file to write: a table if the input is one.")],
    variable: Variables = None,
    space: Space = None,
    time: Time = None,
    factor: Factors = None,
    smoothness: Smoothness = None,
    station: Station = None,
    date_format: DateFormat = None,
    smooth: Smooth = False,
    never_observed: NeverObserved = False,
    max_gap: Annotated[str | None, typer.Option(help="Fill only gaps up to this length, for example 6h.")] = None,
    validate: Validate = False,
    calibrate: Calibrate = False,
    no_std: NoStd = False,
    report: Annotated[Path | None, typer.Option(help="Write an HTML report to this file.")] = None,
    model: Annotated[
        Path | None,
        typer.Option(
            help="Save the model for predict, sample and validate; with several variables, one file for each."
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="Random seed.")] = 0,
    max_memory: MaxMemory = None,
    overwrite: Overwrite = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Fill the gaps in a file, with an error bar for every cell.

    The output contains everything in the input and, for each filled variable, NAME_std (the standard error) and
    NAME_filled (1 where a cell was filled).
    """
    verbose = not quiet and not as_json
    with report_errors(quiet=quiet):
        began = perf_counter()
        check_options(no_std, calibrate or report is not None)
        paths = FillPaths(source, output, report, model, overwrite)
        paths.check()
        opened = Source.open(source, variable, time, station, date_format, quiet)
        opened.check_output(output)
        fields = [opened.dataset[name] for name in opened.variables]
        models = paths.model_files(opened.variables)
        choice = FactorChoice.read(space, opened.time, factor, smoothness)
        for field in fields:
            check(field, space=choice.space, time=choice.time, factors=choice.factors, max_gap=max_gap)
        variables = [
            fill_variable(
                field,
                choice,
                seed=seed,
                max_memory=read_size(max_memory),
                smooth=smooth,
                never_observed=never_observed,
                max_gap=max_gap,
                calibrate=calibrate,
                std=not no_std,
                quiet=quiet,
                print_report=verbose,
            )
            for field in fields
        ]
        # The result of the longest computation is written before anything else is done with it.
        opened.write(reduce(insert_filled, (one.filled for one in variables), opened.dataset), output, smooth)
    with report_errors(stopped=f"stopped; {output} was written, but other outputs may be missing.", quiet=quiet):
        for one, path in zip(variables, models, strict=False):
            one.fitted.save(path)
        if validate or report is not None:
            variables = validated(variables, seed, quiet)
        if verbose:
            print_scores(variables)
        if report is not None:
            write_page(report, [(one.fitted, one.filled, one.checked) for one in variables], title=source.name)
        if as_json:
            print_summary(opened, output, models, variables, perf_counter() - began)
        elif verbose:
            print_result(output, models, variables, perf_counter() - began)


def check_options(no_std: bool, shows_errors: bool) -> None:
    """Refuse options that contradict each other.

    shows_errors: whether error bars are needed for anything but the output
    """
    if no_std and shows_errors:
        raise InputError("--no-std leaves out the error bars, which --calibrate and --report need.")


def validated(variables: Sequence[FilledVariable], seed: int, quiet: bool) -> list[FilledVariable]:
    """The variables with their scores on withheld values; those that --calibrate computed are not computed again."""
    with solve_progress(quiet):
        return [replace(one, checked=one.checked or one.fitted.validate(seed=seed)) for one in variables]


def print_scores(variables: Sequence[FilledVariable]) -> None:
    """Print the scores on withheld values, where they were computed."""
    for one in variables:
        if one.checked is not None:
            print_line(str(one.checked))


def print_summary(
    opened: Source, output: Path, models: list[Path], variables: Sequence[FilledVariable], seconds: float
) -> None:
    """Print everything that was done as JSON."""
    summary = {
        "input": {"file": str(opened.path), "read_as": opened.note},
        "output": str(output),
        "models": [str(path) for path in models],
        "variables": [one.summary() for one in variables],
        "seconds": seconds,
        "peak_memory": peak_memory(),
    }
    print_line(json.dumps(summary))


def print_result(output: Path, models: list[Path], variables: Sequence[FilledVariable], seconds: float) -> None:
    """Print what was written, and what that took."""
    for one, path in zip(variables, models, strict=False):
        print_line(f"saved the model of {one.fitted.name} to {path}")
    counts = ", ".join(f"{one.count} cells of {one.fitted.name}" for one in variables)
    memory = peak_memory() / 1e9
    print_line(f"filled {counts} and wrote {output} in {seconds:.0f} s, using at most {memory:.1f} GB of memory")
