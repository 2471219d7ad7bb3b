"""Files of fields and tables: netCDF, Zarr, CSV and Parquet. They are written whole or not at all."""

import csv
import os
import tempfile
import warnings
from collections.abc import Sequence
from pathlib import Path

import pandas as pd
import xarray as xr

from lkgp.errors import FileError
from lkgp.whole import first_line, write_whole

NETCDF, ZARR, CSV, PARQUET = "netCDF", "Zarr", "CSV", "Parquet"
ENDINGS = {
    ".nc": NETCDF, ".nc4": NETCDF, ".cdf": NETCDF, ".netcdf": NETCDF, ".h5": NETCDF, ".zarr": ZARR,
    ".csv": CSV, ".tsv": CSV, ".txt": CSV, ".parquet": PARQUET, ".pq": PARQUET,
}  # fmt: skip

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
        raise FileError(f"{path} is not a {kind} file that can be read ({first_line(error)}).") from None


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
    if format_of(path) == ZARR:
        # Encodings of netCDF mean nothing to Zarr.
        write_whole(path, lambda temporary: dataset.drop_encoding().to_zarr(temporary, mode="w", consolidated=False))
    else:
        write_whole(path, lambda temporary: known_encoding(dataset).to_netcdf(temporary))


def known_encoding(dataset: xr.Dataset) -> xr.Dataset:
    """The dataset without encodings that only tell where it came from."""
    result = dataset.copy()
    for variable in result.variables.values():
        for key in ("source", "original_shape", "preferred_chunks", "chunks", "compressors", "filters", "shards", "serializer"):
            variable.encoding.pop(key, None)
        sizes = variable.encoding.get("chunksizes")
        if sizes is not None and (len(sizes) != variable.ndim or any(size > n for size, n in zip(sizes, variable.shape, strict=True))):
            variable.encoding.pop("chunksizes")
    return result


def write_table(frame: pd.DataFrame, path: Path) -> None:
    """Write a CSV or Parquet file."""
    if format_of(path) == PARQUET:
        write_whole(path, lambda temporary: frame.to_parquet(temporary, index=False))
    else:
        separator = "\t" if ".tsv" in path.suffixes else ","
        write_whole(path, lambda temporary: frame.to_csv(temporary, index=False, sep=separator))


def check_output(path: Path, overwrite: bool) -> None:
    """Refuse, before any work is done, a path that cannot or must not be written."""
    if path.exists() and not overwrite:
        raise FileError(f"{path} is there already; pass --overwrite to replace it.")
    if not path.parent.is_dir():
        raise FileError(f"the folder {path.parent} is not there; make it first.")
    try:
        os.rmdir(tempfile.mkdtemp(dir=path.parent))
    except OSError as error:
        raise FileError(f"the folder {path.parent} cannot be written to ({error.strerror}); choose another one.") from None
