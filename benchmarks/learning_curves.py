"""LCBench Fashion-MNIST, first 400 curves, split 0, squared exponentials over both factors: lkgp and the paper's settings in GPyTorch.

LKGP_DATA=folder python benchmarks/learning_curves.py [--steps 100]

The paper's settings: float32, Adam with rate 0.1 for 100 steps, conjugate gradients to 0.01, pivoted Cholesky of rank 100, 10 probes.
Only its fit is timed; its predictions are then computed exactly with the hyperparameters that it found, so that its scores suffer
from nothing but its fit. For lkgp, fit, mean and standard deviation of all cells are timed.
"""

import argparse
import os
import time
import warnings
from pathlib import Path

import gpytorch
import numpy as np
import torch
from gpytorch.kernels import RBFKernel, ScaleKernel
from linear_operator.operators import KroneckerProductLinearOperator, MaskedLinearOperator

from lkgp import LKGP, metrics


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


class PaperModel(gpytorch.models.ExactGP):
    def __init__(self, X, T, y, observed, likelihood):
        super().__init__(X, y, likelihood)
        self.mean_module = gpytorch.means.ConstantMean()
        self.over_settings, self.over_time = ScaleKernel(RBFKernel(ard_num_dims=X.shape[1])), RBFKernel()
        self.T, self.observed = T, observed

    def forward(self, X):
        full = KroneckerProductLinearOperator(self.over_settings(X).evaluate_kernel(), self.over_time(self.T).evaluate_kernel())
        mean = self.mean_module(X.new_zeros(int(self.observed.sum()), 1))
        return gpytorch.distributions.MultivariateNormal(mean, MaskedLinearOperator(full, self.observed, self.observed))


def paper_settings(X, T, Y, observed, steps: int) -> tuple[PaperModel, float]:
    """The hyperparameters that the paper's recipe finds, and the seconds it took."""
    torch.manual_seed(0)
    mask = torch.as_tensor(observed).flatten()
    X, T, y = (torch.as_tensor(a, dtype=torch.float32) for a in (X, T[:, None], Y[observed]))
    model = PaperModel(X, T, y, mask, gpytorch.likelihoods.GaussianLikelihood())
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    objective = gpytorch.mlls.ExactMarginalLogLikelihood(model.likelihood, model)
    s = gpytorch.settings
    began = time.perf_counter()
    with (
        s.max_cholesky_size(1),
        s.cg_tolerance(0.01),
        s.max_preconditioner_size(100),
        s.min_preconditioning_size(1),
        s.num_trace_samples(10),
    ):
        for step in range(steps):
            optimizer.zero_grad()
            loss = -objective(model(X), y)
            loss.backward()
            optimizer.step()
            if step % 10 == 0:
                print(f"  paper's settings: step {step}, {time.perf_counter() - began:.0f} s, loss {loss.item():.3f}", flush=True)
    return model, time.perf_counter() - began


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

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model, paper_seconds = paper_settings(X, T, Y, observed, steps)
    found = LKGP(
        [model.over_settings, model.over_time],
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
