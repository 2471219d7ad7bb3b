"""Tables filled with made-up numbers, so that files can be compared without a fit."""

import numpy as np

import xarray as xr
from lkgp.xarray.formats.files import open_table, write_edited
from lkgp.xarray.tables import PLACE_NAMES, STATION_NAMES, Table

PLACES = {name for names in PLACE_NAMES.values() for name in names}


def fill_with(path, out, value=0.5, values=(), smooth=False):
    """Fill the gaps of a table with a number, with the standard error 0.25, and write it in the same format."""
    opened = open_table(path, STATION_NAMES, PLACES | set(values))
    table = Table.of(opened.frame, values=values)
    dataset = table.to_dataset()
    parts = {}
    for name, field in dataset.data_vars.items():
        parts[name] = xr.full_like(field, value) if smooth else field.fillna(value)
        parts[f"{name}_std"] = xr.full_like(field, 0.25)
        parts[f"{name}_filled"] = field.isnull().astype(np.int8)
    write_edited(opened, table.edit(xr.Dataset(parts), smooth), out)
    return opened
