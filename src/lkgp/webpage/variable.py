"""The data of one variable on the page, as plain values for JSON."""

import base64
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

import xarray as xr
from lkgp.webpage.places import choose_map_factor, map_places
from lkgp.xarray.layout import Layout
from lkgp.xarray.model import FieldModel
from lkgp.xarray.preview import format_label
from lkgp.xarray.summary import summarize
from lkgp.xarray.validation import LEVELS, Validation

# A variable with more cells than this is thinned out in time: each cell takes about 8 bytes in the file, three 16-bit
# numbers in base64.
MAX_CELLS = 3_000_000
# A map with more rows or columns than this is thinned out along both: more would not be seen on a screen, where a map
# is at most 760 pixels wide. A map of this size takes half a megabyte in the file.
MAX_MAP_SIDE = 250
# The percentiles of the shown cells between which colours change, so that a few extreme cells leave the others apart.
COLOUR_PERCENTILES = (2.0, 98.0)
# The code of a missing value; page.js knows it too.
MISSING = 65535


def variable_data(model: FieldModel, filled: xr.Dataset, validation: Validation | None) -> dict[str, Any]:
    """What the page shows of a variable."""
    layout, name = model.layout, model.name
    map_factor, slice_dims = choose_map_factor(layout)
    map_dims = map_factor.dims if map_factor is not None else ()
    time_dims = (layout.time,) if layout.time is not None else ()
    every = map_stride(filled, map_dims)
    thinned = thin_times(filled.isel(every), layout)
    place_map = map_places(replace(layout, field=layout.field.isel(every)), map_factor)
    # Every array as (slices, places, times).
    shape = [int(np.prod([thinned.sizes[dim] for dim in dims])) for dims in (slice_dims, map_dims)]
    cells, std, flags = (
        thinned[key].transpose(*slice_dims, *map_dims, *time_dims).values.reshape(*shape, -1)[:, place_map.drawn]
        for key in (name, f"{name}_std", f"{name}_filled")
    )
    value_range, error_range = finite_range(cells), (0.0, float(np.nanmax(std)) or 1.0)
    limits, error_limits = colour_limits(cells), colour_limits(std)
    calibrated = "comment" in filled[f"{name}_std"].attrs
    return {
        "name": name,
        "units": str(filled[name].attrs.get("units", "")),
        "lead": " ".join([lead_sentence(filled, name), *shown_sentences(filled, thinned, layout, map_dims)]),
        "times": format_times(thinned, layout),
        "positions": time_positions(thinned, layout),
        "places": place_map.places if place_map.grid is None else None,
        "grid": place_map.grid,
        "cellSize": place_map.cell_size,
        "dots": place_map.dots,
        "axes": place_map.axes,
        "onEarth": map_factor is not None and map_factor.kind == "sphere" and place_map.axes is not None,
        "sameScale": place_map.same_scale,
        "slices": slice_labels(filled, slice_dims),
        "firstPlace": first_place(cells[0], flags[0]),
        "range": value_range,
        "errorRange": error_range,
        "limits": limits,
        "errorLimits": error_limits,
        "beyond": beyond(cells, limits),
        "errorBeyond": beyond(std, error_limits),
        "values": encode_cells(cells, value_range),
        "std": encode_cells(std, error_range),
        "filled": base64.b64encode(flags.astype("<u2").tobytes()).decode(),
        "validation": None if validation is None else validation_data(validation, calibrated),
        "summary": summarize(model),
        "report": str(model.gp.report_),
    }


def lead_sentence(filled: xr.Dataset, name: str) -> str:
    """What was filled."""
    attrs, size = filled[name].attrs, filled[name].size
    units = f" in {attrs['units']}" if "units" in attrs else ""
    count, missing = int(filled[f"{name}_filled"].sum()), int(filled[name].isnull().sum())
    remaining = f" and {missing} are still missing" if missing else ""
    return f"{attrs.get('long_name', name)}{units}: {count} of {size} cells were filled{remaining}."


def shown_sentences(filled: xr.Dataset, thinned: xr.Dataset, layout: Layout, map_dims: Sequence[str]) -> list[str]:
    """What of the field is shown, if it is not all of it.

    thinned: the part that is shown
    """
    found = []
    sizes = [(str(dim), filled.sizes[dim], thinned.sizes[dim]) for dim in map_dims]
    if any(shown < size for _, size, shown in sizes):
        shown = " x ".join(f"{shown} of {size} along {dim}" for dim, size, shown in sizes)
        found.append(f"The map shows every so many cells only, {shown}; the file has all of them.")
    if layout.time is not None and thinned.sizes[layout.time] < filled.sizes[layout.time]:
        found.append(f"One time in {-(-filled.sizes[layout.time] // thinned.sizes[layout.time])} is shown.")
    return found


