"""The page about a filled field, in a real browser where there is one."""

import base64
import html
import json
import re
import shutil
import subprocess

import numpy as np
import pandas as pd
import pytest
from fields import small_field

import lkgp.xarray
import xarray as xr
from lkgp import plots
from lkgp.errors import InputError
from lkgp.webpage import variable, write_page
from lkgp.webpage.places import choose_map_factor, map_places
from lkgp.webpage.variable import variable_data
from lkgp.xarray.factors import choose_factors
from lkgp.xarray.geography import unwrap_longitude
from lkgp.xarray.layout import Layout

# Moves the slider, changes the layer, clicks a place, and writes into the page what came of it.
ACT = """
<script>
const seen = { errors: [] };
window.addEventListener("error", (e) => seen.errors.push(e.message));
const picture = (id) => document.getElementById(id).toDataURL();
function act() {
  const slider = document.getElementById("time"), map = document.getElementById("map");
  const box = map.getBoundingClientRect();
  seen.places = current().places.length;
  const [map0, series0, place0] = [picture("map"), picture("series"), document.body.dataset.place];
  slider.value = Number(slider.max) - 1;
  slider.dispatchEvent(new Event("input"));
  seen.time = document.body.dataset.time;
  seen.when = document.getElementById("when").textContent;
  seen.mapMoved = picture("map") !== map0;
  const map1 = picture("map");
  document.querySelector("[data-layer=std]").click();
  seen.layerChanged = picture("map") !== map1;
  const series1 = picture("series");
  const wanted = (Number(place0) + 3) % current().places.length, place = current().places[wanted];
  const p = projection(current()), sx = box.width / map.width, sy = box.height / map.height;
  const at = { clientX: box.left + p.x(place.x) * sx, clientY: box.top + p.y(place.y) * sy };
  map.dispatchEvent(new MouseEvent("click", { ...at, bubbles: true }));
  seen.clicked = Number(document.body.dataset.place) === wanted;
  seen.seriesDrawn = picture("series") !== series1;
  seen.label = document.getElementById("place").textContent;
  seen.rows = document.querySelectorAll("#scores tbody tr").length;
  seen.value = value(current(), cell(current(), wanted, state.time));
}
try { act(); } catch (e) { seen.errors.push(String(e)); }
const report = JSON.stringify(seen).replaceAll("<", "&lt;");
document.body.insertAdjacentHTML("beforeend", "<pre id='seen'>" + report + "</pre>");
</script>
"""


# Clicks a cell of each map of a page without time, and writes into the page what came of it.
ACT_ON_ONE_MAP = """
<script>
const seen = { errors: [] };
window.addEventListener("error", (e) => seen.errors.push(e.message));
function act() {
  const hidden = (id) => byId(id).hidden;
  seen.hidden = ["over-time", "layers", "time-choice", "controls", "one-map"].map(hidden);
  seen.pictures = ["filled", "std", "where"].map((layer) => byId("map-" + layer).toDataURL());
  seen.width = document.documentElement.scrollWidth;
  seen.window = window.innerWidth;
  seen.sizes = ["filled", "std", "where"].map((layer) => {
    const canvas = byId("map-" + layer), p = projection(current(), canvas);
    return [canvas.width, canvas.height, p.sx, p.sy];
  });
  seen.colours = [current().limits, current().errorLimits];
  seen.readings = ["filled", "std", "where"].map((layer, k) => {
    const canvas = byId("map-" + layer), box = canvas.getBoundingClientRect(), wanted = 7 + 5 * k;
    const p = projection(current(), canvas), place = current().places[wanted];
    const sx = box.width / canvas.width, sy = box.height / canvas.height;
    const at = { clientX: box.left + p.x(place.x) * sx, clientY: box.top + p.y(place.y) * sy };
    canvas.dispatchEvent(new MouseEvent("click", { ...at, bubbles: true }));
    return [byId("reading").textContent, Number(document.body.dataset.place) === wanted];
  });
}
try { act(); } catch (e) { seen.errors.push(String(e)); }
const report = JSON.stringify(seen).replaceAll("<", "&lt;");
document.body.insertAdjacentHTML("beforeend", "<pre id='seen'>" + report + "</pre>");
</script>
"""


@pytest.fixture(scope="module")
def filled():
    field = small_field(places=(3, 4), times=30)
    model = lkgp.xarray.fit(field)
    return model, model.fill(field), model.validate()


