"""Tables as text, with commas, tabs or other separators."""

import csv
from collections.abc import Collection
from pathlib import Path

import pandas as pd

from lkgp.xarray.formats.base import TableFormat, register

# What stands for a missing value in columns of numbers; in a column of names, each of these may be a name.
MISSING = ["", "NA", "N/A", "n/a", "NaN", "nan", "null", "NULL", "None", "<NA>", "#N/A", "-"]


class CSV(TableFormat):
    name = "CSV"
    endings = (".csv", ".tsv", ".txt")

    def read(self, path: Path, text_columns: Collection[str]) -> pd.DataFrame:
        # None lets pandas detect the separator, which only its Python engine can.
        separator = "\t" if is_tab_separated(path) else None
        try:
            columns = pd.read_csv(path, sep=separator, engine="python", nrows=0).columns
            texts = [column for column in columns if column.lower() in text_columns]
            return pd.read_csv(
                path,
                sep=separator,
                engine="python",
                dtype=dict.fromkeys(texts, str),
                keep_default_na=False,
                na_values={column: MISSING for column in columns if column not in texts},
            )
        except csv.Error as error:
            raise ValueError(str(error)) from None

    def write(self, frame: pd.DataFrame, path: Path) -> None:
        frame.to_csv(path, index=False, sep="\t" if is_tab_separated(path) else ",")


def is_tab_separated(path: Path) -> bool:
    return ".tsv" in path.suffixes


register(CSV())
