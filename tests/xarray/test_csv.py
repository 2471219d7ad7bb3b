"""Tables of text: what is read, and that every character of what was not filled comes back."""

import bz2
import gzip
import lzma
import zipfile

import numpy as np
import pytest
from filled_tables import fill_with

from lkgp.errors import FileError, InputError
from lkgp.xarray.formats.files import open_table
from lkgp.xarray.formats.numbers import Mistake, NumberColumn, read_numbers
from lkgp.xarray.tables import Table

PLAIN = b'''date,station,code,flag,n,v
2020-01-01,A,007,NA,1,1.50
2020-01-02,A,008,-,,2
2020-01-01,B,"0,9",x,3,NA
2020-01-02,B,010,"say ""no""", 4 ,1e0
'''
FILLED = b'''date,station,code,flag,n,v,v_std,v_filled
2020-01-01,A,007,NA,1,1.50,0.25,0
2020-01-02,A,008,-,,2,0.25,0
2020-01-01,B,"0,9",x,3,0.5,0.25,1
2020-01-02,B,010,"say ""no""", 4 ,1e0,0.25,0
'''


def filled_bytes(tmp_path, data, ending=".csv", **options):
    (tmp_path / f"in{ending}").write_bytes(data)
    opened = fill_with(tmp_path / f"in{ending}", tmp_path / f"out{ending}", **options)
    return (tmp_path / f"out{ending}").read_bytes(), opened


def test_only_filled_cells_and_new_columns_are_written(tmp_path):
    assert filled_bytes(tmp_path, PLAIN, values=["v"])[0] == FILLED


@pytest.mark.parametrize(
    "change",
    [
        lambda data: data.replace(b"\n", b"\r\n"),
        lambda data: data.replace(b"\n", b"\r"),
        lambda data: data.rstrip(b"\n"),
        lambda data: b"\xef\xbb\xbf" + data,
        lambda data: b"\xff\xfe" + data.decode().encode("utf-16-le"),
        lambda data: b"\xfe\xff" + data.decode().encode("utf-16-be"),
        lambda data: data.replace(b"no", "für".encode()),
        lambda data: data.replace(b"no", "für".encode("cp1252")),
        lambda data: data.replace(b"no", b"no\nmore, and\r\nmore"),
        lambda data: data.replace(b"2020-01-01,B", b"\n \n2020-01-01,B") + b"\n\n",
        lambda data: b"\n" + data,
        lambda data: data.replace(b"flag", b"code"),  # twice the same name
        lambda data: data.replace(b"flag", b""),
        lambda data: data.replace(b",A,", b', "A" ,'),
        lambda data: data.replace(b"x,3", b'5" pipe,3'),
    ],
    ids=[
        "CRLF", "CR", "no last line end", "UTF-8 mark", "UTF-16-LE", "UTF-16-BE", "UTF-8", "Windows-1252",
        "line ends in quotes", "blank lines", "blank line first", "same name twice", "no name", "spaces",
        "inner quotation mark",
    ],
)  # fmt: skip
def test_every_character_comes_back(change, tmp_path):
    assert filled_bytes(tmp_path, change(PLAIN), values=["v"])[0] == change(FILLED)


@pytest.mark.parametrize("separator", [b";", b"\t", b"|"])
def test_separators_are_found(separator, tmp_path):
    def change(data):
        return data.replace(b'"0,9"', b"009").replace(b",", separator)

    written, opened = filled_bytes(tmp_path, change(PLAIN), values=["v"])
    assert written == change(FILLED)
    assert "columns separated by" in opened.note


def test_decimal_commas_are_read_and_written(tmp_path):
    """As Excel writes "CSV UTF-8" where commas are decimal signs."""
    given = "\ufeffdate;station;lat;lon;n;v\r\n2020-01-01;A;50,5;7,25;3;1,250\r\n2020-01-02;A;50,5;7,25;;\r\n"
    written, opened = filled_bytes(tmp_path, given.encode())
    assert opened.note == (
        "text in UTF-8 with a byte-order mark; columns separated by semicolons; a decimal comma in lat, lon, v"
    )
    assert opened.frame["v"].tolist()[0] == 1.25
    assert written.decode() == (
        "\ufeffdate;station;lat;lon;n;v;n_std;n_filled;v_std;v_filled\r\n"
        "2020-01-01;A;50,5;7,25;3;1,250;0,25;0;0,25;0\r\n2020-01-02;A;50,5;7,25;0,5;0,5;0,25;1;0,25;1\r\n"
    )
    quoted = b'date,station,v\n2020-01-01,A,"1,25"\n2020-01-02,A,\n'
    assert filled_bytes(tmp_path, quoted)[0].splitlines()[1:] == [
        b'2020-01-01,A,"1,25","0,25",0',
        b'2020-01-02,A,"0,5","0,25",1',
    ]


