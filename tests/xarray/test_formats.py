"""File formats: how they are found, and what is written."""

import json
import sys
from pathlib import Path

import netCDF4
import numpy as np
import pandas as pd
import pytest
from command_line import run
from fields import small_field
from station_data import station_table

from lkgp.errors import FileError
from lkgp.xarray import formats
from lkgp.xarray.formats import base
from lkgp.xarray.formats.files import read_dataset, read_table, write_dataset, write_table

TOY = """
import json

import pandas as pd

from lkgp.xarray.formats import TableFormat, register


class Toy(TableFormat):
    name = "Toy"
    endings = (".toy",)

    def read(self, path, text_columns):
        return pd.DataFrame(json.loads(path.read_text()))

    def write(self, frame, path):
        path.write_text(json.dumps(frame.to_dict(orient="list"), default=str))


register(Toy())
"""


def test_a_new_format_is_one_new_file(tmp_path, monkeypatch):
    """A module in the package is enough for `lkgp fill`; nothing else knows of it."""
    package, data = tmp_path / "package", tmp_path / "data"
    package.mkdir()
    data.mkdir()
    (package / "toy_format.py").write_text(TOY)
    given = station_table().drop_duplicates(["station", "date"]).dropna(subset="temp")
    (data / "in.toy").write_text(json.dumps(given.to_dict(orient="list")))
    with pytest.raises(FileError, match="unknown file format"):
        formats.find_format(data / "in.toy")
    monkeypatch.setattr(base, "FORMATS", dict(base.FORMATS))
    monkeypatch.setattr(formats, "__path__", [*formats.__path__, str(package)])
    formats.discover()
    del sys.modules["lkgp.xarray.formats.toy_format"]
    assert formats.is_table(data / "in.toy")
    run("fill", data / "in.toy", data / "out.toy", "--quiet")
    filled = pd.DataFrame(json.loads((data / "out.toy").read_text()))
    assert len(filled) == 6 * 30
    assert filled["temp"].notna().all()
    assert set(given["temp"]) <= set(filled["temp"])


def test_a_format_is_of_fields_or_of_tables(tmp_path):
    with pytest.raises(TypeError, match="derived from FieldFormat or TableFormat"):
        formats.register(object())
    with pytest.raises(FileError, match="is a table, but a file of gridded fields is needed"):
        read_dataset(tmp_path / "in.csv")
    with pytest.raises(FileError, match="holds gridded fields, but a table is needed"):
        read_table(tmp_path / "in.nc")
    with pytest.raises(FileError, match="choose a format for tables"):
        write_table(pd.DataFrame({"a": [1]}), tmp_path / "out.nc")


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("a.nc", "netCDF"),
        ("a.NC4", "netCDF"),
        ("a.zarr", "Zarr"),
        ("a.csv.gz", "CSV"),
        ("a.b.tsv", "CSV"),
        ("a.pq", "Parquet"),
    ],
)
def test_the_ending_of_a_name_gives_the_format(name, expected):
    assert formats.find_format(Path(name)).name == expected


def test_a_missing_package_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    (tmp_path / "in.parquet").write_bytes(b"")
    with pytest.raises(FileError, match="needs the package pyarrow; install it with"):
        read_table(tmp_path / "in.parquet")


def test_a_file_with_two_fill_values_is_written(tmp_path):
    dataset = small_field(places=(2, 3), times=16).to_dataset()
    dataset["t2m"].encoding = {"_FillValue": np.float32(1e20), "missing_value": np.float32(-999.0)}
    dataset["latitude"].encoding = {"_FillValue": 1e20, "missing_value": 1e20}
    write_dataset(dataset, tmp_path / "o.nc")
    with netCDF4.Dataset(tmp_path / "o.nc") as file:
        assert file["t2m"]._FillValue == np.float32(1e20)
        assert "missing_value" not in file["t2m"].ncattrs()
        assert file["latitude"].missing_value == 1e20
