"""Made-up data in the form of the competitions."""

from pathlib import Path

import numpy as np


def write_competition_data(folder: Path) -> None:
    """A map of 24 x 30 cells with clouds, and sets of 20 places x 15 times, as .npz files."""
    rng = np.random.default_rng(0)
    lat, lon = np.linspace(36.0, 34.5, 24), np.linspace(-95.0, -93.0, 30)
    truth = 30 + 4 * np.sin(3 * lat)[:, None] + 2 * np.cos(3 * lon) + 0.1 * rng.standard_normal((24, 30))
    truth[:2, :3] = np.nan  # never seen
    train = np.where(rng.random(truth.shape) < 0.2, np.nan, truth)
    train[8:14, 10:18] = np.nan
    arrays = {"lat": lat, "lon": lon, "train": train.astype(np.float32), "truth": truth.astype(np.float32)}
    np.savez(folder / "heaton_satellite.npz", **arrays)
    places, times = rng.random((20, 2)), np.arange(1, 16)
    whole = np.sin(4 * places[:, :1] + times / 5) + places[:, 1:] + 0.1 * rng.standard_normal((20, 15))
    withheld = {1: np.zeros((20, 15), bool), 4: rng.random((20, 15)) < 0.2, 7: np.zeros((20, 15), bool)}
    withheld[1][::6], withheld[7][:, -3:] = True, True
    for number, hidden in withheld.items():
        train, truth = np.where(hidden, np.nan, whole), np.where(hidden, whole, np.nan)
        np.savez(folder / f"kaust_2a_{number}.npz", places=places, times=times, train=train, truth=truth)