ROWS = {
    "B1": b"2020-01-01T00Z,B,05.50,7.0,1,p",
    "B3": b"2020-01-03T00Z,B,,,4,s",
    "A1": b"2020-01-01T00Z,A,6,8,2,q",
    "A2": b"2020-01-02T00Z,A,6,8,3,r",
    "A3": b"2020-01-03T00Z,A,6,8,5,t",
}
NEW_ROW = b"2020-01-02T00Z,B,05.50,7.0,0.5,,0.25,1"


@pytest.mark.parametrize(
    ("order", "place"),
    [
        (["B1", "B3", "A1", "A2", "A3"], 1),  # by station
        (["A3", "A2", "A1", "B3", "B1"], 4),  # by station, the last time first
        (["B1", "A1", "A2", "B3", "A3"], 3),  # by time
        (["A3", "B3", "A2", "A1", "B1"], 3),  # the last time first
        (["A2", "A3", "B3", "B1", "A1"], 5),  # in no order
    ],
)
def test_old_rows_keep_their_order_and_new_ones_take_dates_and_places_from_them(order, place, tmp_path):
    lines = [b"date,name,lat,lon,v,x", *(ROWS[row] for row in order)]
    found = filled_bytes(tmp_path, b"\n".join(lines))[0].splitlines()
    assert found.pop(place + 1) == NEW_ROW
    assert found == [lines[0] + b",v_std,v_filled", *(line + b",0.25,0" for line in lines[1:])]


def test_compressed_tables(tmp_path):
    (tmp_path / "in.csv.gz").write_bytes(gzip.compress(PLAIN))
    (tmp_path / "in.csv.bz2").write_bytes(bz2.compress(PLAIN))
    (tmp_path / "in.csv.xz").write_bytes(lzma.compress(PLAIN))
    with zipfile.ZipFile(tmp_path / "in.csv.zip", "w") as archive:
        archive.writestr("in.csv", PLAIN)
    for ending, read in ((".gz", gzip.decompress), (".bz2", bz2.decompress), (".xz", lzma.decompress), (".zip", None)):
        fill_with(tmp_path / f"in.csv{ending}", tmp_path / f"out.csv{ending}", values=["v"])
        written = (tmp_path / f"out.csv{ending}").read_bytes()
        if read is None:
            with zipfile.ZipFile(tmp_path / "out.csv.zip") as archive:
                assert archive.read("out.csv") == FILLED
        else:
            assert read(written) == FILLED
        (tmp_path / f"in.csv{ending}").write_bytes(written[:-9])
        with pytest.raises(FileError, match="is not a readable CSV file"):
            open_table(tmp_path / f"in.csv{ending}", (), ())


def test_rows_of_other_lengths(tmp_path):
    """Separators at the ends of lines, and rows that end early."""
    ends = b"date;station;v;\n2020-01-01;A;1;\n2020-01-02;A;;\n"
    assert filled_bytes(tmp_path, ends)[0] == (
        b"date;station;v;;v_std;v_filled\n2020-01-01;A;1;;0.25;0\n2020-01-02;A;0.5;;0.25;1\n"
    )
    only_rows = b"date,station,v\n2020-01-01,A,1,\n2020-01-02,A,,,\n"
    assert filled_bytes(tmp_path, only_rows)[0] == (
        b"date,station,v,v_std,v_filled\n2020-01-01,A,1,0.25,0,\n2020-01-02,A,0.5,0.25,1,,\n"
    )
    short = b"date,station,v,w\n2020-01-01,A,1,x\n2020-01-02,A\n"
    assert filled_bytes(tmp_path, short)[0].splitlines()[2] == b"2020-01-02,A,0.5,,0.25,1"


