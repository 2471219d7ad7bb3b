"""`lkgp fill` changes nothing but gaps: what else is in a file comes back as it was, in every format."""

import decimal
import json

import numcodecs
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zarr
from command_line import run
from stored_fields import GAPS, netcdf_with_everything, stored_content

import xarray as xr


def excel_table(stations=("007", "NA"), days=12):
    """A table as Excel writes it where commas are decimal signs, with columns that are only passed through."""
    lines = ["Datum;station;Art;Anzahl;Höhe;Temperatur;Bemerkung"]
    for k, name in enumerate(stations):
        for i in range(days):
            value = f"{5 + np.sin(i / 3) + k:.2f}".replace(".", ",") if (i + 4 * k) % 5 else ["", "NA", "-"][i % 3]
            lines.append(f'{1 + i:02}.03.2019;{name};0{i};{i if i % 2 else ""};-;{value};"Wind; {i}"')
    return "\ufeff" + "\r\n".join(lines) + "\r\n"


OPTIONS = ("--time", "Datum", "--date-format", "%d.%m.%Y", "-v", "Temperatur")


def test_a_table_of_excel_keeps_every_character_that_was_not_filled(tmp_path):
    given = excel_table()
    (tmp_path / "in.csv").write_bytes(given.encode())
    said = run("fill", tmp_path / "in.csv", tmp_path / "out.csv", *OPTIONS).output
    assert (
        "text in UTF-8 with a byte-order mark; columns separated by semicolons; a decimal comma in Temperatur" in said
    )
    written = (tmp_path / "out.csv").read_bytes().decode()
    old, new = (text.removeprefix("\ufeff").split("\r\n") for text in (given, written))
    assert written.startswith("\ufeff")
    assert len(old) == len(new)
    assert new[0] == old[0] + ";Temperatur_std;Temperatur_filled"
    assert new[-1] == old[-1] == ""
    for before, after in zip(old[1:-1], new[1:-1], strict=True):
        head, _, tail = before.partition(";-;")
        value = tail.partition(";")[0]
        std, flag = after.split(";")[-2:]
        assert float(std.replace(",", ".")) > 0
        assert flag == ("0" if "," in value else "1")
        if flag == "0":
            assert after == f"{before};{std};0"
        else:
            filled = after.split(";")[5]
            assert "," in filled
            assert 3 < float(filled.replace(",", ".")) < 8
            assert after == f"{head};-;{filled};{tail.partition(';')[2]};{std};1"


def test_what_was_found_out_about_a_table_is_in_the_summary(tmp_path):
    (tmp_path / "in.csv").write_bytes(excel_table().encode())
    result = run("fill", tmp_path / "in.csv", tmp_path / "out.csv", *OPTIONS, "--json", "--quiet")
    assert json.loads(result.output)["input"] == {
        "file": str(tmp_path / "in.csv"),
        "read_as": "text in UTF-8 with a byte-order mark; columns separated by semicolons; "
        "a decimal comma in Temperatur",
    }


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("5,98;", "5;98;"), "line 6 has 8 fields, but the header has 7"),
        (("5,98;", "5.98;"), "'5.98' in line 6, which has a decimal point, while"),
        (("5,98;", "5,98°;"), "the column Temperatur contains '5,98°' in line 6, which is not a number"),
        (("05.03.2019", "35.03.2019"), "the column Datum contains '35.03.2019' in line 6, which is not a date"),
    ],
)
def test_an_error_names_the_first_value_that_is_wrong(change, message, tmp_path):
    given = excel_table().replace("5,97;", "5,98;")
    assert change[0] in given.splitlines()[5]
    (tmp_path / "in.csv").write_bytes(given.replace(*change, 1).encode())
    output = run("fill", tmp_path / "in.csv", tmp_path / "out.csv", *OPTIONS, code=2).output
    assert message in output.replace("\n", " ")
    assert not (tmp_path / "out.csv").exists()


def test_a_column_that_is_not_quite_numbers_is_told(tmp_path):
    lines = ["date,a,b", *(f"2020-01-{i + 1:02},{i if i % 4 else ''},{i}" for i in range(12))]
    lines[5] += "?"
    (tmp_path / "in.csv").write_text("\n".join(lines))
    output = run("fill", tmp_path / "in.csv", tmp_path / "out.csv").output.replace("\n", " ")
    assert "not filled: b contains '4?' in line 6, which is not a number." in output


