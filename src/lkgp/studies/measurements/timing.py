"""Times of short functions."""

import statistics
import time
from collections.abc import Callable

import torch

REPEATS = 5


def interleaved_medians(functions: dict[str, Callable[[], object]], repeats: int) -> dict[str, float]:
    """The median seconds of each function, called in turn; the first round, which warms up, does not count."""
    times: dict[str, list[float]] = {name: [] for name in functions}
    with torch.no_grad():
        for _ in range(repeats + 1):
            for name, function in functions.items():
                began = time.perf_counter()
                function()
                times[name].append(time.perf_counter() - began)
    return {name: statistics.median(found[1:]) for name, found in times.items()}


def median_seconds(function: Callable[[], object], repeats: int = REPEATS) -> float:
    """The median seconds of one function; the first call, which warms up, does not count."""
    return interleaved_medians({"": function}, repeats)[""]
