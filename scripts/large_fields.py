"""Fill large simulated fields with `lkgp fill`, nothing chosen by hand, and print one row for every field.

python scripts/large_fields.py globe 60x120x6 90x180x12 180x360x24   # latitudes x longitudes x months
python scripts/large_fields.py sea 100x100x15 200x200x30             # latitudes x longitudes x days
python scripts/large_fields.py plane 100x100x15                      # the same sea, with kilometres x and y
python scripts/large_fields.py stations 2000x10 20000x30             # scattered places x days
python scripts/large_fields.py hours 30x26304 200x87600              # stations x hours, with cycles of days and years
python scripts/large_fields.py moments 30x26304                      # the same at irregular times

Fields are rough in space and autoregressive in time. Clouds drift over maps and hide about 60 % of a sea; stations fail
for some days or hours. A tenth of the cells that would be seen are withheld, as whole patches and as single cells. The
last line is the slope of the logarithm of processor time and of memory against that of the number of cells.
"""

import argparse
import json
import math
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.interpolate import RegularGridInterpolator

import xarray as xr

Array = NDArray[np.float64]

# The correlation of a field from one time to the next, and the standard deviation of the errors of its observations.
PERSISTENCE, NOISE = 0.8, 0.1
# The share of cells that would be seen but are withheld, half of them in patches.
WITHHELD = 0.1


def autoregressive(draw: Callable[[], Array], times: int) -> Array:
    """Standardised fields (times, ...), each PERSISTENCE times the one before it plus an independent draw."""
    fields = [draw()]
    for _ in range(times - 1):
        fields.append(PERSISTENCE * fields[-1] + math.sqrt(1 - PERSISTENCE**2) * draw())
    found = np.stack(fields)
    return (found - found.mean()) / found.std()


def plane_draw(shape: tuple[int, int], reach: float, power: float, rng: np.random.Generator) -> Array:
    """An isotropic field of a plane, (a, b), with the spectrum (1 + (reach k)^2)^-power, on a torus twice as large.

    reach: in cells; a power of 1.5 is an exponential covariance
    """
    sizes = [2 * n for n in shape]
    first, second = np.fft.fftfreq(sizes[0]), np.fft.rfftfreq(sizes[1])
    waves = np.hypot(first[:, None], second)
    amplitude = (1 + (2 * np.pi * reach * waves) ** 2) ** (-power / 2)
    field = np.fft.irfft2(np.fft.rfft2(rng.standard_normal(sizes)) * amplitude, s=sizes)
    return field[: shape[0], : shape[1]]


def legendre(latitudes: Array, degrees: int) -> list[Array]:
    """For every order m, the associated Legendre functions of degrees m to `degrees` - 1, normalised, (degrees, a)."""
    x, s = np.sin(np.radians(latitudes)), np.cos(np.radians(latitudes))
    found, top = [], np.full_like(x, math.sqrt(1 / (4 * np.pi)))
    for m in range(degrees):
        if m:
            top = -math.sqrt((2 * m + 1) / (2 * m)) * s * top
        rows = [top, math.sqrt(2 * m + 3) * x * top]
        for n in range(m + 2, degrees):
            a = math.sqrt((4 * n**2 - 1) / (n**2 - m**2))
            b = math.sqrt(((n - 1) ** 2 - m**2) / (4 * (n - 1) ** 2 - 1))
            rows.append(a * (x * rows[-1] - b * rows[-2]))
        found.append(np.array(rows[: degrees - m]))
    return found


