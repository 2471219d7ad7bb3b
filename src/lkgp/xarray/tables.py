"""Tables of measurements, long or wide, as labelled fields, and back with all their rows.

A long table has one row per measurement: a station, a date, a value, and possibly the location of the station. A wide
table has one row per date and one column per station.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import tzinfo

import numpy as np
import pandas as pd

import xarray as xr
from lkgp.errors import InputError
from lkgp.xarray.formats.table_edit import TableEdit
from lkgp.xarray.table_columns import as_numbers, as_times, check_unique, numbers_to_fill

TIME_NAMES = ("time", "date", "datetime", "timestamp", "day", "valid_time")
STATION_NAMES = ("station", "station_id", "station_name", "site", "site_id", "id", "name", "location", "sensor")
PLACE_NAMES = {
    "latitude": ("latitude", "lat"),
    "longitude": ("longitude", "lon", "lng", "long"),
    "height": ("elevation", "height", "altitude", "elev", "alt"),
}
PLACE_ATTRS = {
    "latitude": {"standard_name": "latitude", "units": "degrees_north"},
    "longitude": {"standard_name": "longitude", "units": "degrees_east"},
    "height": {"standard_name": "height", "units": "m", "axis": "Z"},
}


@dataclass(frozen=True, eq=False)
class Table:
    """A table and the roles of its columns.

    time, station: names of columns; station is None in a wide table, whose stations are its value columns
    places: the names of the columns that hold "latitude", "longitude" and "height"
    values: columns to fill
    date_format: of the dates in the file; None for ISO 8601
    zone: the time zone, or the offset from UTC, of the dates in the file; None if they have none
    remarks: sentences about columns that are passed over, though they were probably meant to be filled
    """

    frame: pd.DataFrame
    time: str
    station: str | None
    places: dict[str, str]
    values: list[str]
    date_format: str | None = None
    zone: tzinfo | None = None
    remarks: tuple[str, ...] = ()

    @property
    def is_long(self) -> bool:
        return self.station is not None

    @property
    def repeated(self) -> int:
        """The number of rows that have the same station and time as an earlier row."""
        return int(self.frame.duplicated([self.station, self.time]).sum()) if self.is_long else 0

    @classmethod
    def of(
        cls,
        frame: pd.DataFrame,
        time: str | None = None,
        station: str | None = None,
        values: Sequence[str] = (),
        date_format: str | None = None,
    ) -> "Table":
        """Find the roles of the columns that the caller has not named."""
        columns = [str(column) for column in frame.columns]
        frame = frame.set_axis(columns, axis=1)
        for given in (time, station, *values):
            if given is not None and given not in columns:
                raise InputError(f"there is no column {given!r}; the columns are {', '.join(columns)}.")
        if not len(frame):
            raise InputError("the table has a header, but no rows.")
        time = time or named(columns, TIME_NAMES)
        if time is None:
            raise InputError(f"none of the columns {', '.join(columns)} looks like a time; name it with --time.")
        places = {
            word: found
            for word, names in PLACE_NAMES.items()
            if (found := named(columns, names)) is not None and found != time
        }
        station = station or named([column for column in columns if column != time], STATION_NAMES)
        others = {time, *places.values(), *([station] if station is not None else [])}
        chosen, remarks = list(values), list[str]()
        if not chosen:
            chosen, remarks = numbers_to_fill(frame, others, is_long=station is not None or "latitude" in places)
        check_unique(columns, [*others, *chosen])
        for column in chosen:
            taken = [key for key in (f"{column}_std", f"{column}_filled") if key in columns]
            if taken:
                raise InputError(
                    f"there is already a column {taken[0]!r}, perhaps because {column} was filled before; "
                    "remove it first."
                )
        times, date_format, zone = as_times(frame[time], date_format)
        numbers = {column: as_numbers(frame[column]) for column in [*places.values(), *chosen]}
        frame = frame.assign(**{time: times, **numbers}).reset_index(drop=True)
        if station is None and "latitude" in places and "longitude" in places:
            # Stations without names are named after their coordinates.
            station = "station"
            frame[station] = frame[places["latitude"]].astype(str) + " " + frame[places["longitude"]].astype(str)
        elif station is not None:
            frame[station] = frame[station].astype(str)
        if station is None and frame[time].duplicated().any():
            raise InputError(several_stations(time))
        places = places if station is not None else {}
        return cls(frame, time, station, places, chosen, date_format, zone, tuple(remarks))

    def to_dataset(self) -> xr.Dataset:
        """The values over stations and times; repeated rows are averaged."""
        if not self.is_long:
            wide = self.frame.set_index(self.time)[self.values]
            if wide.index.duplicated().any():
                raise InputError(several_stations(self.time))
            cells = xr.DataArray(
                wide.to_numpy(float), dims=(self.time, "column"), coords={self.time: wide.index, "column": self.values}
            )
            return cells.sortby(self.time).to_dataset(name="value")
        frame = self.frame
        means = frame.groupby([self.station, self.time], sort=True)[self.values].mean()
        dataset = xr.Dataset.from_dataframe(means)
        where = {}
        for word, column in self.places.items():
            by_station = frame.groupby(self.station)[column]
            moving = by_station.nunique(dropna=True) > 1
            if moving.any():
                raise InputError(
                    f"the {column} of the station {moving.idxmax()!r} changes; "
                    "give a station that moved a different name at each place."
                )
            known = by_station.first().reindex(dataset[self.station].values)
            if known.isna().any():
                if word == "height":
                    continue  # heights improve the model, but are not required
                raise InputError(f"the {column} of the station {known.index[known.isna()][0]!r} is missing; add it.")
            where[column] = (self.station, known.to_numpy(float), PLACE_ATTRS[word])
        return dataset.assign_coords(where)

    def edit(self, result: xr.Dataset, smooth: bool = False) -> TableEdit:
        """What filling changes: gaps, new rows for missing cells, and for each value NAME_std and NAME_filled.

        result: NAME, NAME_std (or not, without error bars) and NAME_filled for every value, over the same stations and
            times as `to_dataset`
        smooth: whether to replace observed values by those of the result
        """
        return self._edit_long(result, smooth) if self.is_long else self._edit_wide(result, smooth)

    def _edit_wide(self, result: xr.Dataset, smooth: bool) -> TableEdit:
        replaced, added = {}, {}
        times = xr.DataArray(self.frame[self.time].to_numpy(), dims="row")
        for column in self.values:
            at = result.sel(column=column).sel({self.time: times})
            replaced[column] = new_values(self.frame[column].to_numpy(float), at["value"].to_numpy(), smooth)
            for ending in endings(result, "value"):
                added[f"{column}{ending}"] = at[f"value{ending}"].to_numpy()
        return TableEdit(np.arange(len(self.frame)), {}, replaced, added)

    def _edit_long(self, result: xr.Dataset, smooth: bool) -> TableEdit:
        """Every cell of the grid without a row gets one, with the date and the place of other rows."""
        frame, old = self.frame, len(self.frame)
        stations, times = result.indexes[self.station], result.indexes[self.time]
        station, time = stations.get_indexer(frame[self.station]), times.get_indexer(frame[self.time])
        has_row = np.zeros((len(stations), len(times)), dtype=bool)
        has_row[station, time] = True
        new_station, new_time = np.nonzero(~has_row)
        station, time = np.append(station, new_station), np.append(time, new_time)
        # Stations are in the order in which they first occur.
        _, first, inverse = np.unique(station, return_index=True, return_inverse=True)
        order = row_order(first[inverse], time, old)
        station, time = station[order], time[order]
        origin = np.where(order < old, order, -1)
        copied = {self.time: first_rows(frame[self.time], times)[time]}
        for column in (str(self.station), *self.places.values()):
            there = frame[column].notna()
            copied[column] = first_rows(frame[self.station].where(there), stations)[station]
        replaced: dict[str, np.ndarray] = {}
        added: dict[str, np.ndarray] = {}
        for name in self.values:
            found = {
                ending: result[f"{name}{ending}"].transpose(self.station, self.time).to_numpy()[station, time]
                for ending in ("", *endings(result, name))
            }
            given = np.where(origin < 0, np.nan, frame[name].to_numpy(float)[origin])
            replaced[name] = new_values(given, found.pop(""), smooth)
            added |= {f"{name}{ending}": column for ending, column in found.items()}
        return TableEdit(origin, copied, replaced, added)

    def filled(self, result: xr.Dataset, smooth: bool = False) -> pd.DataFrame:
        """The edited table in memory, with its dates as dates in their zone; the arguments are those of `edit`."""
        frame = self.edit(result, smooth).apply(self.frame)
        if self.zone is not None:
            frame[self.time] = frame[self.time].dt.tz_localize("UTC").dt.tz_convert(self.zone)
        return (
            frame
            if self.date_format is None
            else frame.assign(**{self.time: frame[self.time].dt.strftime(self.date_format)})
        )


def endings(result: xr.Dataset, name: str) -> list[str]:
    """What filling adds beside NAME: NAME_std, unless error bars were left out, and NAME_filled."""
    return [ending for ending in ("_std", "_filled") if f"{name}{ending}" in result]


def new_values(given: np.ndarray, found: np.ndarray, smooth: bool) -> np.ndarray:
    """What replaces given values, all (N,): in gaps, or everywhere if smooth; NaN where nothing does."""
    return found if smooth else np.where(np.isnan(given), found, np.nan)


def first_rows(labels: pd.Series, index: pd.Index) -> np.ndarray:
    """The first row with each label of an index, -1 if there is none, (len(index),); labels: (rows,)."""
    found = labels.dropna().drop_duplicates()
    return pd.Series(found.index, index=found.to_numpy()).reindex(index, fill_value=-1).to_numpy()


def several_stations(time: str) -> str:
    """What to say if a wide table has two rows of the same time."""
    return (
        f"the column {time} has repeated values, so there are several stations; "
        "name the column that identifies them with --station."
    )


def named(columns: Sequence[str], names: Sequence[str]) -> str | None:
    """The column, in any case, that has the first of these names to occur."""
    lower = {column.lower(): column for column in reversed(columns)}
    return next((lower[name] for name in names if name in lower), None)


def row_order(stations: np.ndarray, times: np.ndarray, old: int) -> np.ndarray:
    """The order of rows in which the first `old` ones keep theirs, and the others stand where they belong.

    stations, times: numbers (N,) that increase with the order of stations and with time

    Returns the positions of the rows in their new order, (N,). If the old rows are sorted by station and time, or by
    time, forwards or backwards, so are all; otherwise the new rows come last.
    """
    rows = np.arange(len(stations))
    is_new = rows >= old
    # By station and time, or by time alone, where the rows of the same time stay in their order.
    for keys in ((stations, times), (stations, -times), (times,), (-times,)):
        sorted_rows = np.lexsort((rows, is_new, *reversed(keys)))
        if (np.diff(sorted_rows[sorted_rows < old]) > 0).all():
            return sorted_rows
    return rows
