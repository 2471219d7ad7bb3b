"""LCBench: validation losses of training runs, of which nine in ten are cut (the paper's tables 1 and 3 to 7)."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from gpytorch.kernels import RBFKernel, ScaleKernel

from lkgp.curves.values import ValueScale
from lkgp.data.scaling import Scaling
from lkgp.studies import datasets
from lkgp.studies.predictions import Prediction
from lkgp.studies.problems import Problem, standardised
from lkgp.studies.registry import CASES, BenchmarkCase, CaseFamily, Design
from lkgp.studies.splits import CUT_CURVES, cut_curves, split_generator

# The columns of the configurations that were drawn uniformly in the logarithm: batch size, learning rate, number of
# units.
LOGARITHMIC = [0, 1, 5]
# The sets of the paper's first table, which are every fifth one.
MAIN_SETS = ("APSFailure", "MiniBooNE", "blood-transfusion-service-center", "covertype", "higgs", "kr-vs-kp", "segment")
ALL_CURVES, SMALL_CURVES = 2000, 400
# Curves whose predictions are kept for a figure.
EXAMPLES = 3


@dataclass(frozen=True)
class CurveUnits:
    """The units of `lkgp.curves`, in which a few diverged runs do not determine the scale.

    z = scale(shift + width y)
    """

    scale: ValueScale
    shift: float
    width: float

    def apply(self, values: np.ndarray) -> np.ndarray:
        return self.scale.apply(self.shift + self.width * values)

    def undo(self, z: np.ndarray) -> np.ndarray:
        return (self.scale.undo(z) - self.shift) / self.width

    def log_slope(self, values: np.ndarray) -> np.ndarray:
        return self.scale.log_slope(self.shift + self.width * values) + math.log(self.width)


def learning_curves(name: str = "Fashion-MNIST", curves: int = ALL_CURVES, split: int = 0) -> Problem:
    """Configurations x epochs.

    curves: number of curves, taken from the beginning, cut and standardised as in the whole set
    """
    X, Y = datasets.lcbench(name)
    observed = cut_curves(Y.shape, split_generator(split))
    whole = Scaling.standard(torch.as_tensor(Y[observed[:, -1], -1], dtype=torch.float64))
    scale = curve_scale(Y[:curves], observed[:curves])
    Y = whole.apply(torch.as_tensor(Y, dtype=torch.float64)).numpy()
    epochs = (np.log(np.arange(1, Y.shape[1] + 1)) / np.log(Y.shape[1] + 1))[:, None]
    logs = X.copy()
    logs[:, LOGARITHMIC] = np.log(X[:, LOGARITHMIC])
    return Problem(
        f"{name}, {curves} curves",
        [standardised(X)[:curves], epochs],
        Y[:curves],
        observed[:curves],
        lambda: [ScaleKernel(RBFKernel(ard_num_dims=7)), RBFKernel()],
        own_coords=[standardised(logs)[:curves], epochs],
        own_units=CurveUnits(scale, float(whole.shift), float(whole.scale)),
    )


def curve_scale(Y: np.ndarray, observed: np.ndarray) -> ValueScale:
    """The scale that `lkgp.curves` finds from the observed part of curves (runs, epochs)."""
    lengths = observed.sum(axis=1)
    begun = np.flatnonzero(lengths)
    last, every = Y[begun, lengths[begun] - 1], Y[observed]
    scale = ValueScale.of(last, every=every)
    # Losses are not shares, even if none above one was observed.
    return scale if scale.transform != "logit" else ValueScale.of(last, transform="log", every=every)


def make_problem(dataset: str, missing: float, size: int | None, seed: int) -> Problem:
    """missing: always the share of curves that the paper cuts"""
    return learning_curves(dataset, size or ALL_CURVES, seed)


def example_curves(problem: Problem, prediction: Prediction) -> dict[str, Any]:
    """Mean and two standard deviations of the first few curves that were cut near the middle.

    The curves themselves are not kept: they are read from the data again when the figure is drawn.
    """
    epochs = problem.observed.shape[1]
    length = problem.observed.sum(axis=1)
    middle = (length > epochs // 6) & (length < epochs // 2)
    rows = np.flatnonzero(middle)[:EXAMPLES]
    mean, std, undo = prediction.mean[rows], prediction.std[rows], prediction.units.undo
    arrays = {"mean": undo(mean), "low": undo(mean - 2 * std), "high": undo(mean + 2 * std)}
    rounded = {name: np.round(array, 5).tolist() for name, array in arrays.items()}
    return {"rows": rows.tolist(), "cuts": length[rows].tolist(), **rounded}


def benchmark(curves: int, comparators: tuple[str, ...], group: str = "curves") -> BenchmarkCase:
    """The benchmark on the first curves of Fashion-MNIST."""
    title = f"LCBench Fashion-MNIST, {curves} learning curves x 52 epochs, squared exponentials"
    return BenchmarkCase(
        f"learning-curves-{curves}", group, title, comparators, "Fashion-MNIST", CUT_CURVES, size=curves
    )


CASES.register(
    CaseFamily(
        "lcbench",
        make_problem,
        designs={
            "small": Design(MAIN_SETS, (CUT_CURVES,), SMALL_CURVES, seeds=2),
            "paper": Design(datasets.LCBENCH_SETS, (CUT_CURVES,), None, seeds=10),
        },
        benchmarks=(
            benchmark(100, ("lkgp", "scikit-learn")),
            benchmark(400, ("lkgp", "BoTorch LatentKroneckerGP", "the paper's settings, by its steps")),
            benchmark(2000, ("lkgp", "BoTorch LatentKroneckerGP", "the paper's settings, by its steps")),
            benchmark(400, ("lkgp", "the paper's settings"), group="curves-whole"),
        ),
        examples=example_curves,
        order=1,
    )
)
