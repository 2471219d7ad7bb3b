"""Files of gridded fields: all that is stored comes back, except where gaps were filled."""

import json
import warnings

import netCDF4
import numcodecs
import numpy as np
import pytest
import zarr
from stored_fields import GAPS, fill_fields_with, netcdf_with_everything, stored_content

import xarray as xr
from lkgp.errors import FileError
from lkgp.xarray.formats.files import check_conversion, read_dataset

# What xarray says about the two fill values of `v`, and zarr about texts of fixed length.
pytestmark = pytest.mark.filterwarnings("ignore:.*multiple fill values", "ignore:.*does not have a Zarr V3")


def test_everything_in_a_netcdf_file_stays_as_it_is_stored(tmp_path):
    source, path = tmp_path / "in.nc", tmp_path / "out.nc"
    netcdf_with_everything(source)
    fill_fields_with(source, path, 3.0)
    before, after = stored_content(source), stored_content(path)
    assert set(after) - set(before) == {("/", "v_std"), ("/", "v_filled")}
    old, new = before.pop(("/", "v")), after.pop(("/", "v"))
    assert new["attrs"].pop("ancillary_variables") == "'v_std v_filled'"
    values = np.frombuffer(old.pop("values"), "<i2").reshape(GAPS.shape)
    assert np.array_equal(np.frombuffer(new.pop("values"), "<i2").reshape(GAPS.shape), np.where(GAPS, 20, values))
    assert new == old
    assert after.pop(("/", "v_std"))["attrs"]["coordinates"] == "'height name'"
    assert after.pop(("/", "v_filled"))["attrs"]["coordinates"] == "'height name'"
    attrs = dict(after.pop(("/", "attrs")))
    assert attrs.pop("history") == repr("filled\nmade by hand")
    assert attrs == {key: text for key, text in before.pop(("/", "attrs")) if key != "history"}
    assert after == before


@pytest.mark.parametrize("version", ["NETCDF3_CLASSIC", "NETCDF3_64BIT_DATA", "NETCDF4_CLASSIC"])
def test_the_version_of_a_netcdf_file_stays(version, tmp_path):
    source, path = tmp_path / "in.nc", tmp_path / "out.nc"
    with netCDF4.Dataset(source, "w", format=version) as file:
        file.createDimension("time", None)
        file.createDimension("x", 4)
        file.createVariable("x", "f8", ("x",))[:] = np.arange(4)
        v = file.createVariable("v", "f4", ("time", "x"), fill_value=np.float32(-1e9))
        v[:] = np.ma.masked_array(np.arange(GAPS.size).reshape(GAPS.shape) / 7, mask=GAPS)
    fill_fields_with(source, path, 3.0)
    before, after = stored_content(source), stored_content(path)
    assert after["/", "dimension", "time"] == before["/", "dimension", "time"] == (len(GAPS), True)
    assert after["/", "x"] == before["/", "x"]
    old, new = (np.frombuffer(found["/", "v"]["values"], "f4").reshape(GAPS.shape) for found in (before, after))
    assert np.array_equal(new, np.where(GAPS, np.float32(3.0), old))
    with netCDF4.Dataset(path) as file:
        assert file.data_model == version
        assert file["v_std"][:].min() == 0.5


@pytest.mark.parametrize("value", [1e6, -98.9, -98.8])
def test_values_that_do_not_fit_change_the_data_type_of_their_variable_only(value, tmp_path):
    """Out of the range of 16 bits, and equal to each of the two numbers that mean a missing value."""
    source, path = tmp_path / "in.nc", tmp_path / "out.nc"
    netcdf_with_everything(source, own_types=False)
    with pytest.warns(UserWarning, match=r"filled values of v do not fit .* \(int16\), so that it is written as float"):
        fill_fields_with(source, path, value)
    given, found = read_dataset(source).load(), read_dataset(path).load()
    gaps = given["v"].isnull()
    assert bool((found["v"] == given["v"]).where(~gaps, True).all())
    assert np.allclose(found["v"].values[gaps.values], value)
    before, after = stored_content(source), stored_content(path)
    for key, content in before.items():
        if isinstance(content, dict) and key != ("/", "v"):
            # The order of bytes is another, and a group that uses a dimension of the file has one of its own.
            same = ("dims", "filters", "chunks", "attrs", "values")
            assert {part: after[key][part] for part in same} == {part: content[part] for part in same}, key
        elif key[1] == "dimension":
            assert after[key] == content, key


def zarr_with_groups(path, version, consolidated):
    """A packed variable `v` with gaps, others with their own codecs, and a group."""
    root = zarr.open_group(path, mode="w", zarr_format=version)
    root.attrs.update({"title": "all", "nested": {"a": [1, 2]}})
    if version == 3:
        codecs = {"compressors": [zarr.codecs.GzipCodec(level=3)], "filters": None}
    else:
        codecs = {"compressors": [numcodecs.BZ2(level=3)], "filters": [numcodecs.Delta(dtype="i2")]}

    def add(group, name, values, dims, fill_value=None, attrs=None, **options):
        values = np.asarray(values)
        names = {"dimension_names": dims} if version == 3 else {}
        array = group.create_array(
            name, shape=values.shape, dtype=values.dtype, fill_value=fill_value, **names, **options
        )
        array[...] = values
        array.attrs.update({**(attrs or {}), **({} if version == 3 else {"_ARRAY_DIMENSIONS": dims})})

    add(root, "time", 6 * np.arange(len(GAPS)), ["time"], attrs={"units": "hours since 2000-01-01"})
    add(root, "x", np.arange(4.0), ["x"])
    raw = np.where(GAPS, -999, 10 + np.arange(GAPS.size).reshape(GAPS.shape)).astype("i2")
    raw[4:] = np.where(raw[4:] == -999, 7, raw[4:])  # nothing is missing in the last chunks
    marked = {} if version == 2 else {"_FillValue": -999}
    add(root, "v", raw, ["time", "x"], -999, {"scale_factor": 0.1, **marked}, chunks=(2, 3), **codecs)
    add(root, "large", 2**62 + np.arange(4), ["x"], None if version == 3 else 0, chunks=(3,))
    add(root.create_group("sensors"), "gain", np.ones((2, 3), "f4"), ["y", "z"])
    if consolidated:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            zarr.consolidate_metadata(path)


