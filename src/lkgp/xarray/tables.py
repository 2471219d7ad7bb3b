"""Tables of measurements, long or wide, as labelled fields, and back with all their rows.

A long table has one row per measurement: a station, a date, a value, and possibly the location of the station. A wide
table has one row per date and one column per station.
"""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import tzinfo

import numpy as np
import pandas as pd

import xarray as xr
from lkgp.errors import InputError

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
    """

    frame: pd.DataFrame
    time: str
    station: str | None
    places: dict[str, str]
    values: list[str]
    date_format: str | None = None
    zone: tzinfo | None = None

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
        time = time or named(columns, TIME_NAMES)
        if time is None:
            raise InputError(f"none of the columns {', '.join(columns)} looks like a time; name it with --time.")
        times, date_format, zone = as_times(frame[time], time, date_format)
        frame = frame.assign(**{time: times})
        places = {
            word: found
            for word, names in PLACE_NAMES.items()
            if (found := named(columns, names)) is not None and found != time
        }
        station = station or named(columns, STATION_NAMES)
        if station is None and "latitude" in places and "longitude" in places:
            # Stations without names are named after their coordinates.
            station = "station"
            frame = frame.assign(
                station=frame[places["latitude"]].astype(str) + " " + frame[places["longitude"]].astype(str)
            )
        if station is None and frame[time].duplicated().any():
            raise InputError(several_stations(time))
        others = {time, station, *places.values()}
        numbers = [
            column for column in columns if column not in others and pd.api.types.is_numeric_dtype(frame[column])
        ]
        chosen = list(values) or [column for column in numbers if not column.endswith(("_std", "_filled"))]
        texts = [column for column in (values or columns) if column not in {*others, *numbers}]
        if not chosen or any(column in texts for column in chosen):
            example = (
                f"; {texts[0]} contains text such as {frame[texts[0]].dropna().iloc[0]!r}"
                if texts and len(frame)
                else ""
            )
            raise InputError(f"no column to fill contains numbers with a decimal point{example}.")
        for column in chosen:
            taken = [key for key in (f"{column}_std", f"{column}_filled") if key in columns]
            if taken:
                raise InputError(
                    f"there is already a column {taken[0]!r}, perhaps because {column} was filled before; "
                    "remove it first."
                )
        if station is not None:
            frame = frame.assign(**{station: frame[station].astype(str)})
        return cls(frame, time, station, places if station is not None else {}, chosen, date_format, zone)

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

    def filled(self, result: xr.Dataset, smooth: bool = False) -> pd.DataFrame:
        """The table with all its rows, and new rows for missing cells; dates are written in their original format.

        result: NAME, NAME_std and NAME_filled for every value, over the same stations and times as `to_dataset`
        smooth: whether to replace observed values by those of the result
        """
        frame = self._filled(result, smooth)
        if self.zone is not None:
            frame[self.time] = frame[self.time].dt.tz_localize("UTC").dt.tz_convert(self.zone)
        return (
            frame
            if self.date_format is None
            else frame.assign(**{self.time: frame[self.time].dt.strftime(self.date_format)})
        )

    def _filled(self, result: xr.Dataset, smooth: bool) -> pd.DataFrame:
        if not self.is_long:
            frame = self.frame.copy()
            times = xr.DataArray(frame[self.time].to_numpy(), dims="row")
            for column in self.values:
                at = result.sel(column=column).sel({self.time: times})
                found = pd.Series(at["value"].to_numpy(), index=frame.index)
                frame[column] = joined(frame[column].astype(float), found, smooth)
                frame[f"{column}_std"], frame[f"{column}_filled"] = (
                    at["value_std"].to_numpy(),
                    at["value_filled"].to_numpy(),
                )
            return frame
        keys = [self.station, self.time]
        cells = result.to_dataframe().reset_index()
        ours = [f"{name}{ending}" for name in self.values for ending in ("", "_std", "_filled")]
        merged = self.frame.merge(cells[[*keys, *ours]], on=keys, how="outer", suffixes=("", " filled"))
        for name in self.values:
            merged[name] = joined(merged[name], merged.pop(f"{name} filled"), smooth)
        # New rows get the location of their station.
        for column in self.places.values():
            merged[column] = merged[column].fillna(merged.groupby(self.station)[column].transform("first"))
        order = pd.Categorical(merged[self.station], categories=pd.unique(self.frame[self.station]), ordered=True)
        return (
            merged.assign(**{"__order": order})
            .sort_values(["__order", self.time], kind="stable")
            .drop(columns="__order")
            .reset_index(drop=True)
        )


def several_stations(time: str) -> str:
    """What to say if a wide table has two rows of the same time."""
    return (
        f"the column {time} has repeated values, so there are several stations; "
        "name the column that identifies them with --station."
    )


def joined(given: pd.Series, found: pd.Series, smooth: bool) -> pd.Series:
    """Given values, with gaps filled by those found; with smooth, found values, with gaps filled by those given."""
    return found.fillna(given) if smooth else given.fillna(found)


def named(columns: Sequence[str], names: Sequence[str]) -> str | None:
    """The column, in any case, that has the first of these names to occur."""
    lower = {column.lower(): column for column in reversed(columns)}
    return next((lower[name] for name in names if name in lower), None)


def as_times(column: pd.Series, name: str, date_format: str | None) -> tuple[pd.Series, str | None, tzinfo | None]:
    """Times, the format of their dates if it is not ISO 8601, and their time zone.

    Dates are returned in UTC, without a zone. Numbers stay numbers, unless they look like 20190301.
    """
    if column.isna().any():
        raise InputError(
            f"the column {name} is empty in row {int(np.flatnonzero(column.isna())[0]) + 1}; every row needs a time."
        )
    if date_format is None and pd.api.types.is_integer_dtype(column) and column.between(18000101, 22001231).all():
        date_format = "%Y%m%d"
    if date_format is None and pd.api.types.is_numeric_dtype(column):
        return column, None, None
    found = column
    if not pd.api.types.is_datetime64_any_dtype(column):
        try:
            found = as_dates(column.astype(str), date_format or "ISO8601")
        except (ValueError, TypeError):
            wanted = date_format or "ISO 8601 (2019-03-01T06:00); give another format with --date-format"
            raise InputError(
                f"the column {name} contains {column.iloc[0]!r}, which is not a date in the format {wanted}."
            ) from None
    zone = found.dt.tz
    return found if zone is None else found.dt.tz_convert("UTC").dt.tz_localize(None), date_format, zone


def as_dates(texts: pd.Series, date_format: str) -> pd.Series:
    """Dates from text: with their offset from UTC if it never changes; in UTC if it does, as with summer time."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", FutureWarning)  # older versions of pandas only warn about several offsets
        try:
            return pd.to_datetime(texts, format=date_format)
        except (ValueError, FutureWarning):
            return pd.to_datetime(texts, format=date_format, utc=True)
