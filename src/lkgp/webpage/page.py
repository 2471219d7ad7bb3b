"""Write the page: one HTML file with its style, its script and all data inside."""

import html
import json
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path

import xarray as xr
from lkgp.persistence.atomic import write_atomically
from lkgp.webpage.variable import variable_data
from lkgp.xarray.model import FieldModel
from lkgp.xarray.validation import Validation


def write_page(path: Path, variables: Sequence[tuple[FieldModel, xr.Dataset, Validation | None]], title: str) -> None:
    """Write a page about one or more variables.

    variables: for each variable its model, the filled dataset, and its validation if there is one
    """
    data = json.dumps({"variables": [variable_data(*variable) for variable in variables]}, allow_nan=False)
    resources = files("lkgp.webpage")
    # "</" would end the script element that holds the data.
    parts = {"data": data.replace("</", "<\\/"), "title": html.escape(title)}
    parts |= {"style": resources.joinpath("page.css").read_text(), "script": resources.joinpath("page.js").read_text()}
    page = resources.joinpath("page.html").read_text()
    for name, text in parts.items():
        page = page.replace("{{" + name + "}}", text)
    write_atomically(path, lambda temporary: temporary.write_text(page, encoding="utf-8"))
