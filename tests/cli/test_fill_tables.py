"""`lkgp fill` with tables of stations."""

import warnings

import numpy as np
import pandas as pd
from command_line import run

import xarray as xr
from lkgp.cli.errors import report_errors


def test_a_long_table_comes_back_with_all_its_rows(stations, tmp_path):
    stations.to_csv(tmp_path / "in.csv", index=False)
    result = run("fill", tmp_path / "in.csv", tmp_path / "out.csv")
    assert "2 rows repeat" in result.output
    filled = pd.read_csv(tmp_path / "out.csv")
    assert list(filled.columns) == [*stations.columns, "temp_std", "temp_filled"]
    assert len(filled) == 6 * 30 + 2
    assert filled["temp"].notna().all()
    assert filled.groupby(["station", "date"]).size().shape == (180,)
    # What was given is there as it was, repeated rows too.
    given = filled[filled.temp_filled == 0].merge(
        stations.dropna(subset="temp"), on=list(stations.columns), how="outer", indicator=True
    )
    assert (given._merge == "both").all()
    late = filled[(filled.station == "S3") & (filled.date < "2021-01-13")]
    assert (late.temp_filled == 1).all()
    assert np.allclose(late.elevation, 30.0)
    truth = 5 + np.sin(np.arange(12) / 4) + 0.3
    assert np.abs(late.temp - truth).max() < 0.4
    assert list(dict.fromkeys(filled.station)) == [f"S{k}" for k in range(6)]


def test_a_wide_table_and_parquet(stations, tmp_path):
    wide = stations.pivot_table(index="date", columns="station", values="temp").reset_index()
    wide.to_parquet(tmp_path / "in.parquet")
    run("fill", tmp_path / "in.parquet", tmp_path / "out.parquet", "--quiet")
    filled = pd.read_parquet(tmp_path / "out.parquet")
    assert len(filled) == len(wide)
    for k in range(6):
        seen = wide[f"S{k}"].notna()
        assert np.array_equal(filled[f"S{k}"][seen], wide[f"S{k}"][seen])
        assert filled[f"S{k}"].notna().all()
        assert np.array_equal(filled[f"S{k}_filled"] == 1, ~seen)
        assert (filled[f"S{k}_std"] > 0).all()


def test_error_bars_of_tables_can_be_left_out(stations, tmp_path):
    wide = stations.pivot_table(index="date", columns="station", values="temp").reset_index()
    for frame, names in ((stations, ["temp"]), (wide, [f"S{k}" for k in range(6)])):
        frame.to_csv(tmp_path / "in.csv", index=False)
        run("fill", tmp_path / "in.csv", tmp_path / "out.csv", "--overwrite", "--quiet")
        run("fill", tmp_path / "in.csv", tmp_path / "means.csv", "--overwrite", "--quiet", "--no-std")
        both, means = (pd.read_csv(tmp_path / name) for name in ("out.csv", "means.csv"))
        pd.testing.assert_frame_equal(means, both.drop(columns=[f"{name}_std" for name in names]))


def test_dates_and_names_come_back_as_they_were(tmp_path):
    """German dates, days as whole numbers, and names of stations with zeros in front."""
    days = pd.date_range("2020-01-25", periods=20)
    for form in ("%d.%m.%Y", "%Y%m%d"):
        rows = [
            {"station": name, "date": day.strftime(form), "v": np.sin(i / 3)}
            for name in ("00433", "NA")
            for i, day in enumerate(days)
        ]
        pd.DataFrame(rows).drop(index=[5, 30]).to_csv(tmp_path / "in.csv", index=False)
        option = ["--date-format", form] if form == "%d.%m.%Y" else []
        run("fill", tmp_path / "in.csv", tmp_path / "out.csv", "--overwrite", "--quiet", *option)
        filled = pd.read_csv(tmp_path / "out.csv", dtype=str, keep_default_na=False)
        assert sorted(set(filled.station)) == ["00433", "NA"]
        assert filled[filled.station == "NA"].date.tolist() == days.strftime(form).tolist()
        assert (filled.v_filled == "1").sum() == 2
    assert "in the format %H" in run("inspect", tmp_path / "in.csv", "--date-format", "%H", code=2).output.replace(
        "\n", " "
    )


def test_stations_are_asked_by_names_that_look_like_numbers(tmp_path):
    days = pd.date_range("2020-01-25", periods=12)
    rows = [
        {"station": name, "date": day, "v": np.sin(i / 3)} for name in ("00433", "00500") for i, day in enumerate(days)
    ]
    pd.DataFrame(rows).drop(index=[5, 15]).to_csv(tmp_path / "in.csv", index=False)
    run("fill", tmp_path / "in.csv", tmp_path / "out.csv", "--model", tmp_path / "m.lkgp", "--quiet")
    run("predict", tmp_path / "m.lkgp", tmp_path / "p.nc", "--at", "station=00500", "--at", "date=2020-02-01")
    assert xr.load_dataset(tmp_path / "p.nc").v.sizes == {"station": 1, "date": 1}


def test_quiet_is_quiet(stations, tmp_path):
    stations.to_csv(tmp_path / "in.csv", index=False)
    assert run("fill", tmp_path / "in.csv", tmp_path / "out.csv", "--quiet").output == ""
    with report_errors(quiet=True):
        warnings.warn("nobody asked for this", stacklevel=1)
