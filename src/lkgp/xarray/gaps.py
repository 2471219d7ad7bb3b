"""What the gaps of a field look like, and copies of them at other places, to see what the gaps cost."""

from dataclasses import dataclass

import numpy as np

# Gaps are runs in time if they last so many times as long as those of cells that are missing at random.
LONGER = 2.0
# Below this share of missing cells there is nothing to copy, and cells are withheld at random.
FEW = 1e-3
# The copy of the gaps is taken in windows so many times as long as all but a tenth of the gaps, so that few are cut.
WINDOW = 3.0


@dataclass(frozen=True)
class Gaps:
    """The gaps in `observed`, (m, t): m series of t times.

    missing: share of the cells; whole: share of the missing cells in times at which nothing at all was observed
    typical, longest: runs of missing cells in time
    """

    missing: float
    whole: float
    typical: float
    longest: int

    @classmethod
    def of(cls, observed: np.ndarray) -> "Gaps":
        missing = ~observed
        total = int(missing.sum())
        if not total:
            return cls(0.0, 0.0, 0.0, 0)
        lengths = run_lengths(missing)
        whole = missing.all(axis=0).sum() * len(missing) / total
        # Of the cells, not of the runs: half of the missing cells are in runs at least this long.
        return cls(
            total / missing.size, float(whole), float(np.median(np.repeat(lengths, lengths))), int(lengths.max())
        )

    def __str__(self) -> str:
        if not self.missing:
            return "nothing is missing"
        # Runs of cells that are missing with probability g have a mean length of 1 / (1 - g); half of the cells are in runs a bit longer.
        by_chance = LONGER * 2 / (1 - self.missing)
        share = f"{self.missing:.1%} missing"
        if self.whole > 0.5:
            return f"{share}, mostly whole times at which nothing was observed, {self.longest} in a row at the most"
        if self.typical > by_chance:
            return f"{share}, mostly runs in time of about {self.typical:.0f} steps, {self.longest} at the most"
        return f"{share}, mostly single cells"


def run_lengths(missing: np.ndarray) -> np.ndarray:
    """Lengths of all runs of True along the last axis of (m, t)."""
    edges = np.diff(np.pad(missing.astype(np.int8), ((0, 0), (1, 1))), axis=1)
    return np.flatnonzero(edges.ravel() == -1) - np.flatnonzero(edges.ravel() == 1)


def withhold(observed: np.ndarray, share: float, generator: np.random.Generator) -> tuple[np.ndarray, str]:
    """Observed cells (m, t), about a share of them, that a copy of the gaps, moved in time, would hide; and how that was done, in words."""
    t = observed.shape[1]
    missing = ~observed
    if missing.mean() < FEW or t < 3:
        hidden = observed & (generator.random(observed.shape) < share)
        return hidden, "single cells at random"
    moved = np.roll(missing, int(generator.integers(1, t)), axis=1) & observed
    wanted = share * observed.sum()
    if moved.sum() <= wanted:
        return moved, "a copy of the gaps, moved in time"
    window = int(np.clip(WINDOW * np.quantile(run_lengths(missing), 0.9), 1, t))
    hidden = np.zeros_like(moved)
    for start in generator.permutation(np.arange(0, t, window)):
        part = slice(start, start + window)
        hidden[:, part] = moved[:, part]
        if hidden.sum() >= wanted:
            break
    return hidden, "parts of a copy of the gaps, moved in time"
