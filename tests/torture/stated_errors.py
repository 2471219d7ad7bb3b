"""How often is the truth more than three stated standard errors away?

Random problems against the dense model: the log-likelihood with its standard error, standard deviations with their
relative standard error, and the covariance of posterior draws with the standard error of a sample covariance. A result
that came with a warning or an error is counted as said, and not judged.

    python tests/torture/stated_errors.py --count 400
"""

import argparse
import math
import sys
import warnings
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from gpytorch.kernels import MaternKernel, PeriodicKernel, RBFKernel, ScaleKernel

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
from oracle import kronecker, matern52, periodic, squared_exponential

from lkgp import LKGP, Direct, Iterative, LeadingModes, Nystrom, ObservationSpace, PivotedCholesky, Spectral
from lkgp.errors import ConvergenceError, ConvergenceWarning

WAYS = {
    "direct": Direct(),
    "spectral": Spectral(),
    "spectral, float64": Spectral(precision="float64"),
    "spectral, few probes": Spectral(num_probes=2, lanczos_steps=10),
    "observation space": ObservationSpace(),
    "observation space, dense": ObservationSpace(dense=True),
    "observation space, rank 5": ObservationSpace(preconditioner=LeadingModes(5)),
    "observation space, Nystrom": ObservationSpace(preconditioner=Nystrom(20), precision="float64"),
    "observation space, no preconditioner": ObservationSpace(preconditioner=None),
    "iterative": Iterative(),
    "iterative, rank 5": Iterative(preconditioner=PivotedCholesky(5)),
}
GAPS = ("random", "sparse", "row", "block", "staircase", "one missing", "all but one", "none")
KINDS = ("rbf", "matern", "periodic")
# The share of results beyond three standard errors that is allowed; of normal errors it is 0.27 %.
ALLOWED = 0.01
# Draws per problem for their covariance.
DRAWS = 256
# Cells whose covariance is compared.
COMPARED = 12


