"""The paper's recipe: its model, its samples, and what it would cost."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from cases import Case
from gpytorch.kernels import RBFKernel, ScaleKernel
from linear_operator.operators import MaskedLinearOperator
from study_problems import tiny_problem

from lkgp import InputError
from lkgp.studies.benchmarks import benchmark_entries
from lkgp.studies.cases.simulated_climate import simulated_climate
from lkgp.studies.comparators.paper_recipe import BY_STEPS
from lkgp.studies.models.paper_recipe import PaperRecipe, PlainRecipe
from lkgp.studies.models.recipe_costs import CostByIterations, CostBySteps
from lkgp.studies.problems import Problem
from lkgp.studies.registry import CASES, COMPARATORS
from lkgp.studies.runs import Run, perform


@pytest.fixture(scope="module")
def climate() -> Problem:
    return simulated_climate(0.3, places=12, days=20)


@pytest.fixture(scope="module")
def our_fit(climate):
    """The details of lkgp's fit of the climate."""
    return COMPARATORS.get("lkgp").settings("benchmark", "simulated climate").fit_predict(climate, 0).details


def test_both_recipes_have_the_same_covariance():
    curves = tiny_problem()
    covariances = []
    for recipe in (PaperRecipe, PlainRecipe):
        model = recipe(curves.coords, curves.seen, curves.make_kernels()).model
        model.train()
        covariances.append(model(model.coords[0]).covariance_matrix.detach())
    torch.testing.assert_close(*covariances)
    kernels = [kernel.float() for kernel in curves.make_kernels()]
    dense = [
        kernel(torch.as_tensor(x, dtype=torch.float32)).to_dense().detach()
        for kernel, x in zip(kernels, curves.coords, strict=True)
    ]
    seen = np.flatnonzero(curves.observed.ravel())
    torch.testing.assert_close(covariances[0], torch.kron(*dense)[seen][:, seen])


def test_the_steps_of_a_long_fit_are_measured_along_its_path(climate, our_fit):
    ours = our_fit
    assert set(ours["recovered"]) == set(climate.truth)
    result = CostBySteps(5).estimate_cost(climate, ours["raw parameters"])
    assert list(result.steps) == ["0", "2", "4"]
    low, high = min(result.steps.values()), max(result.steps.values())
    assert 5 * low <= result.seconds <= 5 * high
    assert result.how == "from steps 0, 2, 4 of 5"
    recipe = PaperRecipe(climate.coords, climate.seen, climate.make_kernels())
    recipe.move_towards(ours["raw parameters"], 0.1)
    assert max(float(p.detach().abs().max()) for p in recipe.model.parameters()) <= 0.1 + 1e-6
    recipe.move_towards(ours["raw parameters"], math.inf)
    length = recipe.model.kernels[1].kernels[0].raw_lengthscale.item()
    assert length == pytest.approx(ours["raw parameters"]["kernels.1.kernels.0.raw_lengthscale"][0], abs=1e-5)


def test_a_cost_is_recorded_without_scores(climate, our_fit, monkeypatch):
    """And cannot be estimated before lkgp has found an optimum."""
    family = replace(CASES.get("simulated climate"), make_problem=lambda *_: climate)
    monkeypatch.setitem(CASES.entries, "simulated climate", family)
    steps = replace(COMPARATORS.get(BY_STEPS), settings=lambda *_: CostBySteps(3))
    monkeypatch.setitem(COMPARATORS.entries, BY_STEPS, steps)
    run = Run("simulated climate", "simulated", BY_STEPS, 0, 0.3, None, "benchmark")
    result = benchmark_entries(perform(run, our_fit["raw parameters"]))
    assert result["total"] == result["seconds"]["fit"]
    assert "nll" not in result
    assert result["cells"] == 240
    with pytest.raises(InputError, match="run lkgp first"):
        perform(run)


def test_iterations_are_those_of_the_real_step(monkeypatch):
    """What is counted with one probe is what linear_operator does with all of them, nearly."""
    rng = np.random.default_rng(0)
    values = rng.standard_normal((60, 20)).cumsum(axis=1)
    values[rng.random(values.shape) < 0.3] = np.nan
    recipe = PaperRecipe(
        [rng.standard_normal((60, 2)), np.linspace(0, 1, 20)], values, [ScaleKernel(RBFKernel()), RBFKernel()]
    )
    recipe.model.likelihood.noise = 0.001
    recipe.model.kernels[1].lengthscale = 0.1
    products = []
    matmul = MaskedLinearOperator._matmul
    monkeypatch.setattr(
        MaskedLinearOperator, "_matmul", lambda self, rhs: products.append(rhs.shape) or matmul(self, rhs)
    )
    counted = recipe.iterations_of_step()
    assert len(products) == counted
    products.clear()
    recipe.step()
    assert 30 < counted < 1000
    assert products.count(products[0]) - 1 == pytest.approx(counted, rel=0.3)


def test_the_iterations_of_a_very_long_fit_are_counted_along_its_path(climate, our_fit, monkeypatch):
    # Made up, so that the sums can be checked: an iteration takes 2 s and a step 3 s besides.
    places = iter((100, 300, 500))
    monkeypatch.setattr(PaperRecipe, "iterations_of_step", lambda self: next(places))

    def step(self, max_iterations):
        return 0.0, 3.0 + 2.0 * max_iterations

    monkeypatch.setattr(PaperRecipe, "step", step)
    result = CostByIterations(5).estimate_cost(climate, our_fit["raw parameters"])
    assert result.steps == pytest.approx({"0": 203.0, "2": 603.0, "4": 1003.0})
    assert result.seconds == pytest.approx(203 + 403 + 603 + 803 + 1003)
    assert result.how == "100, 300, 500 iterations in steps 0, 2, 4 of 5, at 2 s each"


@pytest.mark.parametrize("recipe_class", [PaperRecipe, PlainRecipe])
def test_samples_of_the_recipe_are_those_of_the_posterior(recipe_class, monkeypatch):
    monkeypatch.setattr("lkgp.studies.models.paper_recipe.TOLERANCE", 1e-4)
    case = Case("two factors", (7, 6), "random")
    recipe = recipe_class(case.coords, case.y, case.kernels())
    recipe.model.likelihood.noise = case.noise
    recipe.model.mean_module.constant.data.fill_(case.mean)
    samples = recipe.sample(4000).double().numpy()
    np.testing.assert_allclose(samples.mean(axis=0), case.oracle().mean_at(case.coords).ravel(), atol=0.1)
    np.testing.assert_allclose(np.cov(samples.T), case.oracle().covariance_at(case.coords), atol=0.15)
