"""Zarr stores, which are folders."""

import warnings
from pathlib import Path

import xarray as xr
from lkgp.xarray.formats.base import FieldFormat, register
from lkgp.xarray.formats.encoding import EncodingRules, known_encoding

NETCDF_STORAGE = ("chunksizes", "contiguous", "shuffle", "fletcher32", "endian")
NETCDF_COMPRESSION = ("zlib", "complevel", "szip", "zstd", "bzip2", "blosc")
ZARR = EncodingRules(unknown=NETCDF_STORAGE + NETCDF_COMPRESSION, text_dtype=False)


class Zarr(FieldFormat):
    name = "Zarr"
    endings = (".zarr",)
    package = "zarr"
    is_folder = True

    def read(self, path: Path) -> xr.Dataset:
        with warnings.catch_warnings():
            # A store without consolidated metadata takes longer to open, but is complete.
            warnings.simplefilter("ignore", RuntimeWarning)
            return xr.open_dataset(path, engine="zarr", decode_timedelta=False)

    def write(self, dataset: xr.Dataset, path: Path) -> None:
        known_encoding(dataset, ZARR).to_zarr(path, mode="w", consolidated=False)


register(Zarr())