def look_at(path, tmp_path, act=ACT, width=1440):
    """Open a page in a browser, act on it, and return what was seen and what the console said.

    width: of the window, in pixels
    """
    browser = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if browser is None:
        pytest.skip("no browser is installed; Debian's package is chromium")
    acted = tmp_path / "acted.html"
    acted.write_text(path.read_text().replace("</body>", act + "</body>"))
    flags = [
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--no-first-run",
        "--disable-background-networking",
        "--disable-sync",
    ]
    flags += [
        "--disable-component-update",
        f"--window-size={width},900",
        f"--user-data-dir={tmp_path / 'browser'}",
        "--enable-logging=stderr",
        "--dump-dom",
    ]
    done = subprocess.run([browser, *flags, acted.as_uri()], capture_output=True, text=True, check=True)
    seen = re.search(r"<pre id=\"seen\">(.*?)</pre>", done.stdout, re.DOTALL)
    assert seen, done.stdout[-2000:] + done.stderr[-2000:]
    return json.loads(html.unescape(seen[1])), [line for line in done.stderr.splitlines() if "CONSOLE" in line]


def test_the_page_works_in_a_browser(filled, tmp_path):
    path = tmp_path / "page.html"
    write_page(path, [filled], title="a <small> file")
    text = path.read_text()
    assert "http://" not in text
    assert "https://" not in text
    seen, console = look_at(path, tmp_path)
    assert seen["errors"] == []
    assert console == []
    assert seen["time"] == "28"
    assert seen["when"] == "2019-03-03 08:00"
    for what in ("mapMoved", "layerChanged", "clicked", "seriesDrawn"):
        assert seen[what], what
    assert re.match(r"latitude [\d.]+, longitude [-\d.]+", seen["label"])
    assert seen["rows"] == 4
    assert seen["places"] == 12


def test_stations_and_slices_are_drawn_too(tmp_path):
    rng = np.random.default_rng(0)
    values = (
        np.sin(np.arange(12) / 3)[None, :, None]
        + rng.standard_normal((5, 1, 2))
        + 0.1 * rng.standard_normal((5, 12, 2))
    )
    values[rng.random(values.shape) < 0.3] = np.nan
    array = xr.DataArray(
        values,
        dims=("station", "time", "level"),
        coords={
            "lat": ("station", rng.uniform(50, 52, 5)),
            "lon": ("station", [359.0, 359.5, 0.2, 1.0, 1.5]),
            "station": list("abcde"),
            "time": pd.date_range("2020", periods=12),
            "level": [1.0, 5.0],
        },
        name="v",
    )
    model = lkgp.xarray.fit(array)
    path = tmp_path / "page.html"
    page = model.fill(array)
    write_page(path, [(model, page, None)], title="stations")
    described = variable_data(model, page, None)
    assert described["slices"] == ["level 1", "level 5"]
    assert described["dots"]
    assert max(p["x"] for p in described["places"]) - min(p["x"] for p in described["places"]) < 3
    seen, console = look_at(path, tmp_path)
    assert seen["errors"] == console == []
    assert seen["mapMoved"]
    assert seen["clicked"]
    assert seen["value"] == pytest.approx(
        float(page.v.isel(station=(described["firstPlace"] + 3) % 5, time=10, level=0)), abs=1e-3
    )


def test_longitudes_are_unwrapped_at_the_widest_gap():
    assert unwrap_longitude(np.array([350.0, 355.0, 0.0, 5.0])).tolist() == [-10.0, -5.0, 0.0, 5.0]
    assert unwrap_longitude(np.array([170.0, -175.0, 179.0])).tolist() == [170.0, 185.0, 179.0]
    assert unwrap_longitude(np.arange(0.0, 360.0, 60.0)).tolist() == np.arange(0.0, 360.0, 60.0).tolist()


