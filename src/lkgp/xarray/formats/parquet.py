"""Parquet tables."""

from collections.abc import Collection
from pathlib import Path

import pandas as pd

from lkgp.xarray.formats.base import TableFormat, register


class Parquet(TableFormat):
    name = "Parquet"
    endings = (".parquet", ".pq")
    package = "pyarrow"

    def read(self, path: Path, text_columns: Collection[str]) -> pd.DataFrame:
        """Columns have the types with which they were written, so that text is text already."""
        return pd.read_parquet(path)

    def write(self, frame: pd.DataFrame, path: Path) -> None:
        frame.to_parquet(path, index=False)


register(Parquet())
