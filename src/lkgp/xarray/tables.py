"""Tables of measurements, long or wide, as labelled fields, and back with all their rows.

A long table has a row a measurement: a station, a date, a value, and perhaps where the station is. A wide one has a row a date and a
column a station.
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
    """A table, and which of its columns is what.

    time, station: names of columns; station is None in a wide table, whose stations are its value columns
    places: columns with latitude, longitude and height, by these words
    values: columns to fill
    date_format: of the dates in the file, where they are not as ISO 8601 writes them
    zone: the offset from UTC, or the time zone, that the dates in the file have; None where they have none
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
        """Rows that name the same station and time as one before them."""
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
        """Find out what the columns are, as far as the caller has not said."""
        columns = [str(column) for column in frame.columns]
        frame = frame.set_axis(columns, axis=1)
        for given in (time, station, *values):
            if given is not None and given not in columns:
                raise InputError(f"there is no column {given!r}; there are {', '.join(columns)}.")
        time = time or named(columns, TIME_NAMES)
        if time is None:
            raise InputError(f"no column looks like time among {', '.join(columns)}; name it with --time.")
        times, date_format, zone = as_times(frame[time], time, date_format)
        frame = frame.assign(**{time: times})
        places = {
            word: found
            for word, names in PLACE_NAMES.items()
            if (found := named(columns, names)) is not None and found != time
        }
        station = station or named(columns, STATION_NAMES)
        if station is None and "latitude" in places and "longitude" in places:
            # Places without names are named by where they are.
            station = "station"
            frame = frame.assign(
                station=frame[places["latitude"]].astype(str) + " " + frame[places["longitude"]].astype(str)
            )
        if station is None and frame[time].duplicated().any():
            raise InputError(
                f"{time} repeats, so there are several stations; name the column that tells them apart with --station."
            )
        others = {time, station, *places.values()}
        numbers = [
            column for column in columns if column not in others and pd.api.types.is_numeric_dtype(frame[column])
        ]
        chosen = list(values) or [column for column in numbers if not column.endswith(("_std", "_filled"))]
        texts = [column for column in (values or columns) if column not in {*others, *numbers}]
        if not chosen or any(column in texts for column in chosen):
            example = (
                f"; {texts[0]} holds text such as {frame[texts[0]].dropna().iloc[0]!r}" if texts and len(frame) else ""
            )
            raise InputError(f"no column to fill holds numbers with a decimal point{example}.")
        for column in chosen:
            taken = [key for key in (f"{column}_std", f"{column}_filled") if key in columns]
            if taken:
                raise InputError(
                    f"there is a column {taken[0]!r} already, perhaps because {column} was filled before; drop it first."
                )
        if station is not None:
            frame = frame.assign(**{station: frame[station].astype(str)})
        return cls(frame, time, station, places if station is not None else {}, chosen, date_format, zone)

    def to_dataset(self) -> xr.Dataset:
        """The values over stations and times; repeated rows are averaged."""
        if not self.is_long:
            wide = self.frame.set_index(self.time)[self.values]
            if wide.index.duplicated().any():
                raise InputError(
                    f"{self.time} repeats, so there are several stations; name the column that tells them apart with --station."
                )
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
                    f"the {column} of the station {moving.idxmax()!r} is not always the same; a station must stay where it is."
                )
            known = by_station.first().reindex(dataset[self.station].values)
            if known.isna().any():
                if word == "height":
                    continue  # heights are welcome, but not needed
                raise InputError(f"the {column} of the station {known.index[known.isna()][0]!r} is missing.")
            where[column] = (self.station, known.to_numpy(float), PLACE_ATTRS[word])
        return dataset.assign_coords(where)

    def filled(self, result: xr.Dataset, smooth: bool = False) -> pd.DataFrame:
        """The table with all its rows, and rows for the cells it lacked; dates are written as they were.

        result: NAME, NAME_std and NAME_filled for every value, over the same stations and times as `to_dataset`
        smooth: whether values that were given, too, are replaced by those of the result
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
        # Rows that are new have the place of their station.
        for column in self.places.values():
            merged[column] = merged[column].fillna(merged.groupby(self.station)[column].transform("first"))
        order = pd.Categorical(merged[self.station], categories=pd.unique(self.frame[self.station]), ordered=True)
        return (
            merged.assign(**{"__order": order})
            .sort_values(["__order", self.time], kind="stable")
            .drop(columns="__order")
            .reset_index(drop=True)
        )


def joined(given: pd.Series, found: pd.Series, smooth: bool) -> pd.Series:
    """What was given, and what was found where nothing was; with smooth, what was found wherever there is something."""
    return found.fillna(given) if smooth else given.fillna(found)


def named(columns: Sequence[str], names: Sequence[str]) -> str | None:
    """The first column that has one of the names."""
    lower = {column.lower(): column for column in reversed(columns)}
    return next((lower[name] for name in names if name in lower), None)


def as_times(column: pd.Series, name: str, date_format: str | None) -> tuple[pd.Series, str | None, tzinfo | None]:
    """Times, the format of their dates if that is not ISO 8601, and their time zone.

    Dates are in UTC, without a zone; numbers stay numbers, unless they look like 20190301.
    """
    if column.isna().any():
        raise InputError(
            f"the column {name} is empty in row {int(np.flatnonzero(column.isna())[0]) + 1}; every row needs its time."
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
            iso = "as ISO 8601 writes them (2019-03-01T06:00); name the form of these with --date-format"
            wanted = f"of the form {date_format}" if date_format else iso
            raise InputError(f"the column {name} holds {column.iloc[0]!r}, but dates are needed {wanted}.") from None
    zone = found.dt.tz
    return found if zone is None else found.dt.tz_convert("UTC").dt.tz_localize(None), date_format, zone


def as_dates(texts: pd.Series, form: str) -> pd.Series:
    """Dates from text, with its offset from UTC if that is always the same, and in UTC if it is not, as with summer time."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", FutureWarning)  # which is what older versions of pandas do about several offsets
        try:
            return pd.to_datetime(texts, format=form)
        except (ValueError, FutureWarning):
            return pd.to_datetime(texts, format=form, utc=True)
