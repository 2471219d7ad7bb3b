"""LCBench Fashion-MNIST, first 400 curves, split 0, squared exponentials over both factors: lkgp and the paper's settings in GPyTorch.

LKGP_DATA=folder python benchmarks/learning_curves.py [--steps 100]

The paper's settings: float32, Adam with rate 0.1 for 100 steps, conjugate gradients to 0.01, pivoted Cholesky of rank 100, 10 probes.
Only its fit is timed; its predictions are then computed exactly with the hyperparameters that it found, so that its scores suffer
from nothing but its fit. For lkgp, fit, mean and standard deviation of all cells are timed.
"""

import argparse
import os
import time
from pathlib import Path

import numpy as np
import torch
from gpytorch.kernels import RBFKernel, ScaleKernel

from lkgp import LKGP, metrics
from lkgp.benchmarks.paper_recipe import PaperRecipe


def load(curves: int = 400, split: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Settings (curves, 7), time (52,), standardised losses (curves, 52) and which were observed, split as in the paper."""
    if "LKGP_DATA" not in os.environ:
        raise SystemExit("set LKGP_DATA to the folder that holds lcbench/Fashion-MNIST.npz")
    with np.load(Path(os.environ["LKGP_DATA"]) / "lcbench" / "Fashion-MNIST.npz") as table:
        X, Y = table["X"], table["Y"]
    # The published splits were drawn from NumPy's old global generator.
    generator = np.random.RandomState(2025 + split)
    observed = np.ones(Y.shape, dtype=bool)
    for i in generator.choice(len(Y), int(0.9 * len(Y)), replace=False):
        observed[i, generator.randint(Y.shape[1]) :] = False
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    finals = Y[observed[:, -1], -1]
    Y = (Y - finals.mean()) / finals.std()
    T = np.log(np.arange(1, 53)) / np.log(53)
    return X[:curves], T, Y[:curves], observed[:curves]


def paper_fit(X, T, Y, observed, steps: int) -> tuple[PaperRecipe, float]:
    """The paper's recipe after its steps, and the seconds they took."""
    recipe = PaperRecipe([X, T], np.where(observed, Y, np.nan), [ScaleKernel(RBFKernel(ard_num_dims=7)), RBFKernel()])
    total = 0.0
    for step in range(steps):
        loss, seconds = recipe.step()
        total += seconds
        if step % 10 == 0:
            print(f"  paper's settings: step {step}, {total:.0f} s, loss {loss:.3f}", flush=True)
    return recipe, total


def scores(name: str, truth, mean, std, seconds: float) -> None:
    y, m, s = (torch.as_tensor(a) for a in (truth, mean, std))
    print(f"{name:>34}: test NLL {metrics.nll(y, m, s):6.3f}, RMSE {metrics.rmse(y, m):6.3f}, {seconds:6.1f} s", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=100)
    steps = parser.parse_args().steps
    X, T, Y, observed = load()
    seen, hidden = np.where(observed, Y, np.nan), ~observed
    print(f"{observed.sum()} of {observed.size} cells observed, {torch.get_num_threads()} threads")

    began = time.perf_counter()
    kernels = [ScaleKernel(RBFKernel(ard_num_dims=7)), RBFKernel()]
    gp = LKGP(kernels, noise=0.693, standardize=False).fit([X, T], seen)
    mean, std = gp.predict(observation_noise=True)
    seconds = time.perf_counter() - began
    print(gp.report_)
    print(f"log likelihood by observation {gp.log_marginal_likelihood() / observed.sum():.4f}")
    scores("lkgp", Y[hidden], mean[hidden], std[hidden], seconds)

    recipe, paper_seconds = paper_fit(X, T, Y, observed, steps)
    model = recipe.model
    found = LKGP(
        list(model.kernels),
        mean=model.mean_module.constant.item(),
        noise=model.likelihood.noise.item(),
        standardize=False,
    ).fit([X, T], seen, optimize=False)
    print(f"log likelihood by observation {found.log_marginal_likelihood() / observed.sum():.4f}")
    mean, std = found.predict(observation_noise=True)
    scores("the paper's settings in GPyTorch", Y[hidden], mean[hidden], std[hidden], paper_seconds)
    print(f"time of the paper's fit / time of lkgp: {paper_seconds / seconds:.1f}")


if __name__ == "__main__":
    main()
