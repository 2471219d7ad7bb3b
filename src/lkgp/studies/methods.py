"""The methods that are compared, behind one interface: a problem in, mean and standard deviation of every cell out."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from lkgp import BFGS, LKGP, Spectral
from lkgp.data.readers import Observations, from_array
from lkgp.model.model import LatentKroneckerGP
from lkgp.studies import cagp
from lkgp.studies.imaginary import ImaginaryObservationsGP
from lkgp.studies.paper_recipe import PaperRecipe, PlainRecipe
from lkgp.studies.problems import FIRST_NOISE, Problem
from lkgp.studies.units import Plain, Units
from lkgp.studies.variational import SVGP, VNNGP, RowGP

SAMPLES = 64


@dataclass(frozen=True, eq=False)
class Prediction:
    """mean, std: of an observation at every cell, (n_1, n_2), in `units`; report: what the method says about itself"""

    mean: np.ndarray
    std: np.ndarray
    report: dict[str, Any] = field(default_factory=dict)
    units: Units = field(default_factory=Plain)


class Method(Protocol):
    """Fits the observed cells of a problem and predicts all of them. `seed` is of everything random."""

    def __call__(self, problem: Problem, seed: int) -> Prediction: ...


@dataclass(frozen=True)
class Latent:
    """lkgp itself.

    own: our own kernels, coordinates and units, and default noise; else the paper's kernels from where the paper starts
    """

    own: bool
    solver: Any = "auto"
    optimizer: Any = "auto"

    def __str__(self) -> str:
        whole = "lkgp, with its own kernels, inputs and units" if self.own else "lkgp, with the paper's kernels"
        rough = (
            f", until a step gains less than {self.optimizer.improvement:g} an observation"
            if isinstance(self.optimizer, BFGS)
            else ""
        )
        return whole + (", without use of the grid" if self.solver != "auto" else "") + rough

    def __call__(self, problem: Problem, seed: int) -> Prediction:
        words: dict[str, Any] = {"solver": self.solver, "optimizer": self.optimizer, "standardize": False, "seed": seed}
        if self.own:
            coords = problem.own_coords if problem.own_coords is not None else problem.coords
            units = problem.own_units
            gp = LKGP(problem.make_own_kernels(), **words).fit(coords, units.apply(problem.seen))
        else:
            units = Plain()
            gp = LKGP(problem.make_kernels(), noise=FIRST_NOISE, **words).fit(problem.coords, problem.seen)
        mean, std = gp.predict(observation_noise=True)
        report = gp.report_.to_dict()
        del report["history"]
        return Prediction(mean, std, report, units)


@dataclass(frozen=True)
class Recipe:
    """The paper's own recipe in GPyTorch: `steps` of Adam, then mean and variance of 64 pathwise samples."""

    steps: int
    latent: bool = True

    def __str__(self) -> str:
        return f"{self.steps} steps of Adam"

    def __call__(self, problem: Problem, seed: int) -> Prediction:
        recipe = (PaperRecipe if self.latent else PlainRecipe)(
            problem.coords, problem.seen, problem.make_kernels(), seed
        )
        losses = [recipe.step()[0] for _ in range(self.steps)]
        samples = recipe.sample(SAMPLES)
        std = (samples.var(dim=0) + recipe.model.likelihood.noise.item()).sqrt()
        return Prediction(on_grid(problem, samples.mean(dim=0)), on_grid(problem, std), {"losses": losses})


@dataclass(frozen=True)
class InducingPoints:
    """SVGP."""

    inducing: int
    epochs: int
    rate: float
    batch: int = 1000

    def __str__(self) -> str:
        return f"{self.inducing} inducing points, {self.epochs} epochs at a rate of {self.rate:g}"

    def __call__(self, problem: Problem, seed: int) -> Prediction:
        coords, observed, y = rows(problem)
        gp = SVGP(coords, observed, y, problem.make_kernels(), inducing=self.inducing, batch=self.batch, seed=seed)
        return from_rows(problem, gp, self.epochs, self.rate)


@dataclass(frozen=True)
class Neighbours:
    """VNNGP."""

    neighbours: int
    epochs: int
    rate: float
    batch: int = 1000
    inducing: int = 500_000

    def __str__(self) -> str:
        return f"{self.neighbours} neighbours, {self.epochs} epochs at a rate of {self.rate:g}"

    def __call__(self, problem: Problem, seed: int) -> Prediction:
        coords, observed, y = rows(problem)
        settings: dict[str, Any] = {
            "neighbours": self.neighbours,
            "inducing": self.inducing,
            "batch": self.batch,
            "seed": seed,
        }
        return from_rows(
            problem, VNNGP(coords, observed, y, problem.make_kernels(), **settings), self.epochs, self.rate
        )


