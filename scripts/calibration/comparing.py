"""Comparing the times of functions on a machine whose speed varies."""

import math
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any
from unittest.mock import patch

import numpy as np
import torch

FEWEST_ROUNDS = 3
# Medians of times that differ by less than this factor count as equal.
AS_FAST = 1.1

Function = Callable[[], object]
# What was measured, in words, and the value that the constant should have.
Found = tuple[str, float]


@dataclass(frozen=True)
class Effort:
    """seconds: spent on each comparison of times; scale: of all sizes, below one only to try the measurements."""

    seconds: float
    scale: float = 1.0

    def size(self, points: int) -> int:
        return max(16, round(self.scale * points))

    def sizes(self, *points: int) -> list[int]:
        return sorted({self.size(n) for n in points})


@torch.no_grad()
def times(functions: Sequence[Function], effort: Effort) -> np.ndarray:
    """Seconds of each function, called in turn, (rounds, functions), without the first round, which warms up."""
    rounds: list[list[float]] = []
    while len(rounds) <= FEWEST_ROUNDS or np.sum(rounds[1:]) < effort.seconds:
        rounds.append([])
        for function in functions:
            began = time.perf_counter()
            function()
            rounds[-1].append(time.perf_counter() - began)
    return np.array(rounds[1:])


def ratio(slow: Function, fast: Function, effort: Effort) -> float:
    """How many times longer the first function takes than the second: the median over the rounds."""
    found = times([slow, fast], effort)
    return float(np.median(found[:, 0] / found[:, 1]))


def seconds(function: Function, effort: Effort) -> float:
    """The median time of one function."""
    return float(np.median(times([function], effort)))


def in_words(sizes: Sequence[int], ratios: Sequence[float]) -> str:
    return ", ".join(f"x{value:.2f} at {n}" for n, value in zip(sizes, ratios, strict=True))


def crossover(sizes: Sequence[int], ratios: Sequence[float], present: float | None = None) -> Found:
    """The size from which on ratios of times are above one: 0 if all are, infinity if none is.

    Where they are not monotone, it is the size that loses least.

    present: is kept if, at every size, it decides for a way that is as fast up to `AS_FAST`
    """
    logs, words = np.log(ratios), in_words(sizes, ratios)
    if present is not None:
        wrong = [-log if n >= present else log for n, log in zip(sizes, logs, strict=True)]
        if max(wrong) <= math.log(AS_FAST):
            return words, present
    lost = [logs[:k].clip(min=0).sum() - logs[k:].clip(max=0).sum() for k in range(len(sizes) + 1)]
    return words, [0.0, *sizes[1:], math.inf][int(np.argmin(lost))]


def fastest(sizes: Sequence[int], taken: np.ndarray, present: int) -> Found:
    """The size with the smallest median time, (rounds, sizes), unless the present one is as fast up to `AS_FAST`."""
    relative = np.median(taken / taken.min(axis=1, keepdims=True), axis=0)
    best = sizes[int(relative.argmin())]
    if present in sizes and relative[sizes.index(present)] <= AS_FAST * relative.min():
        best = present
    return in_words(sizes, relative), float(best)


def median_of(numbers: Sequence[float]) -> Found:
    return f"{min(numbers):.3g} to {max(numbers):.3g}", statistics.median(numbers)


def replaced(module: ModuleType, name: str, value: Any, function: Function) -> Function:
    """The function, with a name of a module replaced while it runs."""

    def run() -> object:
        with patch.object(module, name, value):
            return function()

    return run
