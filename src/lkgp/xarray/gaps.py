"""The pattern of the gaps in a field, and copies of them elsewhere in time for validation."""

from dataclasses import dataclass

import numpy as np

# Gaps are described as runs in time if they last this many times as long as those of cells missing at random; a larger
# ratio describes more patterns as single cells. It affects only the description.
RUN_RATIO = 2.0
# Below this share of missing cells there are too few gaps to copy, and cells are withheld at random.
MIN_MISSING_SHARE = 1e-3
# The copy of the gaps is cut into windows this many times as long as the 90 % quantile of the gap lengths: longer
# windows cut fewer gaps, shorter ones come closer to the requested share.
WINDOW_LENGTH = 3.0


@dataclass(frozen=True)
class Gaps:
    """The pattern of missing cells in m series of t times.

    missing: share of the cells that are missing
    whole_times: share of the missing cells that belong to times at which nothing at all was observed
    typical_run: half of the missing cells are in runs in time at least this long
    longest_run: the longest run in time
    """

    missing: float
    whole_times: float
    typical_run: float
    longest_run: int

    @classmethod
    def of(cls, observed: np.ndarray) -> "Gaps":
        """observed: boolean, (m, t)."""
        missing = ~observed
        total = int(missing.sum())
        if not total:
            return cls(0.0, 0.0, 0.0, 0)
        lengths = run_lengths(missing)
        whole_times = missing.all(axis=0).sum() * len(missing) / total
        # The median over cells, not over runs.
        typical = float(np.median(np.repeat(lengths, lengths)))
        return cls(total / missing.size, float(whole_times), typical, int(lengths.max()))

    def __str__(self) -> str:
        if not self.missing:
            return "nothing is missing"
        share = f"{self.missing:.1%} missing"
        if self.whole_times > 0.5:
            return f"{share}, mostly whole times without any observation, at most {self.longest_run} in a row"
        # If cells are missing independently with probability g, the run that a missing cell belongs to has the mean
        # length (1 + g) / (1 - g) < 2 / (1 - g).
        if self.typical_run > RUN_RATIO * 2 / (1 - self.missing):
            return f"{share}, mostly runs of about {self.typical_run:.0f} times, at most {self.longest_run}"
        return f"{share}, mostly single cells"


def run_lengths(missing: np.ndarray) -> np.ndarray:
    """The lengths of all runs of True along the last axis of (m, t)."""
    edges = np.diff(np.pad(missing.astype(np.int8), ((0, 0), (1, 1))), axis=1)
    return np.flatnonzero(edges.ravel() == -1) - np.flatnonzero(edges.ravel() == 1)


def withhold(
    observed: np.ndarray, share: float, generator: np.random.Generator, shifted: str = "shifted in time"
) -> tuple[np.ndarray, str]:
    """Choose about a share of the observed cells that a copy of the gaps, shifted along the second axis, would hide.

    observed: (m, t)
    shifted: what such a shift is called

    Returns the cells, boolean (m, t), and a description of how they were chosen.
    """
    t = observed.shape[1]
    missing = ~observed
    if missing.mean() < MIN_MISSING_SHARE or t < 3:
        hidden = observed & (generator.random(observed.shape) < share)
        return hidden, "single cells at random"
    moved = np.roll(missing, int(generator.integers(1, t)), axis=1) & observed
    wanted = share * observed.sum()
    if moved.sum() <= wanted:
        return moved, f"a copy of the gaps, {shifted}"
    window = int(np.clip(WINDOW_LENGTH * np.quantile(run_lengths(missing), 0.9), 1, t))
    hidden = np.zeros_like(moved)
    for start in generator.permutation(np.arange(0, t, window)):
        part = slice(start, start + window)
        hidden[:, part] = moved[:, part]
        if hidden.sum() >= wanted:
            break
    return hidden, f"parts of a copy of the gaps, {shifted}"