def sphere_draw(functions: list[Array], longitudes: int, reach: float, power: float, rng: np.random.Generator) -> Array:
    """An isotropic field of the sphere, (a, longitudes), with the spectrum (1 + reach^2 n (n + 1))^-power by degree."""
    degrees = len(functions)
    spectrum = np.zeros((functions[0].shape[1], longitudes // 2 + 1), dtype=complex)
    n = np.arange(degrees)
    amplitude = (1 + reach**2 * n * (n + 1)) ** (-power / 2)
    for m, rows in enumerate(functions):
        size = (rng.standard_normal(len(rows)) + 1j * rng.standard_normal(len(rows))) * amplitude[m:]
        if m < spectrum.shape[1]:
            spectrum[:, m] = (size.real if m == 0 else size) @ rows
    return np.fft.irfft(spectrum, longitudes, axis=1) * longitudes


def hidden_by_clouds(clouds: Array, share: float) -> NDArray[np.bool_]:
    return clouds > np.quantile(clouds, 1 - share)


def drifting(cloud: Array, times: int, shape: tuple[int, int], rng: np.random.Generator) -> Array:
    """Clouds that drift over a map and change, (times, a, b), from a larger periodic one, (a', b')."""
    found, shift = [], np.zeros(2)
    for _ in range(times):
        shift += rng.normal(0.12, 0.05, 2) * shape
        moved = np.roll(cloud, tuple(np.round(shift).astype(int)), axis=(0, 1))
        found.append(moved[: shape[0], : shape[1]])
    return np.stack(found)


def map_field(kind: str, sizes: tuple[int, ...], rng: np.random.Generator) -> tuple[xr.DataArray, NDArray[np.bool_]]:
    """The true field over time and a map, and where clouds hide it."""
    rows, columns, times = sizes
    shape = (rows, columns)
    if kind == "globe":
        latitudes = -90 + (np.arange(rows) + 0.5) * 180 / rows
        longitudes = -180 + np.arange(columns) * 360 / columns
        functions = legendre(latitudes, max(rows, columns // 2))
        truth = autoregressive(lambda: sphere_draw(functions, columns, 0.3, 1.5, rng), times)
        clouds = autoregressive(lambda: sphere_draw(functions, columns, 0.15, 3.0, rng), times)
        coords = {"lat": latitudes, "lon": longitudes}
    else:
        truth = autoregressive(lambda: plane_draw(shape, 40.0, 1.5, rng), times)
        cloud = plane_draw((2 * rows, 2 * columns), 15.0, 3.0, rng)
        clouds = drifting(cloud, times, shape, rng)
        coords = {"lat": 30 + 0.05 * np.arange(rows), "lon": 5 + 0.05 * np.arange(columns)}
        if kind == "plane":
            coords = {"y": 4.0 * np.arange(rows), "x": 4.0 * np.arange(columns)}
    first, second = coords
    step = "MS" if kind == "globe" else "D"
    days = xr.date_range("2001-01-01", periods=times, freq=step)
    attrs = {name: {"units": "km"} for name in ("x", "y") if name in coords}
    field = xr.DataArray(truth, {"time": days, **coords}, ("time", first, second), name="value")
    for name, values in attrs.items():
        field[name].attrs.update(values)
    return field, hidden_by_clouds(clouds, 0.5 if kind == "globe" else 0.6)


def station_field(sizes: tuple[int, ...], rng: np.random.Generator) -> tuple[xr.DataArray, NDArray[np.bool_]]:
    """The true field at scattered places over time, (times, stations), and when they failed."""
    stations, times = sizes
    places = rng.uniform(0, 1, (stations, 2))
    cells = (512, 512)
    axes = [np.linspace(0, 1, n) for n in cells]

    def draw() -> Array:
        return RegularGridInterpolator(axes, plane_draw(cells, 60.0, 1.5, rng))(places)

    truth = autoregressive(draw, times)
    failed = np.zeros(truth.shape, dtype=bool)
    while failed.mean() < 0.25:
        start, which = rng.integers(times), rng.integers(0, stations, stations // 20 + 1)
        failed[start : start + max(2, times // 6), which] = True
    coords = {
        "time": xr.date_range("2001-01-01", periods=times, freq="D"),
        "lat": ("station", 35 + 20 * places[:, 0]),
        "lon": ("station", -5 + 30 * places[:, 1]),
    }
    return xr.DataArray(truth, coords, ("time", "station"), name="value"), failed


def hourly_field(kind: str, sizes: tuple[int, ...], rng: np.random.Generator) -> tuple[xr.DataArray, NDArray[np.bool_]]:
    """Weather at some stations over hours, or irregular times about as often, (times, stations), and when they failed.

    Cycles of days and years, and weather that changes within days and is alike at near stations.
    """
    stations, times = sizes
    hours = np.arange(times) if kind == "hours" else np.sort(rng.choice(6 * times, times, replace=False)) / 6
    places = np.stack([50 + 3 * rng.random(stations), 5 + 4 * rng.random(stations)], axis=1)
    apart = np.linalg.norm((places[:, None] - places) * [1.0, 0.63], axis=-1)
    root = np.linalg.cholesky(np.exp(-apart / 2) + 1e-9 * np.eye(stations))
    # Weather persists for about 36 hours.
    keeps = np.exp(-np.diff(hours, prepend=-1e3) / 36)
    weather, state = np.empty((times, stations)), np.zeros(stations)
    for i, keep in enumerate(keeps):
        state = keep * state + math.sqrt(1 - keep**2) * (root @ rng.standard_normal(stations))
        weather[i] = state
    size = 1 + 0.1 * (root @ rng.standard_normal(stations))
    days, years = 2 * np.pi * hours[:, None] / 24, 2 * np.pi * hours[:, None] / (24 * 365.2425)
    cycles = 2.7 * size * np.sin(years) + size * np.sin(days + 0.3 * np.sin(years)) + 0.2 * np.sin(2 * days)
    truth = weather + cycles
    failed = np.zeros(truth.shape, dtype=bool)
    for station in failed.T:
        while station.mean() < 0.15:
            start = rng.integers(times)
            station[start : start + 1 + int(rng.exponential(24))] = True
    moments = np.datetime64("2018-01-01", "s") + np.round(hours * 3600).astype("timedelta64[s]")
    coords = {
        "time": moments.astype("datetime64[ns]"),
        "lat": ("station", places[:, 0]),
        "lon": ("station", places[:, 1]),
    }
    return xr.DataArray(truth, coords, ("time", "station"), name="value"), failed


def withhold(seen: NDArray[np.bool_], stretch: int, rng: np.random.Generator) -> NDArray[np.bool_]:
    """Which of the seen cells, (times, ...), to withhold: those hidden at another time, and single ones.

    stretch: for how many times a patch is withheld
    """
    order = np.roll(seen, len(seen) // 2, axis=0)
    patches = seen & ~order
    chance = np.where(patches, WITHHELD / 2 * seen.sum() / max(1, patches.sum()), 0.0)
    # whole patches: one number for a coarse block of times and of the map
    sizes = [stretch] + [12 if stretch == 1 else 1] * (seen.ndim - 1)
    blocks = rng.uniform(size=tuple(-(-n // size) for n, size in zip(seen.shape, sizes, strict=True)))
    for axis, size in enumerate(sizes):
        blocks = np.repeat(blocks, size, axis=axis).take(range(seen.shape[axis]), axis=axis)
    return (patches & (blocks < chance)) | (seen & (rng.uniform(size=seen.shape) < WITHHELD / 2))


def along_time(values: Array, method: str) -> Array:
    """Gaps (times, ...) filled along time, by the nearest value or linearly; the mean where a place has none."""
    times = np.arange(len(values))
    flat = values.reshape(len(values), -1)
    found = np.full_like(flat, np.nanmean(values))
    for column, out in zip(flat.T, found.T, strict=True):
        known = np.flatnonzero(np.isfinite(column))
        if len(known) and method == "linear":
            out[:] = np.interp(times, known, column[known])
        elif len(known):
            after = np.clip(np.searchsorted(known, times), 1, max(1, len(known) - 1))
            before, after = known[after - 1], known[np.minimum(after, len(known) - 1)]
            out[:] = column[np.where(times - before <= abs(after - times), before, after)]
    return found.reshape(values.shape)


def fill(source: Path, target: Path, threads: int) -> tuple[dict, float, float, float]:
    """Run the command; what it printed, its seconds, those of the processor, and its peak memory in bytes."""
    command = [
        sys.executable,
        "-c",
        "from lkgp.cli.app import main; main()",
        "fill",
        str(source),
        str(target),
        "--overwrite",
        "--json",
    ]
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads)}
    done = subprocess.run(command, check=False, capture_output=True, text=True, env=environment)
    seconds = time.perf_counter() - began
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed after {seconds:.0f} s:\n{done.stderr[-3000:]}")
    summary = json.loads(done.stdout)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    busy = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    # The operating system knows the largest of all children so far only.
    return (
        summary,
        seconds,
        busy,
        1024.0 * after.ru_maxrss if after.ru_maxrss > before.ru_maxrss else summary["peak_memory"],
    )


def make_field(kind: str, sizes: tuple[int, ...], rng: np.random.Generator) -> tuple[xr.DataArray, NDArray[np.bool_]]:
    """The true field, and where it is hidden."""
    if kind in ("hours", "moments"):
        return hourly_field(kind, sizes, rng)
    return station_field(sizes, rng) if kind == "stations" else map_field(kind, sizes, rng)


def run(kind: str, sizes: tuple[int, ...], folder: Path, threads: int, seed: int) -> tuple[int, float, float]:
    """One row; returns the number of cells, the seconds of the processor and the memory."""
    rng = np.random.default_rng(seed)
    truth, hidden = make_field(kind, sizes, rng)
    observed = truth.values + NOISE * rng.standard_normal(truth.shape)
    held = withhold(~hidden, 24 if kind in ("hours", "moments") else 1, rng)
    gaps = truth.copy(data=np.where(hidden | held, np.nan, observed).astype(np.float32))
    name = f"{kind}-{'x'.join(map(str, sizes))}"
    source, target = folder / f"{name}.nc", folder / f"{name}-filled.nc"
    gaps.to_netcdf(source)
    summary, seconds, busy, memory = fill(source, target, threads)
    filled = xr.load_dataset(target)
    wanted = held & np.isfinite(filled.value.values)
    error = (filled.value.values - truth.values)[wanted]
    inside = np.abs(error) < 1.959964 * filled.value_std.values[wanted]
    rmse = {"lkgp": float(np.sqrt(np.mean(error**2)))}
    for method in ("nearest", "linear"):
        guess = along_time(gaps.values.astype(float), method)[wanted]
        rmse[method] = float(np.sqrt(np.mean((guess - truth.values[wanted]) ** 2)))
    (folder / f"{name}.json").write_text(json.dumps(summary, indent=1))
    scores = ", ".join(f"{key} {value:.3f}" for key, value in rmse.items())
    print(
        f"{name}: {truth.size} cells, {int(np.isfinite(gaps.values).sum())} observed, {seconds:.0f} s "
        f"({busy:.0f} s of processor time), {memory / 1e9:.1f} GB"
    )
    print(
        f"    RMSE at {int(wanted.sum())} withheld cells: {scores}; inside 95 %: {inside.mean():.1%}; "
        f"kernels: {'; '.join(text.split(',')[0] for text in summary['variables'][0]['chosen'])}"
    )
    print(f"    {described(summary)}", flush=True)
    return truth.size, busy, memory


def described(summary: dict) -> str:
    """The way of inference, kernels and iterations, from what the command printed."""
    variable = summary["variables"][0]
    report = variable["report"]
    parts = {name: f"{seconds:.0f} s" for name, seconds in report["seconds"].items()}
    return (
        f"{report['method']}; factors {', '.join(report['structures'])}; {report['fit']}; at most "
        f"{report['iterations']} iterations, {report['products']} products; error bars {report['variance']}; {parts}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=("globe", "sea", "plane", "stations", "hours", "moments"))
    parser.add_argument("sizes", nargs="+", help="such as 60x120x6")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--folder", type=Path, help="keep the files here")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = chosen.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        shapes = [tuple(int(n) for n in text.split("x")) for text in chosen.sizes]
        rows = np.array([run(chosen.kind, sizes, folder, chosen.threads, chosen.seed) for sizes in shapes])
    if len(rows) > 1:
        cells, seconds, memory = np.log(rows).T
        slopes = [np.polyfit(cells, values, 1)[0] for values in (seconds, memory)]
        print(f"growth with the number of cells: processor time to the power {slopes[0]:.2f}, memory {slopes[1]:.2f}")


if __name__ == "__main__":
    main()
