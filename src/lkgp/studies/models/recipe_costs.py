"""What the paper's recipe costs where all of its steps would take hours: measured at a few points along its path.

Adam with a learning rate of 0.1 moves every raw parameter by about 0.1 per step. The path is taken to be straight, from
the start to the optimum that lkgp found, and to stay there. The cost of the steps in between is interpolated, and
samples are not counted.
"""

import math
from dataclasses import dataclass

import numpy as np

from lkgp.studies.models.paper_recipe import RATE, PaperRecipe
from lkgp.studies.predictions import CostEstimate, RawParameters
from lkgp.studies.problems import Problem

# Steps of the path that are measured: the first, the middle and the last one. More are more exact and take longer.
PATH_POINTS = 3
# Steps are cut off after so few iterations to measure what an iteration takes, and what a step takes besides.
# Neither is below linear_operator's least number of iterations; larger ones are more exact and take longer.
CUT_ITERATIONS = (20, 50)


def measured_steps(steps: int) -> list[int]:
    """The numbers of the steps along the path whose cost is measured."""
    return [round(i * (steps - 1) / (PATH_POINTS - 1)) for i in range(PATH_POINTS)]


def interpolated(steps: int, measured: list[float], how: str) -> CostEstimate:
    """The cost of a fit from the seconds of its `measured_steps`."""
    numbers = measured_steps(steps)
    seconds = float(np.interp(np.arange(steps), numbers, measured).sum())
    return CostEstimate(seconds, dict(zip(map(str, numbers), measured, strict=True)), how)


def recipe_at(
    recipe_class: type[PaperRecipe], problem: Problem, optimum: RawParameters, distance: float
) -> PaperRecipe:
    """The recipe, moved along its path by a distance in raw parameters."""
    recipe = recipe_class(problem.coords, problem.seen, problem.make_kernels())
    recipe.move_towards(optimum, distance)
    return recipe


@dataclass(frozen=True)
class CostBySteps:
    """Measures single steps along the path."""

    steps: int
    recipe_class: type[PaperRecipe] = PaperRecipe

    def estimate_cost(self, problem: Problem, optimum: RawParameters) -> CostEstimate:
        numbers = measured_steps(self.steps)
        measured = [recipe_at(self.recipe_class, problem, optimum, RATE * number).step()[1] for number in numbers]
        return interpolated(self.steps, measured, f"from steps {', '.join(map(str, numbers))} of {self.steps}")


@dataclass(frozen=True)
class CostByIterations:
    """Counts iterations along the path, and multiplies them by what one takes, where even one step takes many minutes.

    The iterations are counted with one probe that stands for all, and always with the grid: without it the matrix is
    the same, and so is their number.
    """

    steps: int
    recipe_class: type[PaperRecipe] = PaperRecipe

    def estimate_cost(self, problem: Problem, optimum: RawParameters) -> CostEstimate:
        numbers = measured_steps(self.steps)
        counts = [recipe_at(PaperRecipe, problem, optimum, RATE * number).iterations_of_step() for number in numbers]
        recipe = recipe_at(self.recipe_class, problem, optimum, math.inf)
        few, many = CUT_ITERATIONS
        short, long = (recipe.step(max_iterations=cut)[1] for cut in CUT_ITERATIONS)
        # seconds of a step = rest + each * iterations
        each = (long - short) / (many - few)
        rest = short - few * each
        where = f"in steps {', '.join(map(str, numbers))} of {self.steps}"
        how = f"{', '.join(map(str, counts))} iterations {where}, at {each:.3g} s each"
        return interpolated(self.steps, [rest + each * count for count in counts], how)
