"""Scores of Gaussian predictions. All arrays have the same shape, and scores are averaged over all entries."""

import math

import torch
from torch import Tensor


def rmse(truth: Tensor, mean: Tensor) -> float:
    """Root mean squared error."""
    return float((truth - mean).square().mean().sqrt())


def mae(truth: Tensor, median: Tensor) -> float:
    """Mean absolute error."""
    return float((truth - median).abs().mean())


def interval_score(truth: Tensor, low: Tensor, high: Tensor, level: float) -> float:
    """Mean interval score (Gneiting and Raftery, 2007) of central intervals of probability `level`: less is better.

    low, high: the ends of the intervals
    """
    # (u - l) + 2 / a ((l - y)_+ + (y - u)_+),  a = 1 - level
    outside = (low - truth).clamp(min=0) + (truth - high).clamp(min=0)
    return float((high - low + 2 / (1 - level) * outside).mean())


def nll(truth: Tensor, mean: Tensor, std: Tensor) -> float:
    """Mean negative log density of `truth` under N(mean, std^2)."""
    z = (truth - mean) / std
    return float((0.5 * z.square() + std.log() + 0.5 * math.log(2 * math.pi)).mean())


def crps(truth: Tensor, mean: Tensor, std: Tensor) -> float:
    """Mean continuous ranked probability score of N(mean, std^2), in the units of `truth`."""
    z = (truth - mean) / std
    density = torch.exp(-0.5 * z.square()) / math.sqrt(2 * math.pi)
    return float((std * (z * torch.erf(z / math.sqrt(2)) + 2 * density - 1 / math.sqrt(math.pi))).mean())


def coverage(truth: Tensor, mean: Tensor, std: Tensor, level: float) -> float:
    """Fraction of `truth` inside the central prediction interval of probability `level`."""
    half_width = math.sqrt(2) * torch.erfinv(torch.tensor(level, dtype=torch.float64)).item()
    return float(((truth - mean).abs() <= half_width * std).double().mean())
