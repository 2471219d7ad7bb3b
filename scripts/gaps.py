"""Remove cells of a netCDF file, and score what was filled in their place.

python scripts/gaps.py make era5.nc gaps.nc            # 30 % of the cells, at random
python scripts/gaps.py make era5.nc gaps.nc --run 24   # runs of 24 steps at random places, until 30 % are gone
python scripts/gaps.py score era5.nc filled.nc         # beside linear interpolation in time and along longitude
"""

import argparse

import numpy as np
import torch

import xarray as xr
from lkgp import metrics
from lkgp.studies.splits import split_generator, uniform_gaps


def only_variable(path: str) -> xr.DataArray:
    dataset = xr.load_dataset(path)
    name = next(str(name) for name in dataset.data_vars if not str(name).endswith(("_std", "_filled")))
    return dataset[name]


def removed(field: xr.DataArray, share: float, run: int, seed: int) -> np.ndarray:
    """Which cells to remove, in the shape of the field, whose first dimension is time."""
    if run == 1:
        return ~uniform_gaps((len(field), field[0].size), share, split_generator(seed)).reshape(field.shape)
    rng = np.random.default_rng(seed)
    gone = np.zeros(field.shape, dtype=bool)
    flat = gone.reshape(len(gone), -1)
    while gone.mean() < share:
        start = rng.integers(len(gone) - run + 1)
        flat[start : start + run, rng.integers(flat.shape[1])] = True
    return gone


def score(truth: xr.DataArray, filled: xr.Dataset) -> None:
    name = str(truth.name)
    gone = filled[f"{name}_filled"].values == 1
    seen = truth.where(~gone)

    def rmse(guess: xr.DataArray) -> float:
        return float(np.sqrt(np.nanmean((guess.transpose(*truth.dims).values - truth.values)[gone] ** 2)))

    ours = rmse(filled[name])
    others = {dim: rmse(seen.interpolate_na(dim, fill_value="extrapolate")) for dim in ("time", "longitude")}
    print(f"{gone.sum()} cells ({gone.mean():.1%}) were filled")
    print(f"RMSE: lkgp {ours:.4f}, " + ", ".join(f"linear along {dim} {value:.4f}" for dim, value in others.items()))
    print(f"ratio to the better of them: {ours / min(others.values()):.3f}")
    y, mean, std = (
        torch.as_tensor(array.values[gone], dtype=torch.float64)
        for array in (truth, filled[name], filled[f"{name}_std"])
    )
    for level in (0.5, 0.8, 0.95):
        print(f"inside {level:.0%}: {metrics.coverage(y, mean, std, level):.1%}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=("make", "score"))
    parser.add_argument("source")
    parser.add_argument("other")
    parser.add_argument("--share", type=float, default=0.3)
    parser.add_argument("--run", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args()
    field = only_variable(chosen.source)
    if chosen.action == "make":
        gone = xr.DataArray(removed(field, chosen.share, chosen.run, chosen.seed), dims=field.dims)
        field.where(~gone).to_dataset().to_netcdf(chosen.other)
    else:
        score(field, xr.load_dataset(chosen.other))


if __name__ == "__main__":
    main()
