"""The paper's own recipe in GPyTorch: a fixed number of steps of Adam, then pathwise samples."""

import time
from dataclasses import dataclass
from typing import Any

from lkgp import LKGP
from lkgp.studies.models.grids import on_grid
from lkgp.studies.models.paper_recipe import PaperRecipe, paper_steps
from lkgp.studies.models.recipe_costs import CostByIterations, CostBySteps
from lkgp.studies.predictions import SAMPLES, Prediction
from lkgp.studies.problems import Problem
from lkgp.studies.registry import BENCHMARK, COMPARATORS, PRESETS, Comparator

RECIPE = "LKGP, the paper's recipe"
SETTINGS = "the paper's settings"
BY_STEPS, BY_ITERATIONS = f"{SETTINGS}, by its steps", f"{SETTINGS}, by its iterations"


@dataclass(frozen=True)
class FitRecipe:
    """All steps of the recipe, and 64 samples.

    exact: predict exactly with the hyperparameters that were found, instead of by the samples' mean and variance
    """

    steps: int
    recipe_class: type[PaperRecipe] = PaperRecipe
    exact: bool = False

    def __str__(self) -> str:
        return f"{self.steps} steps of Adam"

    def fit_predict(self, problem: Problem, seed: int) -> Prediction:
        recipe = self.recipe_class(problem.coords, problem.seen, problem.make_kernels(), seed)
        losses, times = zip(*(recipe.step() for _ in range(self.steps)), strict=True)
        began = time.perf_counter()
        samples = recipe.sample(SAMPLES)
        seconds = {"fit": sum(times), "samples": time.perf_counter() - began}
        model = recipe.model
        noise = model.likelihood.noise.item()
        if self.exact:
            mean = model.mean_module.constant.item()
            return exact_prediction(problem, list(model.kernels), mean, noise, seconds, {"losses": list(losses)})
        std = (samples.var(dim=0) + noise).sqrt()
        return Prediction(
            on_grid(problem, samples.mean(dim=0)), on_grid(problem, std), {"losses": list(losses)}, seconds=seconds
        )


def exact_prediction(
    problem: Problem,
    kernels: list[Any],
    mean: float,
    noise: float,
    seconds: dict[str, float],
    details: dict[str, Any],
) -> Prediction:
    """Exact predictions, and the log-likelihood, with the hyperparameters that another package has found.

    seconds, details: of the fit, to which the log-likelihood is added
    """
    gp = LKGP(kernels, mean=mean, noise=noise, standardize=False).fit(problem.coords, problem.seen, optimize=False)
    grid_mean, grid_std = gp.predict(observation_noise=True)
    details = {**details, "log likelihood": gp.report_.log_likelihood}
    return Prediction(grid_mean, grid_std, seconds=seconds, details=details)


def recipe_settings(preset: str, experiment: str) -> FitRecipe:
    return FitRecipe(paper_steps(experiment) if preset == "paper" else 20)


COMPARATORS.register(Comparator(RECIPE, recipe_settings, presets=PRESETS, order=3))
COMPARATORS.register(
    Comparator(
        SETTINGS,
        lambda _preset, experiment: FitRecipe(paper_steps(experiment), exact=True),
        presets=(BENCHMARK,),
        order=30,
    )
)
COMPARATORS.register(
    Comparator(
        BY_STEPS, lambda _preset, experiment: CostBySteps(paper_steps(experiment)), presets=(BENCHMARK,), order=31
    )
)
COMPARATORS.register(
    Comparator(
        BY_ITERATIONS,
        lambda _preset, experiment: CostByIterations(paper_steps(experiment)),
        presets=(BENCHMARK,),
        order=32,
    )
)