def test_pictures_take_and_return_axes(filled):
    import matplotlib.pyplot as plt  # noqa: PLC0415

    _, dataset, validation = filled
    figure, axes = plt.subplots(1, 3)
    at = {"time": "2019-03-01T06"}
    for what in ("data", "filled", "std"):
        assert plots.plot_map(dataset, "t2m", at, what=what, ax=axes[0]) is axes[0]
    assert plots.plot_series(dataset, "t2m", {"latitude": 51.9, "longitude": 0.1}, ax=axes[1]) is axes[1]
    assert plots.plot_calibration(validation, ax=axes[2]) is axes[2]
    assert axes[1].get_ylabel() == "t2m [K]"
    assert plots.plot_series(dataset, "t2m", {"latitude": 51.9, "longitude": 0.1}).lines
    with pytest.raises(InputError, match="two dimensions"):
        plots.plot_map(dataset, "t2m")
    with pytest.raises(InputError, match="choose a place"):
        plots.plot_series(dataset, "t2m")
    with pytest.raises(InputError, match="no dimension 'depth'"):
        plots.plot_series(dataset, "t2m", {"depth": 1})
    plt.close("all")
    assert figure is not None


def test_a_series_without_places_has_a_page(tmp_path):
    values = np.sin(np.arange(40) / 4)
    values[5:9] = np.nan
    series = xr.DataArray(values, dims="time", coords={"time": pd.date_range("2020", periods=40)}, name="v")
    model = lkgp.xarray.fit(series)
    filled = model.fill(series)
    described = variable_data(model, filled, None)
    assert [place["label"] for place in described["places"]] == ["v"]
    assert len(described["times"]) == 40
    path = tmp_path / "page.html"
    write_page(path, [(model, filled, None)], title="a series")
    seen, console = look_at(path, tmp_path)
    assert seen["errors"] == console == []
    assert seen["mapMoved"]


@pytest.mark.parametrize("listed", [True, False], ids=["stations", "curvilinear"])
def test_places_that_are_nowhere_are_not_drawn(listed, tmp_path):
    rng = np.random.default_rng(0)
    lon, lat = np.meshgrid(np.arange(3.0), np.arange(50.0, 52.0))
    lat[0, 0] = lon[0, 0] = np.nan
    values = np.sin(np.arange(12) / 3)[:, None, None] + 0.1 * rng.standard_normal((12, 2, 3))
    values[3:5, 1, 1], values[:, 0, 0] = np.nan, np.nan
    coords = {"lat": (("y", "x"), lat), "lon": (("y", "x"), lon), "time": pd.date_range("2020", periods=12)}
    array = xr.DataArray(values, dims=("time", "y", "x"), coords=coords, name="v")
    if listed:
        array = array.stack(station=("y", "x"), create_index=False).assign_coords(station=list("abcdef"))
    model = lkgp.xarray.fit(array)
    filled = model.fill(array)
    described = variable_data(model, filled, None)
    assert len(described["places"]) == 5
    assert described["places"][0]["label"].endswith("lat 50, lon 1)" if listed else "lat 50, lon 1")
    assert described["firstPlace"] == 3
    path = tmp_path / "page.html"
    write_page(path, [(model, filled, None)], title="places")
    seen, console = look_at(path, tmp_path)
    assert seen["errors"] == console == []
    wanted = filled.v.isel(station=2, time=10) if listed else filled.v.isel(y=0, x=2, time=10)
    assert seen["value"] == pytest.approx(float(wanted), abs=1e-3)


def test_maps_of_grids_in_radians_are_drawn_in_degrees(filled):
    _, dataset, _ = filled
    turned = dataset.assign_coords({name: np.deg2rad(dataset[name]) for name in ("latitude", "longitude")})
    for name in ("latitude", "longitude"):
        turned[name].attrs = {"standard_name": name, "units": "radians"}
    layout = Layout.of(turned.t2m, choose_factors(turned.t2m)[0])
    assert all(place["y"] > 45 for place in map_places(layout, layout.factors[0]).places)
    axes = plots.plot_map(turned, "t2m", {"time": "2019-03-01T06"})
    assert axes.get_xlim()[1] > 1.5
    assert axes.get_ylim()[0] > 45
    plots.plt.close("all")


@pytest.fixture(scope="module")
def one_map():
    """A map without time, with two wild cells, its model and its filling."""
    rng = np.random.default_rng(0)
    lat, lon = np.linspace(36.0, 34.0, 12), np.linspace(-95.0, -92.0, 17)
    values = 20 + 3 * np.sin(2 * lat)[:, None] + 2 * np.cos(2 * lon) + 0.1 * rng.standard_normal((12, 17))
    values[2, 3], values[9, 12] = 90.0, -70.0
    values[4:8, 5:9] = np.nan
    coords = {
        "lat": ("lat", lat, {"units": "degrees_north"}),
        "lon": ("lon", lon, {"units": "degrees_east"}),
    }
    field = xr.DataArray(values, dims=("lat", "lon"), coords=coords, name="lst", attrs={"units": "degC"})
    model = lkgp.xarray.fit(field)
    return model, model.fill(field)


