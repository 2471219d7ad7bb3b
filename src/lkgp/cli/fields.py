"""Commands for people with gridded data: files in, files out."""

import json
import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import reduce
from pathlib import Path
from typing import Annotated, Any

from lkgp.cli.common import bytes_of, err, errors_for_people, remark, tell, typer
from lkgp.errors import InputError
from lkgp.machine import peak_memory
from lkgp.report import progress_words

Variables = Annotated[list[str] | None, typer.Option("--variable", "-v", help="Only this variable; may be repeated.")]
Space = Annotated[
    str | None, typer.Option(help="The dimensions of one factor over places, such as latitude,longitude.")
]
Time = Annotated[str | None, typer.Option("--time", help="The dimension, or the column, of time.")]
Factors = Annotated[
    list[str] | None, typer.Option("--factor", help="Instead of both: the dimensions of one factor; repeat for each.")
]
Station = Annotated[str | None, typer.Option(help="For a table: the column that names the station.")]
DateFormat = Annotated[
    str | None, typer.Option(help="For a table: the form of its dates, such as %d.%m.%Y, if that is not ISO 8601.")
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Nothing on standard error but errors.")]
AsJson = Annotated[bool, typer.Option("--json", help="What was found as JSON on standard output.")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace a file that is there.")]
At = Annotated[list[str] | None, typer.Option(help="Where: NAME=VALUE,VALUE,... for a coordinate; may be repeated.")]
Like = Annotated[Path | None, typer.Option(help="Where: at the coordinates of this file.")]
MaxMemory = Annotated[str | None, typer.Option(help="Memory for large arrays, such as 4GB.")]


def fill_gaps(
    source: Annotated[
        Path, typer.Argument(metavar="INPUT", help="netCDF or Zarr; or a table, CSV or Parquet, long or wide.")
    ],
    output: Annotated[Path, typer.Argument(help="Where to write the filled data.")],
    variable: Variables = None,
    space: Space = None,
    time_: Time = None,
    factor: Factors = None,
    station: Station = None,
    date_format: DateFormat = None,
    smooth: Annotated[
        bool, typer.Option("--smooth", help="Replace observed values, too, by the field behind them.")
    ] = False,
    never_observed: Annotated[
        bool, typer.Option("--never-observed", help="Fill places without any value, too.")
    ] = False,
    max_gap: Annotated[str | None, typer.Option(help="Fill only gaps no longer than this, such as 6h.")] = None,
    validate: Annotated[
        bool, typer.Option("--validate", help="Withhold some values, predict them, and tell how well.")
    ] = False,
    calibrate: Annotated[
        bool, typer.Option("--calibrate", help="Make the error bars as wide as withheld values ask for.")
    ] = False,
    report: Annotated[Path | None, typer.Option(help="Where to write a page to look at.")] = None,
    model: Annotated[
        Path | None,
        typer.Option(
            help="Where to keep the model, for predict, sample and validate; of several, one file a variable."
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="Of everything random.")] = 0,
    max_memory: MaxMemory = None,
    overwrite: Overwrite = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Fill the gaps of a file, with an error bar for every cell."""
    with errors_for_people(quiet=quiet):
        from lkgp.xarray import storage  # noqa: PLC0415  (needs packages of its own)
        from lkgp.xarray.datasets import check, insert_filled  # noqa: PLC0415

        began = time.perf_counter()
        if storage.is_table(source) != storage.is_table(output):
            raise InputError(f"{source.name} and {output.name} must both be tables, or neither.")
        for path in (output, report):
            if path is not None:
                storage.check_output(path, overwrite)
        opened = Source.open(source, variable, time_, station, date_format, quiet)
        models = model_paths(model, opened.variables)
        for path in models:
            storage.check_output(path, overwrite)
        about_factors = factor_words(space, opened.time, factor)
        for name in opened.variables:
            check(opened.dataset[name], **about_factors, max_gap=max_gap)
        words = {**about_factors, "seed": seed, "max_memory": bytes_of(max_memory)}
        how = {"smooth": smooth, "never_observed": never_observed, "max_gap": max_gap}
        reports = not quiet and not as_json
        variables = [
            fill_variable(opened.dataset[name], words, how, calibrate, quiet, reports) for name in opened.variables
        ]
        # What took the longest is written before anything else is done with it.
        opened.write(reduce(insert_filled, (one.filled for one in variables), opened.dataset), output, smooth)
    with errors_for_people(stopped=f"stopped; {output} is written, but not all that was asked beside it.", quiet=quiet):
        for one, path in zip(variables, models, strict=False):
            one.fitted.save(path)
        if validate or report is not None:
            with remarks_of_the_engine(quiet):
                variables = [replace(one, checked=one.checked or one.fitted.validate(seed=seed)) for one in variables]
        for checked in filter(None, (one.checked for one in variables)):
            if reports:
                tell(str(checked))
        if report is not None:
            from lkgp.webpage import write_page  # noqa: PLC0415

            write_page(report, [(one.fitted, one.filled, one.checked) for one in variables], title=source.name)
        took = {"seconds": time.perf_counter() - began, "peak_memory": peak_memory()}
        if as_json:
            found = [one.summary() for one in variables]
            tell(
                json.dumps(
                    {"output": str(output), "models": [str(path) for path in models], "variables": found, **took}
                )
            )
        elif not quiet:
            for name, path in zip(opened.variables, models, strict=False):
                tell(f"kept the model of {name} in {path}")
            counts = ", ".join(f"{one.count} cells of {one.fitted.name}" for one in variables)
            tell(
                f"filled {counts}; wrote {output} after {took['seconds']:.0f} s with at most {took['peak_memory'] / 1e9:.1f} GB of memory"
            )


@dataclass(frozen=True)
class FilledVariable:
    """What was done to a variable: its model, the dataset of its filled values, and how withheld ones were predicted, if that is known."""

    fitted: Any
    filled: Any
    checked: Any = None

    @property
    def count(self) -> int:
        return int(self.filled[f"{self.fitted.name}_filled"].sum())

    def summary(self) -> dict[str, Any]:
        """What there is to say, as plain data."""
        report = self.fitted.gp.report_.to_dict()
        del report["history"], report["residuals"], report["sample_residuals"]
        checked = None if self.checked is None else self.checked.to_dict()
        return {"name": self.fitted.name, "filled": self.count, "report": report, "validation": checked}


def fill_variable(
    field: Any, words: dict[str, Any], how: dict[str, Any], calibrate: bool, quiet: bool, report: bool
) -> FilledVariable:
    """Fit and fill.

    words: for `lkgp.xarray.fit`; how: for its `fill`; report: whether to tell of the fit on standard output
    """
    from lkgp.xarray import fit  # noqa: PLC0415  (needs packages of its own)

    with progress(f"fitting {field.name}", quiet) as step:
        fitted = fit(field, **words, progress=step, on_preview=None if quiet else lambda preview: remark(str(preview)))
    with remarks_of_the_engine(quiet):
        checked = fitted.validate(seed=words["seed"]) if calibrate else None
        filled = fitted.fill(field, **how, calibrate=checked or False)
    if report:
        tell(str(fitted.gp.report_))
    return FilledVariable(fitted, filled, checked)


def inspect_file(
    source: Annotated[Path, typer.Argument(metavar="FILE", help="netCDF, Zarr, CSV or Parquet.")],
    variable: Variables = None,
    space: Space = None,
    time_: Time = None,
    factor: Factors = None,
    station: Station = None,
    date_format: DateFormat = None,
    max_memory: MaxMemory = None,
    as_json: AsJson = False,
) -> None:
    """Tell what is missing and where, which factors would be used, and what filling would take; nothing is fitted."""
    with errors_for_people():
        from lkgp.xarray import inspect  # noqa: PLC0415  (needs packages of its own)

        opened = Source.open(source, variable, time_, station, date_format)
        words = {**factor_words(space, opened.time, factor), "max_memory": bytes_of(max_memory)}
        outlooks = [inspect(opened.dataset[name], **words) for name in opened.variables]
        if as_json:
            tell(json.dumps([outlook.to_dict() for outlook in outlooks]))
        else:
            tell("\n\n".join(str(outlook) for outlook in outlooks))


def predict_field(
    model: Annotated[Path, typer.Argument(help="A model that `lkgp fill --model` kept.")],
    output: Annotated[Path, typer.Argument(help="netCDF or Zarr; CSV or Parquet for a row a cell.")],
    at: At = None,
    like: Like = None,
    field_only: Annotated[
        bool, typer.Option("--field-only", help="Error bars of the field, without those of a measurement.")
    ] = False,
    overwrite: Overwrite = False,
) -> None:
    """Predict at other places and times with a model that was kept."""
    answer(
        model,
        output,
        overwrite,
        lambda fitted: fitted.predict(places(fitted, at, like), observation_noise=not field_only),
    )


def sample_field(
    model: Annotated[Path, typer.Argument(help="A model that `lkgp fill --model` kept.")],
    output: Annotated[Path, typer.Argument(help="netCDF or Zarr; CSV or Parquet for a row a cell.")],
    samples: Annotated[int, typer.Option(help="How many.")] = 16,
    at: At = None,
    like: Like = None,
    seed: Annotated[int | None, typer.Option(help="Of the draws; the model's own by default.")] = None,
    overwrite: Overwrite = False,
) -> None:
    """Draw whole fields that agree with the data, at the model's own grid or elsewhere."""
    answer(
        model,
        output,
        overwrite,
        lambda fitted: fitted.sample(samples, places(fitted, at, like), seed=seed).to_dataset(),
    )


def answer(model: Path, output: Path, overwrite: bool, ask: Callable[[Any], Any]) -> None:
    """Write the dataset that `ask` makes of a model that was kept."""
    with errors_for_people():
        from lkgp.xarray import FieldModel, storage  # noqa: PLC0415  (needs packages of its own)

        storage.check_output(output, overwrite)
        found = ask(FieldModel.load(model))
        if storage.is_table(output):
            storage.write_table(found.to_dataframe().reset_index(), output)
        else:
            storage.write_dataset(found, output)
        tell(f"wrote {output}")


def validate_field(
    model: Annotated[Path, typer.Argument(help="A model that `lkgp fill --model` kept.")],
    share: Annotated[float, typer.Option(help="Of the observed cells, to withhold.")] = 0.1,
    seed: Annotated[int, typer.Option(help="Of the choice of cells.")] = 0,
    as_json: AsJson = False,
) -> None:
    """Can the error bars be trusted? Withhold values the way the gaps look, predict them, and tell how well."""
    with errors_for_people():
        from lkgp.xarray import FieldModel  # noqa: PLC0415  (needs packages of its own)

        found = FieldModel.load(model).validate(share=share, seed=seed)
        tell(json.dumps(found.to_dict()) if as_json else str(found))


class Source:
    """A file to be filled: a dataset, the variables in question, and how to write it back."""

    def __init__(self, dataset: Any, variables: list[str], time: str | None, table: Any = None) -> None:
        self.dataset, self.variables, self.time, self.table = dataset, variables, time, table

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
        from lkgp.xarray import storage  # noqa: PLC0415  (needs packages of its own)
        from lkgp.xarray.datasets import choose_variables  # noqa: PLC0415
        from lkgp.xarray.tables import STATION_NAMES, Table  # noqa: PLC0415

        if storage.is_table(path):
            names = (*STATION_NAMES, *([station.lower()] if station is not None else []))
            table = Table.of(storage.read_table(path, names), time, station, variables or (), date_format)
            if table.repeated and not quiet:
                remark(
                    f"{table.repeated} rows repeat a station and time; they are averaged for the model, and kept as they are in the table."
                )
            dataset = table.to_dataset()
            return cls(dataset, [str(name) for name in dataset.data_vars], table.time, table)
        if station is not None:
            raise InputError("--station is for tables; a netCDF file has a dimension for its stations.")
        dataset = storage.read_dataset(path)
        with storage.reading(path):
            chosen = choose_variables(dataset, variables)
            for name in chosen:
                dataset[name].load()
        return cls(dataset, chosen, time)

    def write(self, result: Any, path: Path, smooth: bool) -> None:
        from lkgp.xarray import storage  # noqa: PLC0415  (needs packages of its own)

        if self.table is None:
            storage.write_dataset(result, path)
        else:
            storage.write_table(self.table.filled(result, smooth), path)


def model_paths(path: Path | None, variables: list[str]) -> list[Path]:
    """Where the model of each variable is kept; none where no path was given."""
    if path is None:
        return []
    return [path] if len(variables) == 1 else [path.with_stem(f"{path.stem}-{name}") for name in variables]


def factor_words(space: str | None, time: str | None, factors: list[str] | None) -> dict[str, Any]:
    """The words of `lkgp.xarray.fit` about factors."""
    if factors:
        return {"factors": [names(text) for text in factors]}
    return {"space": names(space) if space is not None else None, "time": time}


def names(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(","))


def places(fitted: Any, at: list[str] | None, like: Path | None) -> Any:
    """The coordinates that a model is asked for: a dictionary, a dataset, or None for its own."""
    if like is not None:
        if at:
            raise InputError("give either --at or --like, not both.")
        from lkgp.xarray import storage  # noqa: PLC0415  (needs packages of its own)

        with storage.reading(like):
            return storage.read_dataset(like).coords.to_dataset().load()
    found: dict[str, Any] = {}
    for text in at or ():
        name, equals, values = text.partition("=")
        if not equals:
            raise InputError(f"--at {text!r} must be NAME=VALUE,VALUE,...")
        coord = fitted.layout.field.coords.get(name.strip())
        # Names and dates stay text: the station 00433 is not the number 433.
        as_number = coord is not None and coord.dtype.kind in "fium"
        found[name.strip()] = [number(part) if as_number else part for part in names(values)]
    return found or None


def number(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text


@contextmanager
def progress(what: str, quiet: bool) -> Iterator[Callable[[int, float], None] | bool]:
    """A line on standard error that tells how a fit goes on."""
    if quiet:
        yield False
        return
    with err.status(f"{what} ...") as status:
        if not err.is_terminal:
            remark(f"{what} ...")

        def step(count: int, value: float) -> None:
            line = f"{what}: {progress_words(count, value)}"
            status.update(line)
            if not err.is_terminal:
                remark(line)

        yield step


@contextmanager
def remarks_of_the_engine(quiet: bool) -> Iterator[None]:
    """Write what the engine logs of long solves to standard error."""
    if quiet:
        yield
        return

    class Remarks(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            remark(record.getMessage())

    logger, handler = logging.getLogger("lkgp.posterior"), Remarks(logging.INFO)
    before = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before)
