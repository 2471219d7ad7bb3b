"""File formats of gridded fields and of tables, one module per format.

A new format is one new module in this package. It derives from `FieldFormat` or `TableFormat` and registers itself:

    class Toy(TableFormat):
        name = "Toy"
        endings = (".toy",)

        def read(self, path, text_columns): ...
        def write(self, frame, path): ...

    register(Toy())

Every module of the package is imported here, so that no other file needs to change. Programs may also call `register`.
"""

import importlib
import pkgutil

from lkgp.xarray.formats.base import FieldFormat, FileFormat, OpenTable, TableFormat, find_format, is_table, register

__all__ = ["FieldFormat", "FileFormat", "OpenTable", "TableFormat", "discover", "find_format", "is_table", "register"]


def discover() -> None:
    """Import every module of this package, so that the formats in them are registered."""
    for module in pkgutil.iter_modules(__path__):
        importlib.import_module(f"{__name__}.{module.name}")


discover()
