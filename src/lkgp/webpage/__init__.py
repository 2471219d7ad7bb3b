"""One self-contained page about filled fields: a map, the series of every place, and whether the error bars can be trusted."""

import base64
import html
import json
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import xarray as xr
from lkgp.persistence.atomic import write_atomically
from lkgp.xarray.field import Layout
from lkgp.xarray.model import FieldModel
from lkgp.xarray.outlook import shown
from lkgp.xarray.points import flat, unwrapped
from lkgp.xarray.validation import LEVELS, Validation
from lkgp.xarray.words import in_words

# Cells of a variable on the page, at the most; of more, only every so many times are shown.
MOST_CELLS = 3_000_000
MISSING = 65535


def write_page(path: Path, filled: Sequence[tuple[FieldModel, xr.Dataset, Validation | None]], title: str) -> None:
    """Write a page about some variables, each with its model, its filled field, and its validation."""
    data = json.dumps({"variables": [describe(*one) for one in filled]}, allow_nan=False)
    here = files("lkgp.webpage")
    # "</" would end the script that the data are in.
    parts = {"data": data.replace("</", "<\\/"), "title": html.escape(title)}
    parts |= {"style": here.joinpath("page.css").read_text(), "script": here.joinpath("page.js").read_text()}
    page = here.joinpath("page.html").read_text()
    for name, text in parts.items():
        page = page.replace("{{" + name + "}}", text)
    write_atomically(path, lambda temporary: temporary.write_text(page, encoding="utf-8"))


def describe(model: FieldModel, filled: xr.Dataset, validation: Validation | None) -> dict[str, Any]:
    """What the page needs to know about a variable."""
    layout, name = model.layout, model.name
    on_map, others = place_factor(layout)
    map_dims = on_map.dims if on_map is not None else ()
    dims = [*others, *map_dims, *([layout.time] if layout.time is not None else [])]
    thinned = thin_times(filled, layout)
    shape = [int(np.prod([filled.sizes[dim] for dim in some])) for some in (others, map_dims)]
    places = places_of(layout, on_map)
    cells, std, flag = (
        thinned[key].transpose(*dims).values.reshape(*shape, -1)[:, places["drawn"]]
        for key in (name, f"{name}_std", f"{name}_filled")
    )
    value_range, error_range = spread(cells), [0.0, float(np.nanmax(std)) or 1.0]
    full = np.isfinite(cells[0]).sum(axis=1) - 0.5 * flag[0].sum(axis=1)
    attrs = filled[name].attrs
    count, missing = int(filled[f"{name}_filled"].sum()), int(filled[name].isnull().sum())
    units = f" in {attrs['units']}" if "units" in attrs else ""
    lead = f"{attrs.get('long_name', name)}{units}: {count} of {filled[name].size} cells were filled"
    left = f", {missing} were left missing" if missing else ""
    times = times_of(thinned, layout)
    every = (
        f" Only every {filled.sizes[layout.time] // len(times)}th time is shown."
        if layout.time and len(times) < filled.sizes[layout.time]
        else ""
    )
    return {
        "name": name,
        "units": str(attrs.get("units", "")),
        "lead": f"{lead}{left}.{every}",
        "times": times,
        "positions": positions(thinned, layout),
        "places": places["list"],
        "cellSize": places["size"],
        "dots": places["dots"],
        "axes": places["axes"],
        "onEarth": on_map is not None and on_map.kind == "sphere" and places["axes"] is not None,
        "slices": slices_of(filled, others),
        "firstPlace": int(np.argmax(np.where(flag[0].any(axis=1), full, full - 1e9))),
        "range": value_range,
        "errorRange": error_range,
        "values": encoded(cells, value_range),
        "std": encoded(std, error_range),
        "filled": base64.b64encode(flag.astype("<u2").tobytes()).decode(),
        "validation": None if validation is None else table_of(validation, "comment" in filled[f"{name}_std"].attrs),
        "fitted": in_words(model),
        "report": str(model.gp.report_),
    }


def place_factor(layout: Layout) -> tuple[Any, list[str]]:
    """The factor that is drawn as a map, None where there is only time, and the dimensions of which one slice is shown at a time."""
    candidates = [factor for factor in layout.factors if layout.time not in factor.dims]
    chosen = max(candidates, key=lambda factor: (factor.kind in ("sphere", "plane"), len(factor.dims)), default=None)
    return chosen, [dim for factor in candidates if factor is not chosen for dim in factor.dims]


