"""netCDF files."""

from pathlib import Path

import xarray as xr
from lkgp.xarray.formats.base import FieldFormat, register
from lkgp.xarray.formats.encoding import EncodingRules, known_encoding

NETCDF = EncodingRules(unknown=("chunks", "shards"), text_dtype=True)


class NetCDF(FieldFormat):
    name = "netCDF"
    endings = (".nc", ".nc4", ".cdf", ".netcdf", ".h5")

    def read(self, path: Path) -> xr.Dataset:
        try:
            return xr.open_dataset(path, decode_timedelta=False)
        except ValueError as error:
            if "did not find a match" not in str(error):
                raise
            # What xarray says if no reader recognises a file is advice for programmers.
            raise ValueError("its content is not netCDF") from None

    def write(self, dataset: xr.Dataset, path: Path) -> None:
        known_encoding(dataset, NETCDF).to_netcdf(path)


register(NetCDF())
