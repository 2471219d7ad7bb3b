"""What is chosen automatically, what it is predicted to cost, and where periods start."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from cases import CASES, Case, name
from gpytorch.constraints import Interval
from gpytorch.kernels import IndexKernel, MaternKernel, PeriodicKernel, RBFKernel, ScaleKernel

from lkgp import (
    LKGP,
    Direct,
    InputError,
    LatentKroneckerGP,
    LeadingModes,
    ObservationSpace,
    PartialGrid,
    Plan,
    Spectral,
    Vecchia,
    condition,
    fit,
    from_array,
    plan,
)
from lkgp.fitting.periods import repetition
from lkgp.inference import break_even
from lkgp.inference.base import System
from lkgp.inference.costs import SOLVE_ARRAYS, FactorRanks, PlanningProblem, missing_at_random
from lkgp.inference.direct import direct_cost
from lkgp.inference.observation_costs import FORMING, observation_cost
from lkgp.inference.spectral import spectral_cost
from lkgp.inference.spectrum_estimate import FactorSpectrum, kept_spectrum
from lkgp.linalg.eigenbasis import FactorBasis
from lkgp.linalg.leading_modes import BLOCK_WEIGHT, block_multiplications, cheapest_block
from lkgp.model import Term
from lkgp.posterior import Cells, joint_moments, row_moments


def grid_data(shape, missing, seed=0):
    rng = np.random.default_rng(seed)
    coords = [torch.linspace(0, 1, size, dtype=torch.float64)[:, None] for size in shape]
    values = np.where(rng.random(shape) < missing, np.nan, rng.normal(size=shape))
    return from_array(coords, torch.as_tensor(values))


def smooth_model(*lengths, noise=0.01):
    kernels = [ScaleKernel(RBFKernel()) if k == 0 else RBFKernel() for k in range(len(lengths))]
    for kernel, length in zip(kernels, lengths, strict=True):
        (kernel.base_kernel if isinstance(kernel, ScaleKernel) else kernel).lengthscale = length
    return LatentKroneckerGP(kernels, noise=noise).double()


@pytest.mark.parametrize("case", CASES, ids=name)
def test_small_data_are_factorised(case):
    for fitting in (True, False):
        chosen = plan(case.build(), case.data(), "auto", fitting=fitting)
        assert isinstance(chosen.method, Direct)
        assert chosen.cost.memory > 0
        assert "multiplications" in chosen.why


def test_large_smooth_data_are_solved_in_the_eigenbasis():
    chosen = plan(smooth_model(0.1, 0.1), grid_data((600, 500), 0.2), "auto", fitting=True)
    assert isinstance(chosen.method, Spectral)
    assert "modes" in chosen.why


def robot(missing, states=1500):
    rng = np.random.default_rng(0)
    values = np.where(rng.random((states, 7)) < missing, np.nan, rng.normal(size=(states, 7)))
    data = from_array(
        [torch.as_tensor(rng.normal(size=(states, 12))), torch.arange(7.0, dtype=torch.float64)],
        torch.as_tensor(values),
    )
    kernels = [RBFKernel(ard_num_dims=12), IndexKernel(num_tasks=7, rank=7)]
    return LatentKroneckerGP(kernels, noise=0.05).double(), data


def test_factors_of_full_rank_are_solved_among_the_observations():
    chosen = plan(*robot(0.05, states=3000), "auto", fitting=True)
    assert chosen.method == ObservationSpace(preconditioner=Vecchia(neighbours=15))
    assert "nearest-neighbour preconditioner with 15 neighbours" in chosen.why


def test_few_observations_of_a_large_grid_are_factorised():
    assert isinstance(plan(*robot(0.9), "auto", fitting=True).method, Direct)


def problem_of(data, noise, fitting=True):
    """What a plan knows of data whose kernels do not matter."""
    model = smooth_model(*[1.0] * len(data.grid.shape), noise=noise)
    return PlanningProblem(model, data, fitting=fitting)


def ranks_of(matrix, tail=0.0):
    values, low = kept_spectrum(matrix, tail, math.inf)
    return FactorRanks(len(matrix), values, 1.0 if low else float(len(matrix) ** 3))


def test_the_grid_pays_up_to_the_break_even_point():
    """Products with and without the grid cost the same where the paper says; the rest of the cost is shared."""
    assert break_even((4449, 7)) == pytest.approx(1 - math.sqrt(1 / 4449 + 1 / 7))
    point = break_even((1500, 7))
    for missing, dense_is_cheaper in ((point - 0.1, False), (point + 0.1, True)):
        data = grid_data((1500, 7), missing)
        factors = [torch.eye(1500, dtype=torch.float64) + 0.1, torch.eye(7, dtype=torch.float64) + 0.1]
        ranks = [ranks_of(factor) for factor in factors]
        problem = problem_of(data, noise=1e-4)
        with_grid, without = (observation_cost(problem, ranks, 500, 1000, 1000, dense) for dense in (False, True))
        assert (without.multiplications < with_grid.multiplications) == dense_is_cheaper
        assert without.memory > with_grid.memory


def test_a_block_costs_the_same_in_every_space():
    """Among few modes of a factor with many points, the block is nearly all there is to compute."""
    ends = np.random.default_rng(0).integers(1, 51, (400, 1))
    values = torch.as_tensor(np.where(np.arange(50) < ends, 1.0, np.nan))
    problem = problem_of(from_array([torch.arange(400.0), torch.arange(50.0)], values), noise=1e-9)
    ranks = [FactorRanks(n, torch.ones(rank, dtype=torch.float64), 0.0) for n, rank in ((400, 100), (50, 15))]
    block = BLOCK_WEIGHT * block_multiplications((400, 50), (100, 15), 1500) / 2
    for cost in (observation_cost(problem, ranks, 8000, 1, 1, False), spectral_cost(problem, ranks, 8000, 1, 1)[0]):
        assert block <= cost.multiplications <= 1.5 * block
    # A dense matrix has to be formed first.
    formed = observation_cost(problem, ranks, 8000, 1, 1, True).multiplications
    assert formed - block >= FORMING * problem.grid.num_observed**2


@pytest.mark.parametrize("method", [Direct(), Spectral(), ObservationSpace(), ObservationSpace(dense=True)])
def test_every_way_can_be_forced(method):
    case = CASES[2]
    chosen = plan(case.build(), case.data(), method)
    assert type(chosen.method) is type(method)
    assert "as requested" in chosen.why
    rng = np.random.default_rng(0)
    values = np.sin(np.arange(12.0))[:, None] * np.cos(np.arange(9.0) / 3) + 0.3 * rng.normal(size=(12, 9))
    gp = LKGP(solver=method).fit([np.arange(12.0), np.arange(9.0)], np.where(rng.random((12, 9)) < 0.3, np.nan, values))
    assert "as requested" in gp.report_.method
    assert gp.report_.predicted["memory"] > 0
    assert np.isfinite(gp.report_.log_likelihood)


def test_memory_limits_the_choice():
    model, data = smooth_model(0.1, 0.1), grid_data((60, 50), 0.3)
    free = plan(model, data, "auto")
    assert isinstance(free.method, Direct)
    tight = plan(model, data, "auto", max_memory=free.cost.memory / 2)
    assert isinstance(tight.method, Spectral)
    assert tight.cost.memory < free.cost.memory / 2
    with pytest.raises(InputError, match="more than the memory limit of"):
        plan(model, data, Direct(), max_memory=free.cost.memory / 2)
    least = plan(model, data, "auto", max_memory=1.0)
    assert "the least of all methods" in least.why


def test_draws_do_not_depend_on_the_memory_they_are_made_in():
    case = CASES[2]
    method = Spectral(residual_rtol=1e-10, sample_rtol=1e-10, rtol=1e-10)
    points = [torch.as_tensor(x) for x in case.new_coords()]
    results = []
    for limit in (None, 1.0):
        posterior = condition(case.build(), case.data(), Plan(method, ""), max_memory=limit)
        assert (posterior.columns_at_once() == 1) == (limit == 1.0)
        results.append((posterior.draws(5, 3)(points), posterior.variance(points)))
    for ours, theirs in zip(*results, strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-7, rtol=1e-7)


def test_no_more_columns_are_solved_for_than_memory_allows(monkeypatch):
    """Covariances and moments of single cells are the same; draws on a larger grid are evaluated fewer at a time."""
    case, solve, widths, results = CASES[2], System.solve, [], []

    def watched(system, rhs, purpose, start=None):
        widths.append(rhs.shape[1])
        return solve(system, rhs, purpose, start)

    monkeypatch.setattr(System, "solve", watched)
    points = [torch.as_tensor(x) for x in case.new_coords()]
    for limit in (None, 1.0):
        widths.clear()
        posterior = condition(case.build(), case.data(), Plan(Direct(), ""), max_memory=limit)
        joint = joint_moments(posterior, [Cells(points[0].expand(2, -1, -1), (points[1],))])
        results.append((posterior.covariance(points), *joint, *row_moments(posterior, points)))
        assert (max(widths) == 1) == (limit == 1.0)
    for ours, theirs in zip(*results, strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-9, rtol=1e-9)
    cells = case.data().grid.num_cells
    draws = condition(case.build(), case.data(), Plan(Direct(), ""), max_memory=5 * 4 * 8 * SOLVE_ARRAYS * cells).draws(
        5, 0
    )
    assert [len(draws._blocks(size)) for size in (1, cells, 5 * cells)] == [1, 1, 5]


def test_long_smooth_factors_are_used_by_their_roots(monkeypatch):
    """The posterior is the same, on the grid and off it."""
    case = Case("long", (40, 9), "random", kinds=("rbf", "matern"), regular=True)
    method = Spectral(residual_rtol=1e-10, sample_rtol=1e-10, rtol=1e-10, num_samples=50)
    points = [[torch.as_tensor(x) for x in new] for new in (case.coords, case.new_coords())]
    results = []
    # Error bars from all observations do not depend on which ones are nearest by a rounding error.
    monkeypatch.setattr("lkgp.posterior.local_variance.SIZES", ((1000, 16),))
    for pays in (10, 1000):
        monkeypatch.setattr("lkgp.inference.spectral.LOW_RANK_PAYS", pays)
        posterior = condition(case.build(), case.data(), Plan(method, ""))
        assert ("low_rank" in posterior.system.structures) == (pays == 10)
        own = list(posterior.data.grid.coords)
        results.append(
            [f(x) for x in [own, *points] for f in (posterior.mean, posterior.variance, posterior.draws(3, 1))]
        )
        np.testing.assert_allclose(posterior.mean(own).numpy(), case.oracle().mean_at(case.coords), atol=1e-7)
    for ours, theirs in zip(*results, strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-7, rtol=1e-7)


def test_ranks_are_those_of_the_spectrum(monkeypatch):
    x = torch.linspace(0, 1, 150, dtype=torch.float64)[:, None]
    for kernel in (RBFKernel(), MaternKernel(nu=0.5)):
        kernel.lengthscale = 0.2
        matrix = kernel.double()(x).to_dense().detach()
        for tail in (1e-6, 1e-2):
            true = FactorBasis.of(matrix, tail).rank
            for pays in (10, 1000):
                monkeypatch.setattr("lkgp.inference.spectrum_estimate.PIVOTED_PAYS", pays)
                assert ranks_of(matrix, tail).rank == pytest.approx(true, rel=0.35, abs=3)


def test_costs_grow_with_what_there_is_to_do():
    ranks = [ranks_of(torch.eye(n, dtype=torch.float64) + 1) for n in (40, 30)]
    problem = problem_of(grid_data((40, 30), 0.3), noise=0.1)
    costs = [spectral_cost(problem, ranks, 100, columns, columns)[0] for columns in (1, 10, 100)]
    assert costs[0].multiplications < costs[1].multiplications < costs[2].multiplications
    assert costs[0].memory < costs[1].memory < costs[2].memory
    (small, m), (large, n) = (direct_cost(problem, 0, rank) for rank in (3, 30))
    assert m < n
    assert small.multiplications < large.multiplications


def test_gaps_at_random_are_told_from_others():
    assert missing_at_random(grid_data((50, 40), 0.3).grid)
    assert missing_at_random(grid_data((50, 40), 0.0).grid)
    coords = tuple(torch.arange(float(n)) for n in (50, 40))
    cut = torch.arange(40)[None] < torch.randint(2, 40, (50, 1), generator=torch.Generator().manual_seed(0))
    assert not missing_at_random(PartialGrid(coords, cut))


def test_the_reported_likelihood_is_that_of_the_oracle():
    case = Case("reported", (8, 7), "random")
    for method, error in ((Direct(), 1e-7), (Spectral(rtol=1e-9, residual_rtol=1e-10, tolerance=1e-12), None)):
        posterior = condition(case.build(), case.data(), Plan(method, ""))
        value, spread = posterior.log_likelihood(200, 60)
        assert abs(value - case.oracle().log_likelihood()) <= (error if error is not None else 4.5 * spread + 1e-6)
        assert 0 <= posterior.system.truncation <= method.tolerance * 1.01


def periodic_data(period, shape=(30, 120), noise=0.3):
    rng = np.random.default_rng(1)
    x = np.linspace(0, 10, shape[1])
    values = np.sin(2 * np.pi * x / period + rng.uniform(0, 6, (shape[0], 1))) + noise * rng.normal(size=shape)
    values[rng.random(shape) < 0.4] = np.nan
    return from_array([torch.arange(float(shape[0]), dtype=torch.float64), torch.as_tensor(x)], torch.as_tensor(values))


@pytest.mark.parametrize("period", [1.3, 2.9, 5.1])
def test_periods_start_where_the_data_repeat_themselves(period):
    assert repetition(periodic_data(period), 1) == pytest.approx(period, rel=0.1)


def test_data_without_a_period_have_none():
    assert repetition(grid_data((30, 60), 0.2), 1) is None
    assert repetition(grid_data((30, 5), 0.2), 1) is None
    rising = from_array(
        [torch.arange(5.0), torch.arange(50.0)], torch.linspace(0, 1, 50, dtype=torch.float64).expand(5, 50).clone()
    )
    assert repetition(rising, 1) is None


def test_a_period_is_found_where_the_default_start_would_miss_it():
    data = periodic_data(4.3)
    model = LatentKroneckerGP([ScaleKernel(RBFKernel()), PeriodicKernel()]).double()
    result = fit(model, data)
    assert result.model.kernels[1].period_length.item() == pytest.approx(4.3, rel=0.02)
    assert any("where the data repeat themselves" in note for note in result.notes)
    # A period that was set is where the search starts.
    model.kernels[1].period_length = 1.1
    assert not any("repeat" in note for note in fit(model, data).notes)


def test_a_period_outside_of_its_constraint_is_left_alone():
    kernel = PeriodicKernel(period_length_constraint=Interval(0.1, 0.2))
    result = fit(LatentKroneckerGP([ScaleKernel(RBFKernel()), kernel]).double(), periodic_data(4.3, shape=(8, 30)))
    assert 0.1 <= result.model.kernels[1].period_length.item() <= 0.2


def test_a_period_alone_can_be_free():
    model = LatentKroneckerGP([ScaleKernel(RBFKernel()), PeriodicKernel()], mean=0.0).double()
    for name_, parameter in model.named_parameters():
        parameter.requires_grad_("period" in name_)
    result = fit(model, periodic_data(4.3, shape=(100, 110)))
    assert result.model.kernels[1].period_length.item() == pytest.approx(4.3, rel=0.05)


def test_a_fit_whose_solves_fail_does_not_claim_to_have_converged():
    case = Case("hard", (30, 25), "random", noise=1e-4)
    result = fit(
        case.build().requires_grad_(True),
        case.data(),
        method=Spectral(max_block=1, max_iterations=1, rtol=1e-9, fit_rtol=1e-9),
        compare_starts=False,
    )
    assert not result.converged


@pytest.mark.parametrize("space", ["cells", "dense"])
def test_a_fit_whose_solves_fail_at_the_start_stays_there(space):
    """Gradients of solves that went nowhere would lead anywhere."""
    case = Case("hard", (30, 25), "random", noise=1e-6)
    model = case.build().requires_grad_(True)
    hopeless = {
        "modes": Spectral(max_block=1, max_iterations=1),
        "cells": ObservationSpace(preconditioner=LeadingModes(max_rank=1), max_iterations=1),
        "dense": ObservationSpace(preconditioner=LeadingModes(max_rank=1), dense=True, max_iterations=1),
    }
    result = fit(model, case.data(), method=hopeless[space], compare_starts=False)
    assert not result.converged
    assert "stopped at the initial hyperparameters" in result.reason
    assert "did not converge: the iteration limit was reached" in result.reason
    for before, after in zip(model.parameters(), result.model.parameters(), strict=True):
        torch.testing.assert_close(before, after)


def test_settings_of_spaces_are_checked():
    with pytest.raises(InputError, match="ObservationSpace: precision must be"):
        replace(ObservationSpace(), precision="float16")
    with pytest.raises(InputError, match="max_block must be"):
        Spectral(max_block=-1)


def test_a_block_over_many_combinations_of_short_factors_is_counted():
    """Its cost has a term for all pairs of modes of the other factors; where these are many, fewer modes pay."""
    assert block_multiplications((10, 4, 5), (3, 2, 2), 6) == 200 * 4**2 + 10 * 6**2 + 6**3 / 6
    assert block_multiplications((10, 4), (3, 2), 1) == 40 + 10 + 1 / 6
    diagonal = 1e7 / torch.arange(1, 8001).double()
    flat = cheapest_block(diagonal, 1e7, (4000, 10), (4000, 10), 8000, 64)
    many = cheapest_block(diagonal, 1e7, (40, 40, 25), (40, 40, 25), 8000, 64)
    assert 0 < many < flat


def test_planning_forms_no_long_factor(monkeypatch):
    """Its spectrum is judged by some of its points: about as long as it is, smooth or rough."""
    largest = 0
    evaluate = Term.cross_factor

    def watched(term, k, points, coords):
        nonlocal largest
        largest = max(largest, len(points) * len(coords))
        return evaluate(term, k, points, coords)

    x = torch.linspace(0, 1, 1500, dtype=torch.float64)[:, None]
    for kernel, length in ((RBFKernel(), 0.05), (MaternKernel(nu=0.5), 0.05), (MaternKernel(nu=1.5), 0.002)):
        kernel.lengthscale = length
        term = Term([kernel.double()])
        exact, _ = FactorSpectrum(term, 0, x).kept(1.0)
        with monkeypatch.context() as patch:
            patch.setattr("lkgp.inference.spectrum_estimate.MOST_PLANNED_IN_LINE", 500)
            patch.setattr("lkgp.inference.spectrum_estimate.SOME_POINTS", 200)
            patch.setattr(Term, "cross_factor", watched)
            spectrum = FactorSpectrum(term, 0, x)
            found, _ = spectrum.kept(1.0)
        assert largest <= 200 * 200
        assert len(found) == pytest.approx(len(exact), rel=0.5, abs=5)
        assert spectrum.trace == pytest.approx(1500.0, rel=1e-6)


def test_a_rough_factor_is_estimated_to_have_no_more_modes_than_points():
    x = torch.linspace(0, 1, 1900, dtype=torch.float64)[:, None]
    kernel = MaternKernel(nu=0.5).double()
    kernel.lengthscale = 0.001
    values, _ = FactorSpectrum(Term([kernel]), 0, x).kept(1e-6)
    assert len(values) == 1900
    assert float(values.sum()) == pytest.approx(1900.0, rel=0.01)
    assert bool((values[1:] <= values[:-1]).all())


def test_a_year_of_hours_is_planned_at_once():
    rng = np.random.default_rng(0)
    Y = np.where(rng.random((3, 26304)) < 0.2, np.nan, rng.normal(size=(3, 26304)))
    chosen = LKGP().plan([np.arange(3.0), np.arange(26304.0)], Y)
    assert chosen.cost.memory > 0
    assert (
        "toeplitz"
        in PlanningProblem(
            smooth_model(1.0, 1.0),
            from_array(
                [torch.arange(3.0, dtype=torch.float64), torch.arange(26304.0, dtype=torch.float64)], torch.as_tensor(Y)
            ),
        ).structures
    )