def first_place(cells: np.ndarray, flags: np.ndarray) -> int:
    """The place that is shown at first: the one with the most observed values among those with filled cells.

    cells, flags: of the first slice, (places, times)
    """
    observed = np.isfinite(cells).sum(axis=1) - 0.5 * flags.sum(axis=1)
    return int(np.argmax(np.where(flags.any(axis=1), observed, observed - 1e9)))


def map_stride(filled: xr.Dataset, map_dims: Sequence[str]) -> dict[str, slice]:
    """Every which row and column of a map are shown, the same along both; nothing for stations, which are all shown."""
    if len(map_dims) < 2:
        return {}
    every = -(-max(filled.sizes[dim] for dim in map_dims) // MAX_MAP_SIDE)
    return {dim: slice(None, None, min(every, filled.sizes[dim])) for dim in map_dims}


def thin_times(filled: xr.Dataset, layout: Layout) -> xr.Dataset:
    """The dataset with every so many times only, if it is too large for a page."""
    every = -(-max(variable.size for variable in filled.data_vars.values()) // MAX_CELLS)
    return filled if every == 1 or layout.time is None else filled.isel({layout.time: slice(None, None, every)})


def format_times(filled: xr.Dataset, layout: Layout) -> list[str]:
    """The times as text, without the hour if all of them are midnight."""
    if layout.time is None:
        return [""]
    values = filled[layout.time].values
    if values.dtype.kind == "M":
        texts = np.datetime_as_string(values, unit="m").tolist()
    elif values.dtype.kind in "fiu":
        return [format_label(value) for value in values]
    else:
        texts = [str(value)[:16].replace(" ", "T") for value in values]
    whole_days = all(text.endswith("T00:00") for text in texts)
    return [text[:10] if whole_days else text.replace("T", " ") for text in texts]


def time_positions(filled: xr.Dataset, layout: Layout) -> list[float]:
    """Where every time lies between the first (0) and the last (1)."""
    if layout.time is None or filled.sizes[layout.time] < 2:
        return [0.0]
    scaling = next(scaling for scaling in layout.scalings if scaling.factor.kind == "time")
    x = scaling.to_points(filled.coords)[:, 0]
    return np.round((x - x.min()) / (np.ptp(x) or 1.0), 6).tolist()


def slice_labels(filled: xr.Dataset, dims: Sequence[str]) -> list[str]:
    """Labels of the combinations along the dimensions that are not on the map."""
    return [
        ", ".join(f"{dim} {format_label(filled[dim].values[i])}" for dim, i in zip(dims, index, strict=True))
        for index in np.ndindex(*(filled.sizes[dim] for dim in dims))
    ]


def finite_range(cells: np.ndarray) -> tuple[float, float]:
    """The smallest and the largest value, or an interval of length one above them if they are equal."""
    low, high = float(np.nanmin(cells)), float(np.nanmax(cells))
    return low, high if high > low else low + 1.0


def colour_limits(cells: np.ndarray) -> tuple[float, float]:
    """The values at the ends of the colour scale: percentiles, or the whole range if those are equal."""
    low, high = (float(limit) for limit in np.nanpercentile(cells, COLOUR_PERCENTILES))
    return (low, high) if high > low else finite_range(cells)


def beyond(cells: np.ndarray, limits: tuple[float, float]) -> tuple[bool, bool]:
    """Whether some cells are below, and some above, the ends of the colour scale."""
    return bool(np.nanmin(cells) < limits[0]), bool(np.nanmax(cells) > limits[1])


def encode_cells(cells: np.ndarray, limits: tuple[float, float]) -> str:
    """Numbers between two limits as 16-bit integers, in base64; NaN as MISSING."""
    low, high = limits
    codes = np.round((np.nan_to_num(cells.astype(float), nan=low) - low) / (high - low) * (MISSING - 1))
    return base64.b64encode(np.where(np.isnan(cells), MISSING, codes).astype("<u2").tobytes()).decode()


def validation_data(validation: Validation, calibrated: bool) -> dict[str, Any]:
    """The table of scores and the calibration curve.

    calibrated: whether the error bars of the filled field were multiplied by the factor
    """
    rows = [
        [
            method,
            f"{row['rmse']:.4g}",
            f"{row['nll']:.3f}",
            f"{row['crps']:.4g}",
            *(f"{row[f'in_{level:.0%}']:.1%}" for level in LEVELS),
        ]
        for method, row in validation.scores.items()
    ]
    applied = " The error bars of the filled field have been multiplied by this factor." if calibrated else ""
    text = (
        f"{validation.withheld} observed values were withheld ({validation.how}) and predicted from the others. The "
        "error bars of the baselines are as wide as their errors turned out to be, which favours them. With error bars "
        f"{validation.factor:.2f} times as wide, 95 % intervals contain 95 % of the withheld values.{applied}"
    )
    units = f" in {validation.units}" if validation.units else ""
    columns = ["", f"RMSE{units}", "NLL", "CRPS", *(f"within {level:.0%}" for level in LEVELS)]
    return {"text": text, "columns": columns, "rows": rows, "calibration": validation.calibration}
