"""Small random problems whose likelihood has several optima, and the best optimum that random restarts find."""

import copy
from dataclasses import dataclass

import numpy as np
import torch
from gpytorch.kernels import ConstantKernel, Kernel, MaternKernel, RBFKernel, ScaleKernel

from lkgp import Direct, from_array
from lkgp.fitting.objective import Objective
from lkgp.fitting.optimizers import BFGS, LBFGS
from lkgp.fitting.search import fit
from lkgp.gp.new_model import new_model

KINDS = ("clusters", "trend", "scales", "waves", "irregular", "columns", "rough", "noise", "offsets", "sum")
GAPS = ("random", "rows", "block", "stairs", "none")


@dataclass(frozen=True, eq=False)
class RandomProblem:
    """Values on a grid with gaps, and kernels to fit to them.

    coords: one array (n_k,) or (n_k, d_k) per factor
    values: (n_1, ..., n_d), NaN where missing
    kernels: one per factor; None for the default ones
    """

    name: str
    coords: list[np.ndarray]
    values: np.ndarray
    kernels: list[Kernel] | None

    @classmethod
    def draw(cls, seed: int) -> "RandomProblem":
        """The problem of one seed; seeds in a row take turns at the kinds of function and of gaps."""
        rng = np.random.default_rng(seed)
        kind = KINDS[seed % len(KINDS)]
        coords = [points(kind, rng), np.sort(rng.uniform(0, rng.uniform(1, 50), rng.integers(6, 12)))]
        if rng.random() < 0.3:
            coords = [coords[0][: 2 * len(coords[0]) // 3], coords[1][:7], np.linspace(-1, 1, rng.integers(3, 5))]
        elif rng.random() < 0.4:
            coords = coords[::-1]
        values = function(kind, coords, rng)
        values = values / values.std() * 10 ** rng.uniform(-2, 3)
        values = values + values.std() * 10 ** rng.uniform(-2.5, -0.3) * rng.normal(size=values.shape)
        gaps = GAPS[rng.integers(len(GAPS))]
        return cls(f"{seed} {kind}, gaps {gaps}", coords, with_gaps(values, gaps, rng), kernels(kind, coords))

    def prepared(self):
        """Model with the hyperparameters that a fit starts from, and its data, both in standard units."""
        observations = from_array(self.coords, self.values)
        model, standardization = new_model(observations, self.kernels, None, 0.05, True)
        return model.double(), standardization.apply(observations)


def points(kind: str, rng: np.random.Generator) -> np.ndarray:
    """The points of the longest factor, (n,) or (n, d)."""
    count = int(rng.integers(16, 32))
    if kind == "clusters":
        centres = np.cumsum(rng.uniform(20, 60, rng.integers(2, 4)))
        return np.sort(rng.choice(centres, count) + rng.uniform(0, rng.uniform(1, 4), count))
    if kind == "irregular":
        return np.sort(10 ** rng.uniform(-2, 1, count))
    if kind == "columns":
        return rng.normal(size=(count, rng.integers(2, 5)))
    return np.sort(rng.uniform(0, 10 ** rng.uniform(-1, 3), count)) if rng.random() < 0.5 else np.arange(float(count))


def function(kind: str, coords: list[np.ndarray], rng: np.random.Generator) -> np.ndarray:
    """A function of the kind at every cell of the grid, (n_1, ..., n_d)."""
    cell = {"clusters": (0.02, 0.08), "scales": (0.05, 0.15), "rough": (0.05, 0.3)}.get(kind, (0.2, 1.0))
    short = smooth(coords, rng, *cell)
    long = smooth(coords, rng, 0.7, 3.0)
    if kind == "trend":
        slopes = [unit(x) for x in coords]
        grid = np.meshgrid(*slopes, indexing="ij")
        return 4 * grid[0] + 2 * grid[1] * grid[0] + rng.uniform(0.2, 1) * smooth(coords, rng, 0.05, 0.2)
    if kind == "waves":
        phase = np.meshgrid(*[2 * np.pi * rng.uniform(1, 4) * unit(x) for x in coords], indexing="ij")
        return np.sin(sum(phase)) + 0.5 * np.cos(2 * phase[0])
    if kind == "scales":
        return rng.uniform(0.5, 3) * long + short
    if kind == "noise":
        return 0.3 * long + rng.normal(size=long.shape)
    if kind in ("offsets", "sum"):
        offset = smooth(coords[:1], rng, 0.05, 0.6).reshape(-1, *[1] * (len(coords) - 1))
        return rng.uniform(0.5, 3) * offset + (short if kind == "offsets" else smooth(coords, rng, 0.05, 0.2))
    return short


def unit(x: np.ndarray) -> np.ndarray:
    """The first column of some points, from 0 to 1, (n,)."""
    first = x.reshape(len(x), -1)[:, 0]
    return (first - first.min()) / (np.ptp(first) or 1.0)


def smooth(coords: list[np.ndarray], rng: np.random.Generator, low: float, high: float) -> np.ndarray:
    """A draw of a product of Matern-5/2 kernels with lengths from `low` to `high` standard deviations, (n_1, ...)."""
    draw = rng.normal(size=[len(x) for x in coords])
    for k, x in enumerate(coords):
        columns = x.reshape(len(x), -1) / x.reshape(len(x), -1).std(axis=0)
        columns = columns / np.exp(rng.uniform(np.log(low), np.log(high), columns.shape[1]))
        r = np.sqrt(5) * np.sqrt(((columns[:, None] - columns) ** 2).sum(axis=-1))
        values, vectors = np.linalg.eigh((1 + r + r**2 / 3) * np.exp(-r))
        draw = np.moveaxis(np.tensordot(vectors * np.sqrt(values.clip(0)), draw, (1, k)), 0, k)
    return draw


def with_gaps(values: np.ndarray, gaps: str, rng: np.random.Generator) -> np.ndarray:
    """Values with NaN in a pattern."""
    values, shape = values.copy(), values.shape
    if gaps == "random":
        values[rng.random(shape) < rng.uniform(0.1, 0.6)] = np.nan
    elif gaps == "rows":
        values[rng.random(shape[0]) < 0.25] = np.nan
        values[:, rng.random(shape[1]) < 0.2] = np.nan
    elif gaps == "block":
        values[shape[0] // 3 : 2 * shape[0] // 3, shape[1] // 3 : 2 * shape[1] // 3] = np.nan
    elif gaps == "stairs":
        for row in values:
            row[rng.integers(2, shape[1] + 1) :] = np.nan
    return values


def kernels(kind: str, coords: list[np.ndarray]) -> list[Kernel] | None:
    """Kernels that suit the kind of problem; None for the default ones."""
    if kind not in ("offsets", "sum", "rough"):
        return None

    def matern(x: np.ndarray, nu: float) -> Kernel:
        return MaternKernel(nu=nu, ard_num_dims=x.reshape(len(x), -1).shape[1])

    if kind == "rough":
        return [ScaleKernel(matern(coords[0], 0.5)), *(matern(x, 1.5) for x in coords[1:])]
    first, second, *rest = [matern(x, 2.5) for x in coords]
    added = ConstantKernel() if kind == "offsets" else ScaleKernel(RBFKernel())
    return [ScaleKernel(first), second + added, *rest]


def objective_of(model, data) -> Objective:
    """Log likelihood plus log prior, exact."""
    return Objective(model, data, Direct(max_size=data.grid.num_observed))


def fitted_objective(problem: RandomProblem, compare_starts: bool = True) -> float:
    """The objective at the end of a fit with default settings, in nats.

    compare_starts: False begins at the given hyperparameters only
    """
    model, data = problem.prepared()
    found = fit(model, data, compare_starts=compare_starts).model
    return float(objective_of(found, data).evaluate().value)


def restarted_objectives(problem: RandomProblem, restarts: int, seed: int = 0) -> list[float]:
    """The objective at the optima that searches from random hyperparameters find, in nats, at most (restarts,)."""
    rng = np.random.default_rng([seed, restarts])
    found = []
    for _ in range(restarts):
        model, data = problem.prepared()
        objective = objective_of(copy.deepcopy(model), data)
        start = objective.parameters.get()
        for name, p in objective.model.named_parameters():
            where = list(objective.parameters.positions(p))
            low, high = (-7.0, -0.5) if "noise" in name else (-3.0, 2.0)
            start[where] = rng.uniform(low, high, len(where)) if "mean" not in name else 0.0
        objective.parameters.set(start)
        try:
            BFGS(max_steps=200).maximise(objective)
            LBFGS().maximise(objective)
        except (np.linalg.LinAlgError, torch.linalg.LinAlgError):
            continue
        found.append(objective.best_value)
    return found