def places_of(layout: Layout, factor: Any) -> dict[str, Any]:
    """Where every place is drawn, what it is called, and which places are drawn: those that are somewhere."""
    field = layout.field
    if factor is None:  # a series is at one place, wherever that is
        return {
            "drawn": [0],
            "list": [{"x": 0.0, "y": 0.0, "label": str(field.name)}],
            "size": [1.0, 1.0],
            "axes": None,
            "dots": False,
        }
    sizes = {dim: field.sizes[dim] for dim in factor.dims}
    index = np.indices(list(sizes.values())).reshape(len(sizes), -1)
    columns = flat(factor, field.coords)
    drawn = np.flatnonzero(~np.any([pd.isna(column) for column in columns[:2]], axis=0))
    index, columns = index[:, drawn], [column[drawn] for column in columns]
    labels = [
        ", ".join(f"{name} {shown(values[i])}" for name, values in zip(factor.coords, columns, strict=True))
        for i in range(len(drawn))
    ]
    if len(factor.dims) == 1 and factor.kind == "sphere" and factor.dims[0] in field.coords:
        names = field[factor.dims[0]].values[drawn]
        labels = [f"{shown(name)} ({label})" for name, label in zip(names, labels, strict=True)]
    size, axes, dots = [1.0, 1.0], None, False
    if factor.kind == "sphere":
        x, y, axes = unwrapped(columns[1].astype(float)), columns[0].astype(float), [factor.coords[1], factor.coords[0]]
        dots = len(factor.dims) == 1
        if all(field[name].ndim == 1 for name in factor.coords[:2]) and not dots:
            size = [step(x), step(y)]
        elif not dots:  # a grid that is not one of latitudes and longitudes is drawn by its rows and columns
            x, y, axes = index[1].astype(float), -index[0].astype(float), None
        else:
            size = [max(float(np.ptp(x)), 1e-3) / 12, max(float(np.ptp(y)), 1e-3) / 12]
    elif factor.kind == "plane" and len(factor.dims) == 2:
        y, x = columns[0].astype(float), columns[1].astype(float)
        size, axes = [step(x), step(y)], [factor.coords[1], factor.coords[0]]
    else:
        x, y = np.arange(index.shape[1], dtype=float), np.zeros(index.shape[1])
    return {
        "drawn": drawn,
        "list": [{"x": float(a), "y": float(b), "label": text} for a, b, text in zip(x, y, labels, strict=True)],
        "size": size,
        "axes": axes,
        "dots": dots,
    }


def step(x: np.ndarray) -> float:
    """The distance of neighbours along an axis."""
    unique = np.unique(x)
    return float(np.median(np.diff(unique))) if len(unique) > 1 else 1.0


def thin_times(filled: xr.Dataset, layout: Layout) -> xr.Dataset:
    every = -(-max(variable.size for variable in filled.data_vars.values()) // MOST_CELLS)
    return filled if every == 1 or layout.time is None else filled.isel({layout.time: slice(None, None, every)})


def times_of(filled: xr.Dataset, layout: Layout) -> list[str]:
    """The dates, as short as they can be."""
    if layout.time is None:
        return [""]
    values = filled[layout.time].values
    if values.dtype.kind == "M":
        texts = np.datetime_as_string(values, unit="m").tolist()
    elif values.dtype.kind in "fiu":
        return [shown(value) for value in values]
    else:
        texts = [str(value)[:16].replace(" ", "T") for value in values]
    whole_days = all(text.endswith("T00:00") for text in texts)
    return [text[:10] if whole_days else text.replace("T", " ") for text in texts]


def positions(filled: xr.Dataset, layout: Layout) -> list[float]:
    """Where every time lies between the first (0) and the last (1)."""
    if layout.time is None or filled.sizes[layout.time] < 2:
        return [0.0]
    ruler = next(ruler for ruler in layout.rulers if ruler.factor.kind == "time")
    x = ruler.measure(filled.coords)[:, 0]
    return np.round((x - x.min()) / (np.ptp(x) or 1.0), 6).tolist()


def slices_of(filled: xr.Dataset, dims: Sequence[str]) -> list[str]:
    """Names of the combinations along the dimensions that are not on the map."""
    sizes = [filled.sizes[dim] for dim in dims]
    return [
        ", ".join(f"{dim} {shown(filled[dim].values[i])}" for dim, i in zip(dims, at, strict=True))
        for at in np.ndindex(*sizes)
    ]


def spread(cells: np.ndarray) -> list[float]:
    low, high = float(np.nanmin(cells)), float(np.nanmax(cells))
    return [low, high if high > low else low + 1.0]


def encoded(cells: np.ndarray, limits: Sequence[float]) -> str:
    """Numbers between limits as 16-bit integers, in base64."""
    codes = np.round(
        (np.nan_to_num(cells.astype(float), nan=limits[0]) - limits[0]) / (limits[1] - limits[0]) * (MISSING - 1)
    )
    return base64.b64encode(np.where(np.isnan(cells), MISSING, codes).astype("<u2").tobytes()).decode()


def table_of(validation: Validation, calibrated: bool) -> dict[str, Any]:
    """The scores, as text, and the calibration; calibrated: whether the error bars of the field were multiplied by its factor."""
    rows = [
        [
            way,
            f"{row['rmse']:.4g}",
            f"{row['nll']:.3f}",
            f"{row['crps']:.4g}",
            *(f"{row[f'in_{level:.0%}']:.1%}" for level in LEVELS),
        ]
        for way, row in validation.scores.items()
    ]
    so_wide = ", and that is how wide those of the filled field are" if calibrated else ""
    words = (
        f"{validation.withheld} observed values were withheld ({validation.how}) and predicted from the others. The simpler ways have "
        "error bars as wide as their errors turned out to be, which they could not have known. 95 % intervals hold 95 % of the withheld "
        f"values with error bars {validation.factor:.2f} times as wide{so_wide}."
    )
    columns = [
        "",
        f"RMSE{' in ' + validation.units if validation.units else ''}",
        "NLL",
        "CRPS",
        *(f"in {level:.0%}" for level in LEVELS),
    ]
    return {"words": words, "columns": columns, "rows": rows, "calibration": validation.calibration}