def test_the_columns_of_a_parquet_table_keep_their_types_and_values(stations, tmp_path):
    frame = stations.drop_duplicates(["station", "date"]).reset_index(drop=True)
    n = len(frame)
    dates = pd.to_datetime(frame["date"]).dt.tz_localize("Europe/Berlin")
    table = pa.table(
        {
            "date": pa.array(dates, pa.timestamp("ms", "Europe/Berlin")),
            "station": pa.array(frame["station"]).dictionary_encode(),
            "lat": pa.array(frame["lat"].astype("f4")),
            "lon": pa.array(frame["lon"]),
            "temp": pa.array(frame["temp"].astype("f4"), from_pandas=True),
            "large": pa.array([2**62 + i if i % 3 else None for i in range(n)]),
            "small": pa.array([i % 100 if i % 5 else None for i in range(n)], pa.uint8()),
            "price": pa.array([decimal.Decimal("1.50")] * n),
            "good": pa.array([None if i % 4 else True for i in range(n)]),
            "list": pa.array([[1, None], None] * n)[:n],
            "day": pa.array([18000 + i for i in range(n)], pa.date32()),
            "code": pa.array(["007", "NA", ""] * n)[:n],
            "bytes": pa.array([b"\x00\xff"] * n),
        }
    )
    field = pa.field("code", pa.string(), metadata={"note": "as printed"})
    table = table.cast(table.schema.set(table.schema.get_field_index("code"), field).with_metadata({"who": "me"}))
    pq.write_table(table, tmp_path / "in.parquet", compression={"temp": "gzip", "code": "zstd"}, row_group_size=64)
    run("fill", tmp_path / "in.parquet", tmp_path / "out.parquet", "-v", "temp", "--quiet")
    table, filled = (pq.read_table(tmp_path / name) for name in ("in.parquet", "out.parquet"))
    assert filled.select(table.column_names).schema.equals(table.schema, check_metadata=True)
    assert filled.column_names == [*table.column_names, "temp_std", "temp_filled"]
    keys = frame["station"] + frame["date"]
    found = filled.to_pandas()
    rows = pd.Index(found["station"].astype(str) + found["date"].dt.strftime("%Y-%m-%d")).get_indexer(keys)
    assert len(found) == 180
    assert (np.diff(rows) > 0).all()
    again = filled.take(pa.array(rows)).select(table.column_names)
    observed = pa.array(frame["temp"].notna())
    assert again.drop_columns("temp").equals(table.drop_columns("temp"))
    assert again["temp"].filter(observed).equals(table["temp"].filter(observed))
    assert filled["temp"].null_count == 0
    new = filled.take(pa.array(np.setdiff1d(np.arange(180), rows)))
    assert new["large"].null_count == len(new)
    before, after = (pq.read_metadata(tmp_path / name).row_group(0) for name in ("in.parquet", "out.parquet"))
    assert after.num_rows == before.num_rows == 64
    for i in range(before.num_columns):
        assert after.column(i).compression == before.column(i).compression


def test_a_table_of_pandas_is_read_by_pandas_as_before(tmp_path):
    """With an index, whole numbers of which some are missing, and categories."""
    index = pd.Index(pd.date_range("2020-01-01", periods=12), name="date")
    wide = pd.DataFrame(
        {"a": pd.array([*range(5), None, *range(6, 12)], dtype="Int64"), "b": np.arange(12.0)}, index=index
    ).assign(c=pd.Categorical(["x"] * 12))
    wide.loc[index[3], "b"] = np.nan
    wide.to_parquet(tmp_path / "in.parquet")
    run("fill", tmp_path / "in.parquet", tmp_path / "out.parquet", "--quiet")
    filled = pd.read_parquet(tmp_path / "out.parquet")
    pd.testing.assert_index_equal(filled.index, wide.index, check_freq=False)
    pd.testing.assert_series_equal(filled["c"], wide["c"], check_freq=False)
    seen = wide["a"].notna().to_numpy()
    assert filled["a"].to_numpy(float)[seen].tolist() == wide["a"][seen].tolist()
    assert filled["a"].notna().all()
    assert filled[["a_filled", "b_filled"]].sum().tolist() == [1, 1]


@pytest.mark.filterwarnings("ignore:.*multiple fill values")
def test_a_netcdf_file_keeps_groups_and_all_that_is_stored(tmp_path):
    source, path = tmp_path / "in.nc", tmp_path / "out.nc"
    netcdf_with_everything(source)
    run("fill", source, path, "--quiet")
    before, after = stored_content(source), stored_content(path)
    assert {key for key in before if after[key] != before[key]} == {("/", "v"), ("/", "attrs")}
    old, new = (np.frombuffer(found["/", "v"]["values"], "i2").reshape(GAPS.shape) for found in (before, after))
    assert np.array_equal(new[~GAPS], old[~GAPS])
    assert (np.abs(new[GAPS]) < 100).all()
    output = run("fill", source, tmp_path / "out.zarr", code=2).output.replace("\n", " ")
    assert "the variable ragged has a data type that cannot be copied" in output
    assert "evaluation" not in output  # nothing was fitted


def test_only_groups_have_gaps(tmp_path):
    xr.Dataset({"v": ("x", [1.0, np.nan])}).to_netcdf(tmp_path / "in.nc", group="inner")
    output = run("fill", tmp_path / "in.nc", tmp_path / "out.nc", code=2).output.replace("\n", " ")
    assert "groups (inner)" in output


@pytest.mark.parametrize("version", [2, 3])
def test_a_zarr_store_keeps_its_version_codecs_and_groups(small, version, tmp_path):
    store = tmp_path / "in.zarr"
    dataset = xr.load_dataset(small).drop_encoding()
    dataset["count"] = ("longitude", 2**62 + np.arange(3))
    codec = numcodecs.GZip(level=2) if version == 2 else zarr.codecs.GzipCodec(level=2)
    encoding = {"t2m": {"chunks": (8, 2, 2), "compressors": [codec]}}
    dataset.to_zarr(store, zarr_format=version, encoding=encoding, consolidated=False)
    zarr.open_group(store).create_group("inner").attrs["title"] = "deep"
    if version == 2:
        zarr.consolidate_metadata(store)
    run("fill", store, tmp_path / "out.zarr", "--quiet")
    before, after = (zarr.open_group(path, mode="r", use_consolidated=False) for path in (store, tmp_path / "out.zarr"))
    assert after.metadata.zarr_format == version
    assert (tmp_path / "out.zarr" / ".zmetadata").exists() == (version == 2)
    assert after["inner"].attrs["title"] == "deep"
    for name, array in before.arrays():
        again = after[name].metadata.to_dict()
        assert {**again, "attributes": 0} == {**array.metadata.to_dict(), "attributes": 0}, name
        seen = ~np.isnan(array[...]) if array.dtype.kind == "f" else slice(None)
        assert np.array_equal(after[name][...][seen], array[...][seen]), name
    assert after["t2m_std"].compressors == before["t2m"].compressors