@pytest.mark.parametrize("consolidated", [False, True])
@pytest.mark.parametrize("version", [2, 3])
def test_everything_in_a_zarr_store_stays_as_it_is_stored(version, consolidated, tmp_path):
    source, path = tmp_path / "in.zarr", tmp_path / "out.zarr"
    zarr_with_groups(source, version, consolidated)
    fill_fields_with(source, path, 2.0)
    files = {file.relative_to(source): file.read_bytes() for file in source.rglob("*") if file.is_file()}
    changed = {str(name) for name, content in files.items() if (path / name).read_bytes() != content}
    chunks = {f"v/c/{i}/{j}" if version == 3 else f"v/{i}.{j}" for i in range(2) for j in range(2)}
    metadata = {"zarr.json", "v/zarr.json"} if version == 3 else {".zattrs", "v/.zattrs"}
    extra = {".zmetadata"} if version == 2 and consolidated else set()
    assert changed <= chunks | metadata | extra
    new = {file.relative_to(path).parts[0] for file in path.rglob("*") if file.is_file()}
    assert new - {name.parts[0] for name in files} == {"v_std", "v_filled"}
    before, after = (zarr.open_group(store, mode="r", use_consolidated=consolidated) for store in (source, path))
    assert dict(after.attrs) == {**before.attrs, "history": "filled"}
    old, raw = before["v"][...], after["v"][...]
    assert np.array_equal(raw, np.where(old == -999, 20, old))
    assert after["v"].metadata.to_dict() | {"attributes": 0} == before["v"].metadata.to_dict() | {"attributes": 0}
    assert dict(after["v"].attrs) == {**before["v"].attrs, "ancillary_variables": "v_std v_filled"}
    assert after["v_std"].chunks == (2, 3)
    assert after["v_std"].compressors == before["v"].compressors


def test_a_zarr_variable_whose_packing_is_too_small_is_written_anew(tmp_path):
    source, path = tmp_path / "in.zarr", tmp_path / "out.zarr"
    zarr_with_groups(source, 3, False)
    with pytest.warns(UserWarning, match="filled values of v do not fit"):
        fill_fields_with(source, path, 1e6)
    given, found = read_dataset(source), read_dataset(path)
    gaps = given["v"].isnull()
    assert found["v"].dtype == float
    assert bool((found["v"] == given["v"].fillna(1e6)).all())
    assert gaps.any()
    assert zarr.open_group(path)["sensors/gain"].shape == (2, 3)


def test_from_one_format_to_another_with_groups(tmp_path):
    zarr_with_groups(tmp_path / "in.zarr", 3, False)
    store = zarr.open_group(tmp_path / "in.zarr")
    with pytest.raises(FileError, match=r"out.nc cannot hold everything in .*in.zarr"):  # an attribute with parts
        check_conversion(tmp_path / "in.zarr", tmp_path / "out.nc")
    del store.attrs["nested"]
    check_conversion(tmp_path / "in.zarr", tmp_path / "out.nc")
    fill_fields_with(tmp_path / "in.zarr", tmp_path / "out.nc", 2.0)
    content = stored_content(tmp_path / "out.nc")
    assert np.frombuffer(content["/", "large"]["values"], "i8").tolist() == [2**62 + i for i in range(4)]
    assert content["/", "time"]["attrs"] == {"units": "'hours since 2000-01-01'"}
    assert content["/sensors/", "gain"]["dims"] == ("y", "z")
    fill_fields_with(tmp_path / "in.zarr", tmp_path / "again.zarr", 2.0)
    xr.testing.assert_allclose(read_dataset(tmp_path / "out.nc").v, read_dataset(tmp_path / "again.zarr").v)
    netcdf_with_everything(tmp_path / "in.nc")
    with pytest.raises(FileError, match="the variable ragged has a data type that cannot be copied"):
        check_conversion(tmp_path / "in.nc", tmp_path / "out.zarr")
    with pytest.raises(FileError, match="compressed twice"):
        check_conversion(tmp_path / "in.nc", tmp_path / "out.nc.gz")
    netcdf_with_everything(tmp_path / "in.nc", own_types=False)
    check_conversion(tmp_path / "in.nc", tmp_path / "out.zarr")
    fill_fields_with(tmp_path / "in.nc", tmp_path / "out.zarr", 3.0)
    found = zarr.open_group(tmp_path / "out.zarr", mode="r")
    assert found["large"][...].tolist() == [2**62, 2**62 + 1, np.iinfo("i8").max, 2**62 + 3]
    assert found["time"].attrs["calendar"] == "noleap"
    assert found["sensors/gain"][...].tolist() == [[1.5] * 4] * 2
    assert json.dumps(found["sensors/inner"].attrs.asdict()) == '{"title": "deep"}'