@dataclass
class Problem:
    """A random problem, made from its seed alone.

    coords: (n_k, 1) each; y: (n_1, ..., n_d), NaN where missing; noise: a number, or (n_1, ..., n_d) if it is known
    """

    seed: int

    def __post_init__(self):
        rng = np.random.default_rng([self.seed, 21])
        factors = int(rng.choice([1, 2, 2, 2, 3]))
        longest = {1: 80, 2: 14, 3: 6}[factors]
        self.shape = tuple(int(rng.integers(2, longest + 1)) for _ in range(factors))
        self.kinds = [str(rng.choice(KINDS)) for _ in self.shape]
        self.lengths = [float(np.exp(rng.uniform(np.log(0.1), np.log(2.0)))) for _ in self.shape]
        self.scale = float(np.exp(rng.uniform(np.log(0.1), np.log(10.0))))
        self.mean = float(rng.normal())
        self.single = bool(rng.random() < 0.3)
        regular = rng.random() < 0.5
        self.coords = [
            (np.linspace(0, 2, n) if regular else np.sort(rng.uniform(0, 2, n)))[:, None] for n in self.shape
        ]
        lowest = 1e-4 if self.single else 1e-8
        noise = self.scale * float(np.exp(rng.uniform(np.log(lowest), np.log(1e2))))
        self.gaps = str(rng.choice(GAPS))
        self.known = bool(rng.random() < 0.3)
        spread = np.exp(rng.uniform(-1, 1) * rng.uniform(0, 7, self.shape)) if self.known else 1.0
        self.noise = noise * spread
        if self.single:
            self.coords = [x.astype(np.float32).astype(float) for x in self.coords]
        observed = self._observed(rng)
        values, vectors = np.linalg.eigh(self.prior(self.coords))
        latent = vectors @ (np.sqrt(values.clip(0)) * rng.normal(size=len(values)))
        y = self.mean + latent.reshape(self.shape) + np.sqrt(self.noise) * rng.normal(size=self.shape)
        y = y.astype(np.float32).astype(float) if self.single else y
        self.y = np.where(observed, y, np.nan)
        self.index = np.flatnonzero(observed.ravel())

    def _observed(self, rng):
        observed = np.ones(self.shape, dtype=bool)
        if self.gaps in ("random", "sparse"):
            observed = rng.random(self.shape) < (0.7 if self.gaps == "random" else 0.2)
        elif self.gaps == "row":
            observed[rng.integers(self.shape[0])] = False
        elif self.gaps == "block":
            observed[tuple(slice(int(rng.integers(1, n)), None) for n in self.shape)] = False
        elif self.gaps == "staircase":
            for row in observed.reshape(-1, self.shape[-1]):
                row[int(rng.integers(1, self.shape[-1] + 1)) :] = False
        elif self.gaps == "one missing":
            observed.ravel()[rng.integers(observed.size)] = False
        elif self.gaps == "all but one":
            observed[:] = False
        if not observed.any():
            observed.ravel()[rng.integers(observed.size)] = True
        return observed

    # The library's model

    def kernels(self):
        made = []
        for kind, length in zip(self.kinds, self.lengths, strict=True):
            kernel = {"rbf": RBFKernel, "matern": MaternKernel, "periodic": PeriodicKernel}[kind]().double()
            if kind == "periodic":
                kernel.period_length = torch.tensor(0.9, dtype=torch.float64)
            kernel.lengthscale = torch.tensor(length, dtype=torch.float64)
            made.append(kernel)
        made[0] = ScaleKernel(made[0]).double()
        made[0].outputscale = torch.tensor(self.scale, dtype=torch.float64)
        return made

    def fitted(self, way):
        noise = {"noise": 0.1 if self.known else self.noise}
        dtype = torch.float32 if self.single else torch.float64
        gp = LKGP(self.kernels(), mean=self.mean, standardize=False, solver=way, dtype=dtype, seed=self.seed, **noise)
        return gp.fit(self.coords, self.y, noise_variance=self.noise if self.known else None, optimize=False)

    # The dense model

    def prior(self, new):
        functions = {"rbf": squared_exponential, "matern": matern52}
        matrices = [
            periodic(x, x, length, 0.9) if kind == "periodic" else functions[kind](x, x, length)
            for kind, length, x in zip(self.kinds, self.lengths, new, strict=True)
        ]
        return self.scale * kronecker(matrices)

    def truth(self):
        """log p(y), and the posterior covariance (N, N) of all cells, without a difference of large numbers.

        With K = U U^T and [I; D^-1/2 P U] = Q R: the covariance is U R^-1 R^-T U^T.
        """
        values, vectors = np.linalg.eigh(self.prior(self.coords))
        root = vectors * np.sqrt(values.clip(0))
        variance = np.broadcast_to(self.noise, self.shape).ravel()[self.index]
        whitened = root[self.index] / np.sqrt(variance)[:, None]
        triangle = np.linalg.qr(np.vstack([np.eye(len(root)), whitened]), mode="r")
        spread = np.linalg.solve(triangle.T, root.T)
        y = (self.y.ravel()[self.index] - self.mean) / np.sqrt(variance)
        # y^T A^-1 y is the squared residual of the ridge regression of y on the modes
        augmented = np.vstack([np.eye(len(root)), whitened])
        target = np.concatenate([np.zeros(len(root)), y])
        fit = np.linalg.lstsq(augmented, target, rcond=None)[0]
        quadratic = np.square(target - augmented @ fit).sum()
        logdet = 2 * np.log(np.abs(np.diag(triangle))).sum() + np.log(variance).sum()
        return -0.5 * (quadratic + logdet + len(y) * math.log(2 * math.pi)), spread.T @ spread