def test_a_table_with_tabs_can_be_written_with_commas(tmp_path):
    (tmp_path / "in.tsv").write_bytes(b'date\tstation\tv\tw\n2020-01-01\tA\t1\ta, b\n2020-01-02\tA\t\t"c"\n')
    fill_with(tmp_path / "in.tsv", tmp_path / "out.csv")
    assert (tmp_path / "out.csv").read_bytes() == (
        b'date,station,v,w,v_std,v_filled\n2020-01-01,A,1,"a, b",0.25,0\n2020-01-02,A,0.5,"c",0.25,1\n'
    )


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "is empty"),
        (b"\n \n", "is empty"),
        (b"date,v\n2020-01-01,1,5\n", "line 2 has 3 fields, but the header has 2; a number with a decimal comma must"),
        (b'date,v\n2020-01-01,"1\n2020-01-02,2\n', "the quotation mark in line 2 is not closed"),
        ("date,v\n2020-01-01,1\n".encode("utf-16-le"), "save it as UTF-8"),
        (b"date,v\n2020-01-01,\x81\xff\n", "encoding is not known"),
    ],
)
def test_files_that_cannot_be_read_are_refused(data, message, tmp_path):
    (tmp_path / "in.csv").write_bytes(data)
    with pytest.raises(FileError, match=message):
        open_table(tmp_path / "in.csv", (), ())


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"date,v\n2020-01-01,1.5\n\n2020-01-03,NA\n2020-01-02,2.5x\n", "'2.5x' in line 5, which is not a number"),
        (b"date;v\n2020-01-01;1,5\n2020-01-02;-\n2020-01-03;1.5\n", "'1.5' in line 4, which has a decimal point"),
        (b"date;v\n2020-01-01;1.5\n2020-01-02;1,5\n", "'1,5' in line 3, which has a decimal comma, while '1.5' above"),
        (b'date,v\n2020-01-01,1\n2020-01-02,"1,500"\n', "'1,500' in line 3, which may mean a thousand or a decimal"),
        (b'date,v\n2020-01-01,1\n2020-01-02,"1,234.5"\n', "'1,234.5' in line 3, which is not a number"),
        (b"date,v\n2020-01-01,1\n2020-13-01,2\n", "date contains '2020-13-01' in line 3, which is not a date"),
        (b"date,v\n2020-01-01,1\n,2\n", "the column date is empty in line 3"),
        (b'date,note,v\n2020-01-01,"a\nb",1\nnever,,2\n', "'never' in line 4"),
        (b"date,v,v\n2020-01-01,1,2\n", "several columns are named 'v'"),
        (b"date,station,lat,lon,v\n2020-01-01,A,50N,1,2\n", "lat contains '50N' in line 2, which is not a number"),
        (b"date,v\n", "a header, but no rows"),
        (b"date,v\n2020-01-01T00:00Z,1\n2020-01-02T00:00,2\n", "line 3, which has no offset from UTC, unlike"),
    ],
)  # fmt: skip
def test_the_first_value_that_is_wrong_is_named(data, message, tmp_path):
    (tmp_path / "in.csv").write_bytes(data)
    with pytest.raises(InputError, match=message):
        Table.of(open_table(tmp_path / "in.csv", ("station",), ()).frame, values=["v"])


def test_a_column_that_is_passed_over_because_of_a_few_cells_is_told(tmp_path):
    data = b"date,u,v,remark\n2020-01-01,1,1.5,fine\n2020-01-02,2,x1,3\n2020-01-03,,4.5,\n"
    (tmp_path / "in.csv").write_bytes(data)
    table = Table.of(open_table(tmp_path / "in.csv", (), ()).frame)
    assert table.values == ["u"]
    assert table.remarks == ("not filled: v contains 'x1' in line 3, which is not a number.",)


def test_codes_are_not_numbers_unless_they_are_asked_for(tmp_path):
    (tmp_path / "in.csv").write_bytes(b"date,code,v\n2020-01-01,007,1.5\n2020-01-02,,2.5\n2020-01-03,012,\n")
    assert Table.of(open_table(tmp_path / "in.csv", (), ()).frame).values == ["v"]
    asked = Table.of(open_table(tmp_path / "in.csv", (), ("code",)).frame, values=["code"])
    assert np.array_equal(asked.frame["code"], [7, np.nan, 12], equal_nan=True)


def test_numbers_as_people_write_them():
    for texts, expected in (
        (["1", "+2.5", "-.5", "1e3", "4."], [1, 2.5, -0.5, 1000, 4]),
        (["0,5", "1,500", "2"], [0.5, 1.5, 2]),
        (["1,5E-3", ""], [0.0015, np.nan]),
        (["NA", "-", "nan", "#N/A"], [np.nan] * 4),
    ):
        found = read_numbers(texts)
        assert isinstance(found, NumberColumn)
        assert np.array_equal(found.values, expected, equal_nan=True)
    for text in ("1_000", "1 000", "0x10", "1.2.3", "--1", "12%", "1'000", "١٢", "True"):
        assert read_numbers(["1.5", text]) == Mistake(1, "is not a number"), text
    assert read_numbers(["1,234"], comma_is_decimal=True).values.tolist() == [1.234]
