"""Tables as labelled fields, and back."""

import numpy as np
import pandas as pd
import pytest
from station_data import station_table

import xarray as xr
from lkgp.errors import InputError
from lkgp.xarray.tables import Table


@pytest.fixture(scope="module")
def stations():
    return station_table()


def test_tables_that_cannot_be_understood_are_refused(stations):
    with pytest.raises(InputError, match="no column 'when'; the columns are date"):
        Table.of(stations, time="when")
    with pytest.raises(InputError, match=r"none of the columns .* looks like a time"):
        Table.of(stations.drop(columns="date"))
    with pytest.raises(InputError, match="name the column that identifies them"):
        Table.of(stations[["date", "temp"]])
    with pytest.raises(InputError, match="no column to fill contains numbers"):
        Table.of(stations[["date", "station", "remark"]])
    with pytest.raises(InputError, match="contains 'never' in row 1, which is not a date in the format ISO 8601"):
        Table.of(stations.assign(date="never"))
    with pytest.raises(InputError, match="temp contains '3,5' in row 1, which"):
        Table.of(stations.assign(temp="3,5"))
    with pytest.raises(InputError, match="already a column 'temp_std'"):
        Table.of(stations.assign(temp_std=1.0))
    with pytest.raises(InputError, match="empty in row 1"):
        Table.of(stations.assign(date=stations.date.where(stations.index > 0)))
    moving = stations.copy()
    moving.loc[3, "lat"] += 1
    with pytest.raises(InputError, match="the lat of the station 'S0' changes"):
        Table.of(moving).to_dataset()
    unnamed = Table.of(stations.drop(columns="station"))
    assert unnamed.to_dataset().sizes["station"] == 6


def test_tables_are_smoothed_where_they_have_values_too(stations):
    wide = Table.of(
        stations.drop_duplicates(["station", "date"])
        .pivot(index="date", columns="station", values="temp")
        .reset_index()
    )
    for table, name, column in ((Table.of(stations), "temp", "temp"), (wide, "value", "S0")):
        dataset = table.to_dataset()
        known = xr.zeros_like(dataset[name])
        known[0, 0] = np.nan  # what the model left alone
        result = xr.Dataset({name: known, f"{name}_std": known, f"{name}_filled": known})
        smooth, plain = table.filled(result, smooth=True), table.filled(result)
        assert (smooth[column].isin([0.0, table.frame[column].iloc[0]])).all()
        assert (smooth[column] == 0.0).sum() > 20
        seen = table.frame[column].dropna()
        assert seen.isin(plain[column]).all()


@pytest.mark.parametrize(
    ("offsets", "expected"),
    [
        (("+01:00", "+01:00"), "2019-03-01 06:00:00+01:00"),
        (("+01:00", "+02:00"), "2019-03-01 05:00:00+00:00"),  # summer time begins
        (("", ""), "2019-03-01 06:00:00"),
    ],
)
def test_dates_come_back_with_their_offset(offsets, expected):
    days = [f"2019-03-01T06:00{offsets[0]}", f"2019-04-01T06:00{offsets[1]}"]
    table = Table.of(pd.DataFrame({"date": days, "station": "a", "v": [1.5, 2.5]}))
    dataset = table.to_dataset()
    assert dataset.date.values[0] == np.datetime64("2019-03-01T05:00" if offsets[0] else "2019-03-01T06:00")
    assert str(table.filled(dataset.assign(v_std=dataset.v, v_filled=dataset.v)).date[0]) == expected