@dataclass(frozen=True)
class ComputationAware:
    """CaGP."""

    actions: int
    steps: int
    rate: float

    def __str__(self) -> str:
        return f"{self.actions} actions, {self.steps} steps of Adam"

    def __call__(self, problem: Problem, seed: int) -> Prediction:
        data, coords = observations(problem)
        model = LatentKroneckerGP(problem.make_kernels(), noise=FIRST_NOISE).double()
        gp = cagp.ComputationAwareGP(model, data, self.actions)
        bounds = cagp.fit(gp, self.steps, self.rate)
        mean, variance = gp.predict(coords)
        std = (variance + model.noise_variance().detach()).sqrt()
        return Prediction(on_grid(problem, mean), on_grid(problem, std), {"bounds": bounds})


@dataclass(frozen=True)
class ImaginaryObservations:
    """The older Kronecker method, which fills the holes with observations that tell nothing."""

    steps: int
    rate: float

    def __str__(self) -> str:
        return f"{self.steps} steps of Adam"

    def __call__(self, problem: Problem, seed: int) -> Prediction:
        data, _ = observations(problem)
        model = LatentKroneckerGP(problem.make_kernels(), noise=FIRST_NOISE).double()
        gp = ImaginaryObservationsGP(model, data)
        losses = gp.fit(self.steps, self.rate)
        mean, variance = gp.predict(SAMPLES, torch.Generator().manual_seed(seed))
        std = (variance + model.noise_variance().detach()).sqrt()
        return Prediction(
            on_grid(problem, mean), on_grid(problem, std), {"losses": losses, "iterations": gp.iterations}
        )


def observations(problem: Problem) -> tuple[Observations, list[Tensor]]:
    """The observed cells, and the coordinates, in float64."""
    data = from_array(problem.coords, problem.seen)
    return data, list(data.grid.coords)


def rows(problem: Problem) -> tuple[list[Tensor], Tensor, Tensor]:
    """Coordinates (n_k, d_k), flat indices (n,) and values (n,) of the observed cells, in float32 as in the paper."""
    coords = [torch.as_tensor(x, dtype=torch.float32) for x in problem.coords]
    observed = torch.as_tensor(problem.observed).flatten().nonzero().flatten()
    return coords, observed, torch.as_tensor(problem.values, dtype=torch.float32).flatten()[observed]


def from_rows(problem: Problem, gp: RowGP, epochs: int, rate: float) -> Prediction:
    """Fit a model of rows, and predict."""
    bounds = gp.fit(epochs, rate)
    mean, variance = gp.predict()
    return Prediction(on_grid(problem, mean), on_grid(problem, variance.sqrt()), {"bounds": bounds})


def on_grid(problem: Problem, cells: Tensor) -> np.ndarray:
    """Values of all cells (N,) as (n_1, n_2)."""
    return cells.detach().double().reshape(problem.values.shape).numpy()


PAPER_STEPS = {"sarcos": 50, "lcbench": 100, "climate": 100}

LKGP_OWN, LKGP_PAPER, RECIPE, ITERATIVE = (
    "LKGP",
    "LKGP, the paper's kernels",
    "LKGP, the paper's recipe",
    "iterative GP without the grid",
)
NAMES = (LKGP_OWN, LKGP_PAPER, RECIPE, ITERATIVE, "SVGP", "VNNGP", "CaGP", "imaginary observations")


def paper_methods(experiment: str) -> dict[str, Method]:
    """All methods with the paper's settings."""
    climate = experiment == "climate"
    steps = PAPER_STEPS[experiment]
    return {
        LKGP_OWN: Latent(own=True),
        LKGP_PAPER: Latent(own=False),
        RECIPE: Recipe(steps),
        ITERATIVE: Recipe(steps, latent=False),
        "SVGP": InducingPoints(10_000, 5, 0.001) if climate else InducingPoints(10_000, 30, 0.01),
        "VNNGP": Neighbours(256, 50, 0.001) if climate else Neighbours(256, 1000, 0.01),
        "CaGP": ComputationAware(256, 50, 0.1) if climate else ComputationAware(512, 1000, 0.1),
        "imaginary observations": ImaginaryObservations(steps, 0.1),
    }


def small_methods(experiment: str) -> dict[str, Method]:
    """All methods, with a tenth of the paper's inducing points, neighbours, actions and steps, or less; imaginary observations with all.

    The iterative exact GP without the grid is solved by our own engine here, because the paper's takes hours without a graphics card; on
    the robot to the end, to show that it is the same model.
    """
    to_the_end = BFGS(improvement=1e-4, nats=0.05)
    return {
        LKGP_OWN: Latent(own=True),
        LKGP_PAPER: Latent(own=False),
        RECIPE: Recipe(20),
        ITERATIVE: Latent(
            own=False,
            solver=Spectral(space="dense"),
            optimizer=to_the_end if experiment == "sarcos" else BFGS(improvement=1e-3),
        ),
        # Fewer steps, and so longer ones: what is learned starts far from where it ends.
        "SVGP": InducingPoints(500, 30, 0.05),
        "VNNGP": Neighbours(32, 20 if experiment == "climate" else 100, 0.05),
        "CaGP": ComputationAware(64, 100, 0.1),
        "imaginary observations": ImaginaryObservations(PAPER_STEPS[experiment], 0.1),
    }


PRESETS: dict[str, Callable[[str], dict[str, Method]]] = {"small": small_methods, "paper": paper_methods}
