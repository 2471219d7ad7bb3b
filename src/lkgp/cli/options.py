"""Options that several commands share, and how their text is read."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from lkgp.cli.console import typer
from lkgp.errors import InputError

Variables = Annotated[
    list[str] | None, typer.Option("--variable", "-v", help="Process only this variable; may be repeated.")
]
Space = Annotated[
    str | None, typer.Option(help="The spatial dimensions, which form one factor, for example latitude,longitude.")
]
Time = Annotated[str | None, typer.Option("--time", help="The time dimension, or the time column of a table.")]
Factors = Annotated[
    list[str] | None,
    typer.Option(
        "--factor", help="Instead of --space and --time: the dimensions of one factor; repeat for each factor."
    ),
]
Smoothness = Annotated[
    float | None,
    typer.Option(help="Use Matern kernels of this smoothness (0.5, 1.5 or 2.5) instead of choosing by likelihood."),
]
Station = Annotated[str | None, typer.Option(help="For tables: the column that identifies the station.")]
DateFormat = Annotated[
    str | None, typer.Option(help="For tables: the date format if it is not ISO 8601, for example %d.%m.%Y.")
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print only errors.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print the results as JSON.")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Overwrite existing files.")]
NoStd = Annotated[
    bool, typer.Option("--no-std", help="Leave out the error bars, which take most of the time if data are large.")
]
MaxMemory = Annotated[str | None, typer.Option(help="Limit the memory for large arrays, for example to 4GB.")]
SavedModel = Annotated[Path, typer.Argument(metavar="MODEL", help="A model saved by `lkgp fill --model`.")]
PredictionOutput = Annotated[
    Path,
    typer.Argument(
        metavar="OUTPUT", help="The file to write: netCDF or Zarr, or a table (CSV or Parquet) with one row per cell."
    ),
]
At = Annotated[
    list[str] | None,
    typer.Option(help="Evaluate at these values of a coordinate: NAME=VALUE,VALUE,...; may be repeated."),
]
Like = Annotated[Path | None, typer.Option(help="Evaluate at the coordinates of this file.")]

UNITS = {
    "": 1.0, "B": 1.0, "KB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12, "KIB": 2.0**10, "MIB": 2.0**20, "GIB": 2.0**30,
}  # fmt: skip


@dataclass(frozen=True)
class FactorChoice:
    """Which dimensions form the factors, and how smooth the field is along them, as `lkgp.xarray.fit` takes them.

    What is None is found from the file.
    """

    space: tuple[str, ...] | None
    time: str | None
    factors: list[tuple[str, ...]] | None
    smoothness: float | None = None

    @classmethod
    def read(
        cls, space: str | None, time: str | None, factors: list[str] | None, smoothness: float | None = None
    ) -> "FactorChoice":
        """From the text of --space, --time and --factor, of which the last takes the place of the others."""
        if factors:
            return cls(None, None, [split_names(text) for text in factors], smoothness)
        return cls(split_names(space) if space is not None else None, time, None, smoothness)


def split_names(text: str) -> tuple[str, ...]:
    """Names, or values, that are separated by commas."""
    return tuple(part.strip() for part in text.split(","))


def read_size(text: str | None) -> float | None:
    """The number of bytes of a size such as 4GB."""
    if text is None:
        return None
    number = text.strip().upper().rstrip("BIKMGT")
    unit = text.strip().upper()[len(number) :].strip()
    try:
        return float(number) * UNITS[unit]
    except (ValueError, KeyError):
        raise InputError(f"--max-memory must be a size such as 4GB, not {text!r}.") from None
