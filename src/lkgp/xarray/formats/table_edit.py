"""What filling changes in a table; everything that is not named here stays as it is."""

from dataclasses import dataclass, field

import numpy as np
import pandas as pd


@dataclass(frozen=True, eq=False)
class TableEdit:
    """The rows of the new table, the cells that are replaced, and the new columns.

    Rows are counted from 0. N is the number of rows of the new table.

    origin: the row of the old table that each row is, or -1 for a new row, (N,); old rows stay in their order
    copied: for new rows, the old row whose cell is copied, or -1 for an empty cell, (N,); by the name of the column
    replaced: the new number, or NaN where the old cell stays, (N,); by the name of the column
    added: new columns (N,), which come last, by name
    """

    origin: np.ndarray
    copied: dict[str, np.ndarray] = field(default_factory=dict)
    replaced: dict[str, np.ndarray] = field(default_factory=dict)
    added: dict[str, np.ndarray] = field(default_factory=dict)

    def rows_of(self, column: str) -> np.ndarray:
        """The old row from which each cell of a column is taken, or -1 for an empty cell, (N,)."""
        return np.where(self.origin < 0, self.copied.get(column, -1), self.origin)

    def apply(self, frame: pd.DataFrame) -> pd.DataFrame:
        """The new table in memory; whole numbers and truth values stay what they are next to empty cells."""
        found = []
        for i, name in enumerate(frame.columns):
            cells, rows = frame.iloc[:, i].reset_index(drop=True), self.rows_of(str(name))
            if (rows < 0).any() and cells.dtype.kind in "iub":
                cells = cells.convert_dtypes()  # to a type in which a cell can be empty
            cells = cells.reindex(rows).reset_index(drop=True)
            if str(name) in self.replaced:
                new = pd.Series(self.replaced[str(name)])
                cells = cells if new.isna().all() else new.fillna(cells.astype(float))
            found.append(cells.rename(name))
        return pd.concat([*found, *(pd.Series(values, name=name) for name, values in self.added.items())], axis=1)
