"""Which way of inference is chosen for which shape, and that the choice compares predicted costs."""

import numpy as np
import pytest
import torch
from cases import Case
from gpytorch.kernels import MaternKernel, RBFKernel, ScaleKernel

from lkgp import LKGP, Direct, LatentKroneckerGP, ObservationSpace, Spectral, from_array, plan
from lkgp.inference.choice import CHEAP_FIT, CHEAP_POSTERIOR, WORTH
from lkgp.inference.costs import FactorRanks, PlanningProblem, block_solve
from lkgp.inference.direct import direct_cost
from lkgp.inference.spectral import spectral_cost

FORCED = (Direct(), Spectral(), ObservationSpace(), ObservationSpace(dense=True))


def points(n, columns, rng):
    """In a cube of variance one: a lattice in one dimension, random places in several."""
    return np.linspace(-1.7, 1.7, n)[:, None] if columns == 1 else rng.uniform(-1.7, 1.7, (n, columns))


def problem(shape, gaps, length, noise, columns=None, nu=None):
    """A model with the same length scale everywhere, and data with gaps of some kind; values do not matter to a plan.

    gaps: the fraction of cells that are missing at random, the number of cells that are observed, or "cut" for rows
        that end somewhere
    """
    rng, dims = np.random.default_rng(0), columns or (1,) * len(shape)
    if gaps == "cut":
        observed = np.arange(shape[1]) < rng.integers(1, shape[1] + 1, (shape[0], 1))
    elif isinstance(gaps, int):
        observed = np.zeros(shape, dtype=bool)
        observed.flat[rng.choice(observed.size, gaps, replace=False)] = True
    else:
        observed = rng.random(shape) >= gaps
    kernels = [RBFKernel() if nu is None else MaternKernel(nu=nu) for _ in shape]
    for kernel in kernels:
        kernel.lengthscale = length
    scaled = ScaleKernel(kernels[0])
    scaled.outputscale = 1.0
    values = np.where(observed, rng.normal(size=shape), np.nan)
    model = LatentKroneckerGP([scaled, *kernels[1:]], noise=noise).double()
    return model, from_array([points(n, d, rng) for n, d in zip(shape, dims, strict=True)], values)


# The way that is expected for a fit, and for the posterior (None if it may be any). For the staircases, three factors,
# few cells and two thousand observations it was the fastest one when all were measured on one core; some hundred
# observations are factorised because exact results cost hardly any time.
SHAPES = {
    "short staircase": (((400, 50), "cut", 0.5, 1e-4, (3, 1)), Spectral, Spectral),
    "smooth staircase": (((400, 50), "cut", 1.5, 1e-4, (3, 1)), Spectral, Spectral),
    "long cut rows": (((5000, 12), "cut", 1.5, 1e-2, (3, 1)), Spectral, Spectral),
    "three factors": (((60, 60, 20), 0.5, 0.5, 1e-2), Spectral, Spectral),
    "three rough factors": (((60, 60, 20), 0.5, 0.5, 1e-2, None, 2.5), Spectral, Spectral),
    "few cells": (((300, 300), 3000, 0.5, 1e-2), Spectral, Spectral),
    "few cells, short": (((300, 300), 3000, 0.1, 1e-2), Spectral, Spectral),
    "very few cells, short": (((2000, 2000), 4000, 0.1, 1e-2), Direct, None),
    "two thousand observations": (((60, 50), 0.3, 0.5, 1e-2, None, 1.5), Spectral, Spectral),
    "some hundred observations": (((30, 25), 0.3, 0.5, 1e-2, None, 1.5), Direct, Direct),
}


@pytest.mark.parametrize("name", SHAPES)
def test_the_fastest_way_is_chosen(name):
    arguments, for_fit, for_posterior = SHAPES[name]
    model, data = problem(*arguments)
    for kind, fitting in ((for_fit, True), (for_posterior, False)):
        if kind is None:
            continue
        chosen = plan(model, data, "auto", fitting=fitting)
        assert type(chosen.method) is kind


@pytest.mark.parametrize("name", SHAPES)
def test_the_choice_is_predicted_to_be_among_the_cheapest(name):
    model, data = problem(*SHAPES[name][0])
    for fitting, cheap in ((True, CHEAP_FIT), (False, CHEAP_POSTERIOR)):
        chosen = plan(model, data, "auto", fitting=fitting)
        known = PlanningProblem(model, data, fitting=fitting)
        possible = [method.plan(known) for method in FORCED]
        cheapest = min(found.cost.multiplications for found in possible if not found.obstacle)
        limit = max(cheap, WORTH * cheapest) if chosen.method.exact else cheapest
        assert chosen.cost.multiplications <= limit


def test_a_factorisation_is_exact_where_it_is_cheap():
    """Even if another way is predicted to be cheaper still."""
    model, data = problem((30, 25), 0.3, 0.5, 1e-2, nu=1.5)
    direct, spectral = (
        method.plan(PlanningProblem(model, data, fitting=True)).cost.multiplications
        for method in (Direct(), Spectral())
    )
    assert WORTH * spectral < direct <= CHEAP_FIT


def test_a_long_axis_makes_the_gradient_of_a_factorisation_dearer():
    """With as many unknowns: its weights are q x q."""
    costs = []
    for n in (100, 1000):
        model, data = problem((n, n), 900, 0.5, 1e-2)
        cost, size = direct_cost(PlanningProblem(model, data, fitting=True), 0, n)
        assert size == 900
        costs.append(cost.multiplications)
    assert costs[1] - costs[0] >= 900**2 * 900


def test_passes_over_the_grid_count_where_modes_are_few():
    """With one mode of each factor there is hardly anything to multiply, yet every cell is visited."""
    model, data = problem((300, 300), 0.5, 0.5, 1e-2)
    ranks = [FactorRanks(300, torch.ones(1, dtype=torch.float64), 0.0)] * 2
    (one, _), (ten, _) = (
        spectral_cost(PlanningProblem(model, data, fitting=True), ranks, 8000, columns, 16) for columns in (1, 10)
    )
    assert ten.multiplications == pytest.approx(10 * one.multiplications, rel=0.01)
    assert one.multiplications > 1000 * 300 * 300


def test_a_block_is_read_however_few_the_columns():
    assert block_solve(1000, 1) == 10 * block_solve(1000, 10)
    assert block_solve(1000, 100) == block_solve(1000, 1000) >= 1000**2


def test_the_report_says_how_solves_are_preconditioned():
    for gaps, word in (("random", "by the diagonal alone"), ("curves", "by a dense block over")):
        case = Case(
            "named", (60, 30), gaps, columns=(3, 1), kinds=("rbf", "rbf"), noise=1e-2 if word[3] == "t" else 1e-5
        )
        model, data = case.build(), case.data()
        values = np.full(data.grid.num_cells, np.nan)
        values[data.grid.index.numpy()] = data.values.numpy()
        gp = LKGP(model.kernels, noise=case.noise, mean=0.0, standardize=False, solver=Spectral())
        gp.fit(case.coords, values.reshape(data.grid.shape), optimize=False)
        (note,) = [note for note in gp.report_.notes if note.startswith("solves are preconditioned")]
        assert word in note
        assert "pilot solve" in note or "condition number" in note
        assert note in str(gp.report_)
