"""netCDF files."""

import shutil
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import netCDF4

import xarray as xr
from lkgp.xarray.formats.base import COMPRESSION, FieldFormat, register
from lkgp.xarray.formats.encoding import EncodingRules, known_encoding, without_default_fill_values
from lkgp.xarray.formats.field_edit import FieldEdit

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

    def read_stored(self, path: Path) -> dict[str, xr.Dataset]:
        if path.suffix.lower() in COMPRESSION:  # what xarray decompresses has no groups
            return without_default_fill_values({"/": xr.open_dataset(path, mask_and_scale=False, decode_times=False)})
        # A copy, because netCDF crashes if a file with texts is opened again while it is open.
        with tempfile.TemporaryDirectory() as folder:
            copy = shutil.copyfile(path, Path(folder) / path.name)
            with netCDF4.Dataset(copy) as file:
                for variable in variables_of(file):
                    if isinstance(variable.datatype, netCDF4.CompoundType) or (
                        isinstance(variable.datatype, netCDF4.VLType) and variable.dtype is not str
                    ):
                        raise ValueError(f"the variable {variable.name} has a data type that cannot be copied")
            options = {"mask_and_scale": False, "decode_times": False, "decode_coords": False}
            groups = xr.open_groups(copy, engine="netcdf4", **options)
            loaded = {name: group.load() for name, group in groups.items()}
            for group in groups.values():
                group.close()
        return without_default_fill_values(loaded)

    def write_stored(self, groups: Mapping[str, xr.Dataset], path: Path) -> None:
        for i, (group, dataset) in enumerate(groups.items()):
            known_encoding(dataset, NETCDF).to_netcdf(path, mode="a" if i else "w", group=group, engine="netcdf4")

    def write_edited(self, source: Path, edit: FieldEdit, path: Path) -> None:
        """Change a copy of the file, in which all groups, data types and settings of storage are what they were."""
        if source.suffix.lower() in COMPRESSION or not self.change_copy(source, edit, path):
            path.unlink(missing_ok=True)
            super().write_edited(source, edit, path)

    def change_copy(self, source: Path, edit: FieldEdit, path: Path) -> bool:
        """Copy a file and change it; returns False if it cannot be changed, or cannot hold the new values."""
        shutil.copyfile(source, path)
        try:
            file = netCDF4.Dataset(path, "a")
        except OSError:  # an HDF5 file that netCDF can read, but not change
            return False
        with file:
            for name, change in edit.changed.items():
                variable = file[name]
                variable.set_auto_maskandscale(False)
                stored = change.stored(variable[...])
                if stored is None:
                    return False
                variable[...] = stored
                variable.setncatts(change.new_attrs)
            file.setncattr("history", edit.history)
        known_encoding(edit.added, NETCDF).to_netcdf(path, mode="a", engine="netcdf4")
        return True


def variables_of(group: netCDF4.Dataset) -> Iterator[netCDF4.Variable]:
    """All variables of a group and of the groups in it."""
    yield from group.variables.values()
    for inner in group.groups.values():
        yield from variables_of(inner)


register(NetCDF())
