"""Files of fields and tables: netCDF, Zarr, CSV and Parquet. They are written whole or not at all."""

import csv
import os
import tempfile
import warnings
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pandas as pd

import xarray as xr
from lkgp.errors import FileError
from lkgp.persistence.atomic import check_not_a_folder, first_line, write_atomically

NETCDF, ZARR, CSV, PARQUET = "netCDF", "Zarr", "CSV", "Parquet"
ENDINGS = {
    ".nc": NETCDF, ".nc4": NETCDF, ".cdf": NETCDF, ".netcdf": NETCDF, ".h5": NETCDF, ".zarr": ZARR,
    ".csv": CSV, ".tsv": CSV, ".txt": CSV, ".parquet": PARQUET, ".pq": PARQUET,
}  # fmt: skip

# Encodings that tell where a variable came from, and those that a kind of file does not know; codecs of Zarr depend on its version.
ORIGIN = ("source", "original_shape", "preferred_chunks", "compressor", "compressors", "filters", "serializer")
UNKNOWN = {
    NETCDF: ("chunks", "shards"),
    ZARR: (
        "chunksizes",
        "contiguous",
        "zlib",
        "complevel",
        "shuffle",
        "fletcher32",
        "szip",
        "zstd",
        "bzip2",
        "blosc",
        "endian",
    ),
}

# What a table writes where it has no value; in a column of names it may be a name.
MISSING = ["", "NA", "N/A", "n/a", "NaN", "nan", "null", "NULL", "None", "<NA>", "#N/A", "-"]


def format_of(path: Path) -> str:
    """By the ending of its name; .csv.gz is a CSV file, too."""
    endings = [suffix.lower() for suffix in path.suffixes if suffix.lower() not in (".gz", ".bz2", ".xz", ".zip")]
    if not endings or endings[-1] not in ENDINGS:
        raise FileError(f"{path}: the ending of its name tells no format; use one of {', '.join(ENDINGS)}.")
    return ENDINGS[endings[-1]]


def is_table(path: Path) -> bool:
    return format_of(path) in (CSV, PARQUET)


def read_dataset(path: Path) -> xr.Dataset:
    """A netCDF or Zarr file, opened but not read."""
    kind = format_of(path)
    if not path.exists():
        raise FileError(f"{path} is not there.")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # a store without consolidated metadata is as good
            return xr.open_dataset(path, engine="zarr" if kind == ZARR else None, decode_timedelta=False)
    except PermissionError:
        raise FileError(f"{path} may not be read; check its permissions.") from None
    except (OSError, ValueError, KeyError, RuntimeError, TypeError) as error:
        # What xarray says where no reader knows the file is advice to programmers.
        why = "" if "did not find a match" in str(error) else f" ({first_line(error)})"
        raise FileError(f"{path} is not a {kind} file that can be read{why}.") from None


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Values of a file that was opened are read; one sentence where they are damaged."""
    try:
        yield
    except (OSError, RuntimeError, zlib.error) as error:
        raise FileError(
            f"{path} holds values that cannot be read ({first_line(error)}); the file may be damaged."
        ) from None


def read_table(path: Path, names: Sequence[str] = ()) -> pd.DataFrame:
    """A CSV or Parquet file; columns of these names, in any case, are text as it stands, so that 00433 and NA stay what they are."""
    if not path.exists():
        raise FileError(f"{path} is not there.")
    try:
        if format_of(path) == PARQUET:
            return pd.read_parquet(path)
        form = {"sep": "\t" if ".tsv" in path.suffixes else None, "engine": "python"}
        columns = pd.read_csv(path, nrows=0, **form).columns
        texts = [column for column in columns if column.lower() in names]
        missing = {column: MISSING for column in columns if column not in texts}
        return pd.read_csv(path, dtype=dict.fromkeys(texts, str), keep_default_na=False, na_values=missing, **form)
    except (OSError, ValueError, RuntimeError, csv.Error, pd.errors.ParserError) as error:
        raise FileError(f"{path} is not a {format_of(path)} file that can be read ({first_line(error)}).") from None


def write_dataset(dataset: xr.Dataset, path: Path) -> None:
    """Write a netCDF or Zarr file."""
    kind = format_of(path)
    known = known_encoding(dataset, kind)
    if kind == ZARR:
        write_atomically(path, lambda temporary: known.to_zarr(temporary, mode="w", consolidated=False))
    else:
        write_atomically(path, known.to_netcdf)


def known_encoding(dataset: xr.Dataset, kind: str) -> xr.Dataset:
    """The dataset without encodings that only tell where it came from, or that this kind of file does not know."""
    result = dataset.copy()
    bounds = {variable.attrs.get("bounds") for variable in dataset.variables.values()}
    for name, variable in result.variables.items():
        encoding = {key: value for key, value in variable.encoding.items() if key not in ORIGIN + UNKNOWN[kind]}
        sizes = encoding.get("chunksizes")
        if sizes is not None and (
            len(sizes) != variable.ndim or any(size > n for size, n in zip(sizes, variable.shape, strict=True))
        ):
            del encoding["chunksizes"]
        if kind == ZARR and variable.dtype.kind not in "fiubMm":
            encoding.pop("dtype", None)  # text is stored in another way
        fill, missing = encoding.get("_FillValue"), encoding.get("missing_value")
        if fill is not None and missing is not None and not xr.DataArray(fill).equals(xr.DataArray(missing)):
            del encoding["missing_value"]  # both were read as missing, but xarray writes only one
        if variable.dtype.kind == "f" and (name in dataset.coords or name in bounds):
            encoding.setdefault("_FillValue", None)  # else xarray gives it one
        variable.encoding = encoding
    return result


def write_table(frame: pd.DataFrame, path: Path) -> None:
    """Write a CSV or Parquet file."""
    if format_of(path) == PARQUET:
        write_atomically(path, lambda temporary: frame.to_parquet(temporary, index=False))
    else:
        separator = "\t" if ".tsv" in path.suffixes else ","
        write_atomically(path, lambda temporary: frame.to_csv(temporary, index=False, sep=separator))


def check_output(path: Path, overwrite: bool) -> None:
    """Refuse, before any work is done, a path that cannot or must not be written."""
    check_not_a_folder(path)
    if path.exists() and not overwrite:
        raise FileError(f"{path} is there already; pass --overwrite to replace it.")
    if not path.parent.is_dir():
        raise FileError(f"the folder {path.parent} is not there; make it first.")
    try:
        os.rmdir(tempfile.mkdtemp(dir=path.parent))
    except OSError as error:
        raise FileError(
            f"the folder {path.parent} cannot be written to ({error.strerror}); choose another one."
        ) from None