@pytest.mark.parametrize("width", [1440, 500], ids=["desk", "phone"])
def test_a_single_map_is_a_map(one_map, width, tmp_path):
    model, filled = one_map
    path = tmp_path / "page.html"
    write_page(path, [(model, filled, None)], title="one map")
    seen, console = look_at(path, tmp_path, ACT_ON_ONE_MAP, width)
    assert seen["errors"] == console == []
    assert seen["hidden"] == [True, True, True, True, False]
    assert len(set(seen["pictures"])) == 3
    assert seen["width"] <= seen["window"]  # nothing to scroll sideways
    for canvas_width, height, sx, sy in seen["sizes"]:
        assert canvas_width <= width
        # A degree of longitude is shorter than one of latitude, and the canvas has no empty margins.
        assert sx / sy == pytest.approx(np.cos(np.deg2rad(35.0)), rel=0.01)
        assert height == pytest.approx(46 + sy * (2.0 + 2 / 11), abs=2)
    # Two wild cells do not take all colours.
    for (low, high), key in zip(seen["colours"], ("lst", "lst_std"), strict=True):
        assert [low, high] == pytest.approx(np.percentile(filled[key], [2, 98]))
    assert all(hit for _, hit in seen["readings"])
    for (text, _), position in zip(seen["readings"], (7, 12, 17), strict=True):
        row, column = divmod(position, 17)
        assert text.startswith(f"lat {filled.lat[row].item():.6g}, lon {filled.lon[column].item():.6g}: ")
        assert float(re.search(r": (-?[\d.]+) ±", text)[1]) == pytest.approx(filled.lst[row, column].item(), abs=0.1)
        assert text.endswith("observed")


@pytest.mark.parametrize("factors", [["lat", "lon"], [("lat", "lon")]], ids=["two factors", "one factor"])
@pytest.mark.parametrize("order", [("lat", "lon"), ("lon", "lat")], ids=["rows", "columns"])
def test_a_map_is_the_same_however_its_axes_are_arranged(one_map, factors, order):
    _, filled = one_map
    turned = filled.transpose(*order)
    layout = Layout.of(turned.lst, choose_factors(turned.lst, factors=factors)[0])
    factor, slices = choose_map_factor(layout)
    found = map_places(layout, factor)
    assert slices == []
    assert found.axes == ("lon [°E]", "lat [°N]")
    assert found.grid["x"] == pytest.approx(filled.lon.values.tolist())
    assert found.grid["y"] == pytest.approx(filled.lat.values.tolist())
    values = turned.lst.transpose(*factor.dims).values.ravel()
    for x, y, value in list(zip(found.x, found.y, values, strict=True))[::9]:
        assert value == filled.lst.sel(lat=y, lon=x, method="nearest")


def test_axes_of_a_plane_have_their_names_and_units():
    coords = {"x": ("x", np.arange(5.0), {"units": "m"}), "y": ("y", 2 * np.arange(4.0), {"units": "m"})}
    field = xr.DataArray(np.zeros((2, 5, 4)), dims=("level", "x", "y"), coords={**coords, "level": [1.0, 2.0]})
    layout = Layout.of(field, choose_factors(field)[0])
    factor, slices = choose_map_factor(layout)
    found = map_places(layout, factor)
    assert slices == ["level"]
    assert found.axes == ("x [m]", "y [m]")
    assert found.same_scale
    assert found.grid["x"] == [0, 1, 2, 3, 4]
    one_row = field.isel(y=[1])
    layout = Layout.of(one_row, choose_factors(one_row)[0])
    assert map_places(layout, choose_map_factor(layout)[0]).grid["y"] == [2.0]


def test_a_large_map_is_thinned_and_says_so(one_map, monkeypatch):
    model, filled = one_map
    whole = variable_data(model, filled, None)
    assert "every so many" not in whole["lead"]
    assert whole["beyond"] == (True, True)
    monkeypatch.setattr(variable, "MAX_MAP_SIDE", 9)
    described = variable_data(model, filled, None)
    assert "6 of 12 along lat x 9 of 17 along lon" in described["lead"]
    assert len(described["grid"]["x"]) == 9
    assert len(base64.b64decode(described["values"])) == 2 * 6 * 9
