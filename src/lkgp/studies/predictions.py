"""What a comparator returns: predictions, or an estimate of what they would cost."""

from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import numpy as np

from lkgp.studies.problems import Problem
from lkgp.studies.units import Plain, Units

# Posterior samples that are drawn by every comparator that draws any, as in the paper.
SAMPLES = 64

# The raw parameters of a model by name, flattened.
RawParameters = dict[str, list[float]]


@dataclass(frozen=True, eq=False)
class Prediction:
    """The predictive distribution of an observation at every cell: a Gaussian in `units`.

    mean, std: (n_1, n_2)
    report: what the comparator says about itself
    units: in which the values are Gaussian
    seconds: the seconds of each stage; empty if the whole call is to be timed
    details: further entries for the record of a benchmark
    """

    mean: np.ndarray
    std: np.ndarray
    report: dict[str, Any] = field(default_factory=dict)
    units: Units = field(default_factory=Plain)
    seconds: dict[str, float] = field(default_factory=dict)
    details: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class CostEstimate:
    """The cost of a fit that would take too long to run.

    seconds: of the whole fit
    steps: the seconds of those optimiser steps that were measured, by the number of the step
    how: one phrase about how the cost was estimated
    """

    seconds: float
    steps: dict[str, float]
    how: str


@runtime_checkable
class FitsAndPredicts(Protocol):
    """Fits the observed cells of a problem and predicts all of them."""

    def fit_predict(self, problem: Problem, seed: int) -> Prediction: ...


@runtime_checkable
class EstimatesCost(Protocol):
    """Estimates what a fit would cost, given the raw parameters at which lkgp's own search ended."""

    def estimate_cost(self, problem: Problem, optimum: RawParameters) -> CostEstimate: ...


Method = FitsAndPredicts | EstimatesCost