class Tally:
    """Shares beyond three stated standard errors, by way of inference and quantity: one number for every problem."""

    def __init__(self):
        self.shares, self.worst, self.said = defaultdict(list), defaultdict(float), defaultdict(int)
        self.cases = defaultdict(list)

    def judge(self, way, quantity, z, seed):
        """z: how many stated standard errors the results are off, any shape."""
        z = np.abs(np.nan_to_num(np.asarray(z, dtype=float), nan=np.inf)).ravel()
        share = float((z > 3).mean())
        self.shares[quantity, way].append(share)
        self.worst[quantity, way] = max(self.worst[quantity, way], float(z.max()))
        if z.max() > 6 or share > 0.2:
            self.cases[quantity, way].append((float(z.max()), seed))

    def lines(self):
        """A table, and whether every share is below what is allowed, as far as chance lets us tell."""
        yield f"{'quantity':20} {'way of inference':38} {'cases':>6} {'said':>5} {'beyond 3':>9} {'worst':>9}"
        self.fine = True
        for key in sorted(self.shares):
            shares = np.array(self.shares[key])
            doubt = 2 * max(shares.std(), math.sqrt(ALLOWED)) / math.sqrt(len(shares))
            failed = shares.mean() - doubt >= ALLOWED
            self.fine &= not failed
            line = f"{key[0]:20} {key[1]:38} {len(shares):6d} {self.said[key]:5d} {shares.mean():9.2%}"
            yield f"{line} {self.worst[key]:9.3g}{'  TOO MANY' if failed else ''}"
            worst = sorted(self.cases[key], reverse=True)[:6]
            if worst:
                yield "    " + ", ".join(f"seed {seed}: {z:.3g}" for z, seed in worst)


def said(call):
    """The result of a call, and whether it came with a warning or an error about its accuracy."""
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        try:
            result = call()
        except (ConvergenceError, torch.linalg.LinAlgError):
            return None, True
    return result, any(issubclass(w.category, ConvergenceWarning) for w in heard)


def check(problem, name, way, tally):
    seed = problem.seed
    likelihood, covariance = problem.truth()
    std = np.sqrt(np.diag(covariance))
    gp, warned = said(lambda: problem.fitted(way))
    if warned:
        for quantity in ("likelihood", "report's likelihood", "standard deviation", "sample covariance"):
            tally.said[quantity, name] += 1
        return
    # what double precision leaves of the dense log-likelihood
    rounding = 1e-8 * (1 + abs(likelihood)) / 3
    value, error = gp.posterior_.log_likelihood()
    tally.judge(name, "likelihood", (value - likelihood) / (error + rounding), seed)
    report = gp.report_
    off = report.log_likelihood - likelihood
    tally.judge(name, "report's likelihood", off / (report.log_likelihood_error + rounding), seed)
    found, warned = said(gp.predict)
    if warned:
        tally.said["standard deviation", name] += 1
    else:
        # exact ones may be off by a thousandth
        stated = max(gp.posterior_.variance_error, 1e-3)
        tally.judge(name, "standard deviation", (found[1].ravel() / std - 1) / stated, seed)
    draws, warned = said(lambda: gp.sample(DRAWS, seed=seed + 1))
    if warned:
        tally.said["sample covariance", name] += 1
        return
    rng = np.random.default_rng(seed)
    cells = rng.permutation(draws[0].size)[:COMPARED]
    deviations = draws.reshape(DRAWS, -1)[:, cells] - found[0].ravel()[cells]
    # of the product of two normal numbers: sqrt((C_ii C_jj + C_ij^2) / s)
    true = covariance[np.ix_(cells, cells)]
    error = np.sqrt((np.outer(np.diag(true), np.diag(true)) + true**2) / DRAWS)
    upper = np.triu_indices(len(cells))
    tally.judge(name, "sample covariance", ((deviations.T @ deviations / DRAWS - true) / error)[upper], seed)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=300, help="number of random problems for every way of inference")
    parser.add_argument("--first", type=int, default=0, help="seed of the first problem")
    parser.add_argument("--way", action="append", choices=[*WAYS], help="only this way of inference; may be repeated")
    options = parser.parse_args()
    torch.set_num_threads(1)
    tally = Tally()
    for seed in range(options.first, options.first + options.count):
        problem = Problem(seed)
        for name in options.way or WAYS:
            check(problem, name, WAYS[name], tally)
    for line in tally.lines():
        print(line)
    return 0 if tally.fine else 1


if __name__ == "__main__":
    sys.exit(main())
