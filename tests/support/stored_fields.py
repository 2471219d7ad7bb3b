"""Files of fields with everything that their format can hold, filled with a made-up number, and all that is stored."""

import netCDF4
import numpy as np

from lkgp.xarray.datasets import insert_filled
from lkgp.xarray.filling import filled_dataset
from lkgp.xarray.formats.field_edit import FieldEdit
from lkgp.xarray.formats.files import read_dataset, write_filled

GAPS = np.array([[False, True, False, False], [False, False, False, True], [True, False, False, False]] * 2)


def netcdf_with_everything(path, own_types=True):
    """Groups, every kind of data type, an unlimited dimension, and many ways of storage; `v` is packed and has gaps.

    own_types: whether there are variables of types that only netCDF has
    """
    with netCDF4.Dataset(path, "w") as file:
        file.setncatts({"title": "all", "number": np.int16(3), "list": np.arange(3.0), "history": "made by hand"})
        file.createDimension("time", None)
        file.createDimension("x", 4)
        file.createDimension("letters", 3)
        time = file.createVariable("time", "i4", ("time",))
        time.setncatts({"units": "hours since 2000-01-01", "calendar": "noleap"})
        time[:] = 6 * np.arange(len(GAPS))
        file.createVariable("x", ">f4", ("x",), endian="big")[:] = np.arange(4) / 3
        packing = {"scale_factor": np.float32(0.1), "add_offset": 1.0, "units": "K", "coordinates": "height name"}
        v = file.createVariable(
            "v", "i2", ("time", "x"), fill_value=-999, zlib=True, complevel=7, shuffle=False, chunksizes=(2, 3)
        )
        v.setncatts({**packing, "missing_value": np.int16(-998)})
        v.set_auto_maskandscale(False)
        v[:] = np.where(GAPS, [-999, -998, -999, -998], 10 + np.arange(GAPS.size).reshape(GAPS.shape))
        file.createVariable("height", "f8", ())[...] = 2.0
        large = file.createVariable("large", "i8", ("x",), fill_value=np.iinfo("i8").max)
        large[:] = np.ma.masked_array(2**62 + np.arange(4), mask=[0, 0, 1, 0])
        file.createVariable("plain", "f4", ("x",), fletcher32=True, fill_value=np.float32(1e20))[:] = np.arange(4)
        file.createVariable("no_fill", "f8", ("x",), fill_value=False)[:] = [1.0, np.nan, 2.0, np.inf]
        file.createVariable("unsigned", "u8", ("x",))[:] = np.uint64(2**64 - 5) + np.arange(4, dtype="u8")
        letters = np.array([[*"abc"], [*"def"], [*"g  "], [*"   "]], "S1")
        file.createVariable("name", "S1", ("x", "letters"))[:] = letters
        file.createVariable("text", str, ("x",))[:] = np.array(["a", "", "ccc", "é"], dtype=object)
        clouds = file.createEnumType(np.uint8, "clouds", {"clear": 0, "overcast": 1})
        file.createVariable("sky", clouds, ("x",))[:] = [0, 1, 1, 0]
        if own_types:
            ragged = file.createVariable("ragged", file.createVLType(np.int32, "list_of_int"), ("x",))
            for i in range(4):
                ragged[i] = np.arange(i + 1, dtype="i4")
            pair = np.dtype([("a", "f8"), ("b", "i4")])
            file.createVariable("pair", file.createCompoundType(pair, "pair_type"), ("x",))[:] = np.ones(4, pair)
        file.createVariable("days", "f8", ("x",)).units = "days"
        group = file.createGroup("sensors")
        group.createDimension("y", 2)
        group.createVariable("gain", "f4", ("y", "x"), zlib=True)[:] = 1.5
        group.createGroup("inner").title = "deep"


def stored_content(path):
    """Everything in a netCDF file by name: dimensions, types, attributes, and variables with their stored numbers."""
    found = {}

    def look(group, where):
        found[where, "attrs"] = [(key, repr(group.getncattr(key))) for key in group.ncattrs()]
        found[where, "types"] = [sorted(kinds) for kinds in (group.enumtypes, group.vltypes, group.cmptypes)]
        for name, dim in group.dimensions.items():
            found[where, "dimension", name] = (len(dim), dim.isunlimited())
        for name, variable in group.variables.items():
            variable.set_auto_maskandscale(False)
            variable.set_auto_chartostring(False)
            values = np.asarray(variable[...])
            native = values.astype(values.dtype.newbyteorder("="))
            found[where, name] = {
                "dims": variable.dimensions,
                "type": repr(variable.datatype),
                "endian": variable.endian(),
                "filters": variable.filters(),
                "chunks": variable.chunking(),
                "attrs": {key: repr(variable.getncattr(key)) for key in variable.ncattrs()},
                "values": str(values) if values.dtype == object else native.tobytes(),
            }
        for name, inner in group.groups.items():
            look(inner, f"{where}{name}/")

    with netCDF4.Dataset(path) as file:
        look(file, "/")
    return found


def fill_fields_with(source, path, value, names=("v",)):
    """Fill the gaps of variables of a file with a number, with the standard error 0.5, and write it to `path`."""
    before = after = read_dataset(source).load()
    for name in names:
        field = before[name]
        gaps = field.isnull().values
        filled = filled_dataset(
            field, name, np.where(gaps, value, field), np.full(field.shape, 0.5), gaps.astype(np.int8), 1.0, None
        )
        after = insert_filled(after, filled.assign_attrs(history="filled"))
    before.close()
    write_filled(source, FieldEdit.of(before, after, names), path)
