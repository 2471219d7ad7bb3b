"""The iterative exact GP without use of the grid: the same model and recipe as the paper's, with one dense matrix."""

from lkgp import BFGS, ObservationSpace
from lkgp.studies.comparators.lkgp import FitLKGP
from lkgp.studies.comparators.paper_recipe import FitRecipe
from lkgp.studies.models.paper_recipe import PlainRecipe, paper_steps
from lkgp.studies.models.recipe_costs import CostByIterations, CostBySteps
from lkgp.studies.predictions import Method
from lkgp.studies.registry import BENCHMARK, COMPARATORS, Comparator

ITERATIVE = "iterative GP without the grid"
BY_STEPS, BY_ITERATIONS = f"{ITERATIVE}, by its steps", f"{ITERATIVE}, by its iterations"


def settings(preset: str, experiment: str) -> Method:
    if preset == BENCHMARK:
        return FitRecipe(paper_steps(experiment), PlainRecipe, exact=True)
    if preset == "paper":
        return FitRecipe(paper_steps(experiment), PlainRecipe)
    # The paper's recipe takes hours without a graphics card, so the small preset solves the same model with our own
    # engine. On the robot arm the search goes on until it no longer improves, to show that the model with the grid is
    # the same.
    to_the_end = BFGS(improvement=1e-4, gain_per_parameter=0.05)
    optimizer = to_the_end if experiment == "sarcos" else BFGS(improvement=1e-3)
    return FitLKGP(own=False, solver=ObservationSpace(dense=True), optimizer=optimizer)


# A dense matrix over the observed cells of the climate is too large for most machines.
COMPARATORS.register(Comparator(ITERATIVE, settings, order=4, skips=("climate",)))
COMPARATORS.register(
    Comparator(
        BY_STEPS,
        lambda _preset, experiment: CostBySteps(paper_steps(experiment), PlainRecipe),
        presets=(BENCHMARK,),
        order=41,
    )
)
COMPARATORS.register(
    Comparator(
        BY_ITERATIONS,
        lambda _preset, experiment: CostByIterations(paper_steps(experiment), PlainRecipe),
        presets=(BENCHMARK,),
        order=42,
    )
)
