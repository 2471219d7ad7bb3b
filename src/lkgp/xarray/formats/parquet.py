"""Parquet tables."""

import json
import re
from collections.abc import Collection
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

try:
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq
except ModuleNotFoundError:  # which is told when a file is read or written
    pa = pc = pq = None

from lkgp.xarray.formats.base import OpenTable, TableFormat, register
from lkgp.xarray.formats.table_edit import TableEdit

# The names that pandas gives to columns that hold an index without a name; they are no data.
UNNAMED_INDEX = re.compile(r"__index_level_\d+__")
# Whole numbers up to this size are exact as floating-point numbers.
EXACT = 2**53
# Codecs that have another name when a file is written; what cannot be written is replaced by the usual codec.
CODECS = {"UNCOMPRESSED": "NONE", "LZ4_RAW": "LZ4", "LZO": "SNAPPY"}


class Parquet(TableFormat):
    name = "Parquet"
    endings = (".parquet", ".pq")
    package = "pyarrow"

    def open(self, path: Path, text_columns: Collection[str], number_columns: Collection[str]) -> OpenTable:
        """Columns have the types with which they were written, so that text is text already."""
        table = pq.read_table(path)
        storage: dict[str, Any] = {}
        if path.is_file():
            metadata = pq.read_metadata(path)
            groups = [metadata.row_group(i) for i in range(metadata.num_row_groups)]
            if groups:
                columns = [groups[0].column(i) for i in range(groups[0].num_columns)]
                codecs = {one.path_in_schema: CODECS.get(one.compression, one.compression) for one in columns}
                storage = {"compression": codecs, "row_group_size": max(group.num_rows for group in groups) or None}
        return ParquetTable(self, table, storage)

    def read(self, path: Path, text_columns: Collection[str]) -> pd.DataFrame:
        return pd.read_parquet(path)

    def write(self, frame: pd.DataFrame, path: Path) -> None:
        frame.to_parquet(path, index=False)


class ParquetTable(OpenTable):
    """A table whose columns keep their types, as they are in Arrow.

    table: a pyarrow.Table; storage: the codec of each column, and the number of rows that are stored together
    """

    def __init__(self, file_format: TableFormat, table: Any, storage: dict[str, Any]) -> None:
        shown = [i for i, name in enumerate(table.column_names) if not UNNAMED_INDEX.fullmatch(name)]
        frame = table.select(shown).to_pandas(ignore_metadata=True, types_mapper=nullable_integer)
        super().__init__(file_format, frame)
        self.table, self.storage = table, storage

    def write(self, edit: TableEdit, path: Path) -> None:
        fields, columns = [], []
        for field, old in zip(self.table.schema, self.table.columns, strict=True):
            rows = edit.rows_of(field.name)
            column = old.take(pa.array(rows, mask=rows < 0)) if (edit.origin < 0).any() else old
            if field.name in edit.replaced:
                column = with_numbers(column, edit.replaced[field.name])
            fields.append(field.with_type(column.type).with_nullable(field.nullable or column.null_count > 0))
            columns.append(column)
        for name, values in edit.added.items():
            columns.append(pa.chunked_array([pa.array(values, from_pandas=True)]))
            fields.append(pa.field(name, columns[-1].type))
        schema = pa.schema(fields, metadata=self.table.schema.metadata)
        new = pa.Table.from_arrays(columns, schema=with_pandas_metadata(schema, len(edit.origin), edit))
        storage = dict(self.storage)
        if storage:
            usual = next(iter(storage["compression"].values()))
            storage["compression"] = {**storage["compression"], **dict.fromkeys(edit.added, usual)}
        pq.write_table(
            new, path, compression=storage.get("compression", "snappy"), row_group_size=storage.get("row_group_size")
        )


def nullable_integer(kind: Any) -> Any:
    """The type in pandas of a column of whole numbers, of which some may be missing; None for other columns."""
    return pd.ArrowDtype(kind) if pa.types.is_integer(kind) else None


def with_numbers(column: Any, values: np.ndarray) -> Any:
    """A column with some numbers replaced; values: (N,), NaN where the column stays as it is.

    Whole numbers become floating-point numbers where that changes none of them; otherwise the new numbers are rounded.
    """
    there = ~np.isnan(values)
    if not there.any():
        return column
    kind = column.type
    if pa.types.is_integer(kind):
        extremes = [value for value in pc.min_max(column).as_py().values() if value is not None]
        if all(abs(value) <= EXACT for value in extremes):
            kind = pa.float64()
        else:
            values = np.rint(values)
    new = pa.array(np.where(there, values, 0.0)).cast(kind, safe=False)
    return pc.if_else(pa.array(there), new, column.cast(kind))


def with_pandas_metadata(schema: Any, rows: int, edit: TableEdit) -> Any:
    """The schema in which the notes of pandas on the columns, if there are any, agree with the edited table."""
    metadata = dict(schema.metadata or {})
    if b"pandas" not in metadata:
        return schema
    notes = json.loads(metadata[b"pandas"])
    for index in notes.get("index_columns", []):
        if isinstance(index, dict) and index.get("kind") == "range":
            index["stop"] = index["start"] + index["step"] * rows
    types = {field.name: str(field.type).replace("double", "float64") for field in schema}
    for note in notes.get("columns", []):
        name = note.get("field_name")
        if name in edit.replaced and types[name] != note.get("pandas_type"):
            note["pandas_type"] = note["numpy_type"] = types[name]
    notes["columns"] = notes.get("columns", []) + [
        {"name": name, "field_name": name, "pandas_type": types[name], "numpy_type": types[name], "metadata": None}
        for name in edit.added
    ]
    return schema.with_metadata({**metadata, b"pandas": json.dumps(notes).encode()})


register(Parquet())
