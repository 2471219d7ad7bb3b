"""Inference in the truncated eigenbasis against the dense oracle: every block size, both precisions, complete and
partial grids.
"""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from cases import CASES, SOME, Case, name
from dense_gradients import dense_log_likelihood, gradients
from gpytorch.kernels import RBFKernel, ScaleKernel

from lkgp import (
    BFGS,
    LKGP,
    Direct,
    LatentKroneckerGP,
    ObservationSpace,
    Plan,
    Spectral,
    condition,
    fit,
    from_array,
    plan,
)
from lkgp.inference import Probes, log_likelihood
from lkgp.linalg.eigenbasis import FactorBasis
from lkgp.linalg.leading_modes import masked_gram
from lkgp.linalg.quadrature import trace_of_log
from lkgp.model import default_kernels
from lkgp.solvers import Reason

TIGHT = Spectral(
    rtol=1e-9, residual_rtol=1e-10, sample_rtol=1e-9, tolerance=1e-13, fit_tolerance=1e-13, num_samples=2000
)
ALIKE = {"rtol": 1e-9, "residual_rtol": 1e-10, "sample_rtol": 1e-9, "num_samples": 2000}
DEFAULT_IN = {"modes": Spectral(), "cells": ObservationSpace(), "dense": ObservationSpace(dense=True)}
TIGHT_IN = {"modes": TIGHT, "cells": ObservationSpace(**ALIKE), "dense": ObservationSpace(dense=True, **ALIKE)}
CURVES = Case("long cut curves", (9, 20), "curves", kinds=("matern", "rbf"), regular=True, noise=1e-3)
COMPLETE = [
    Case("complete", (7, 6), "none"),
    Case("complete, three factors", (5, 4, 3), "none"),
    Case("complete line", (9,), "none"),
]


@pytest.fixture(params=[None, 0, 5, 10**6], ids=["block as chosen", "no block", "block of 5", "block of all"])
def block(request, monkeypatch):
    """Force the size of the dense block in the whitening."""
    if request.param is not None:
        monkeypatch.setattr("lkgp.linalg.whitening_choice.TRIAL_CONDITION", 0.0)
        monkeypatch.setattr(
            "lkgp.linalg.whitening_choice.cheapest_block", lambda diagonal, *_: min(request.param, len(diagonal))
        )
    return request.param


def check_error_bound(loose, exact, matrix):
    """The error that is reported is a bound: |e|_A <= bound |x|_A."""
    error = loose.values.numpy() - exact
    energy = np.sqrt(np.einsum("ic,ij,jc->c", error, matrix, error) / np.einsum("ic,ij,jc->c", exact, matrix, exact))
    assert (energy <= 1.01 * loose.residuals.numpy() + 1e-9).all()


@pytest.mark.parametrize("case", [*CASES, CURVES], ids=name)
@pytest.mark.parametrize("precision", ["float32", "float64"])
def test_solves_and_log_determinant_are_those_of_the_oracle(case, precision, block):
    model, data, matrix = case.build(), case.data(), case.oracle().matrix
    system = replace(TIGHT, precision=precision).system(model, data, columns=8)
    rhs = torch.randn(len(matrix), 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    solution = system.solve_to(rhs, 1e-9)
    exact = np.linalg.solve(matrix, rhs.numpy())
    assert solution.converged
    np.testing.assert_allclose(solution.values.numpy(), exact, atol=1e-6 * np.abs(exact).max())
    check_error_bound(system.solve_to(rhs, 1e-2), exact, matrix)
    # A start far from the truth does no harm.
    wrong = torch.randn(3, system.data.grid.num_cells, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    np.testing.assert_allclose(
        system.solve_to(rhs, 1e-9, start=wrong).values.numpy(), exact, atol=1e-6 * np.abs(exact).max()
    )
    # Probes of the whole space make the quadrature exact.
    whole = math.sqrt(system.space.size) * torch.eye(system.space.size, dtype=torch.float64)
    lowest = system.space.lowest_eigenvalue
    left, _ = trace_of_log(system.space.exact.__matmul__, whole, system.space.size, lowest=lowest, whole=True)
    assert float(left + system.known_logdet) == pytest.approx(np.linalg.slogdet(matrix)[1], abs=1e-7)


def test_a_correction_that_makes_a_solve_worse_is_taken_back(monkeypatch):
    data, matrix = CURVES.data(), CURVES.oracle().matrix
    system = TIGHT_IN["dense"].system(CURVES.build(), data, columns=8)
    system.fast = 1e-9 * system.fast  # so steps in float32 are far too long
    rhs = torch.randn(len(matrix), 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    exact = np.linalg.solve(matrix, rhs.numpy())
    solution = system.solve_to(rhs, 1e-9)
    assert solution.converged
    np.testing.assert_allclose(solution.values.numpy(), exact, atol=1e-6 * np.abs(exact).max())
    # Where float64 cannot help either, what is left is as good as nothing, and no worse.
    monkeypatch.setattr("lkgp.inference.mixed_precision.MixedPrecisionEquations.sharpen", lambda _: False)
    stuck = system.solve_to(rhs, 1e-9)
    assert stuck.reason is Reason.STAGNATED
    assert np.linalg.norm(matrix @ stuck.values.numpy() - rhs.numpy()) <= (1 + 1e-9) * np.linalg.norm(rhs)


@pytest.mark.parametrize("case", [*CASES, CURVES], ids=name)
@pytest.mark.parametrize("space", ["cells", "dense"])
def test_solves_in_the_space_of_the_observations_are_those_of_the_oracle(case, space, observed_block):
    model, data, matrix = case.build(), case.data(), case.oracle().matrix
    system = TIGHT_IN[space].system(model, data, columns=8)
    rhs = torch.randn(len(matrix), 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    exact = np.linalg.solve(matrix, rhs.numpy())
    start = torch.randn(3, system.data.grid.num_cells, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    for solution in (system.solve_to(rhs, 1e-9), system.solve_to(rhs, 1e-9, start=start)):
        assert solution.converged
        np.testing.assert_allclose(solution.values.numpy(), exact, atol=1e-6 * np.abs(exact).max())
    loose = system.solve_to(rhs, 1e-2)
    check_error_bound(loose, exact, matrix)
    # The function at the observed cells is what the data are, less their noise.
    torch.testing.assert_close(loose.latent[:, system.data.grid.index].mT, rhs - system.noise[:, None] * loose.values)
    value, standard_error = system.log_determinant(0, num_probes=400, steps=len(matrix))
    assert abs(float(value) - np.linalg.slogdet(matrix)[1]) <= 4.5 * standard_error + 1e-7


@pytest.fixture(params=[None, 0, 5, 10**6], ids=["block as chosen", "no block", "block of 5", "block of all"])
def observed_block(request, monkeypatch):
    """Force the number of modes in the preconditioner of the observations."""
    if request.param is not None:
        monkeypatch.setattr(
            "lkgp.linalg.preconditioners.leading_modes.cheapest_block",
            lambda diagonal, *_: min(request.param, len(diagonal)),
        )
    return request.param


@pytest.mark.parametrize("case", [*SOME, CURVES], ids=name)
def test_the_block_is_that_of_the_matrix(case):
    model, data = case.build(), case.data()
    system = TIGHT.system(model, data, columns=8)
    whole = system.space.exact.latent(torch.eye(system.space.size, dtype=torch.float64))
    modes = torch.arange(0, system.space.size, 2)
    gram = masked_gram(
        system.space.exact.transform.bases,
        system.space.exact.scale,
        system.space.exact.precisions,
        system.space.shape,
        modes,
    )
    torch.testing.assert_close(gram, whole[modes][:, modes], rtol=1e-10, atol=1e-10 * float(whole.abs().max()))


@pytest.mark.parametrize("space", ["modes", "cells", "dense"])
@pytest.mark.parametrize("case", [*SOME, CURVES], ids=name)
def test_stochastic_gradients_are_unbiased(case, space):
    """z-test over independent estimates: all entries within 4.5 standard errors."""
    method = TIGHT_IN[space]
    model, data = case.build(), case.data()
    dense = gradients(dense_log_likelihood(model, case, data), model)
    sample = torch.stack(
        [
            gradients(log_likelihood(model, data, method, Probes.draw(data, 8, seed), value=False).objective, model)
            for seed in range(60)
        ]
    )
    error = sample.std(dim=0) / math.sqrt(len(sample))
    assert bool(((sample.mean(dim=0) - dense).abs() <= 4.5 * error + 1e-7).all())


@pytest.mark.parametrize("case", COMPLETE, ids=name)
def test_a_complete_grid_is_exact(case):
    """Value, gradient, mean and variance, with no random number involved."""
    model, data, oracle = case.build(), case.data(), case.oracle()
    likelihood = log_likelihood(model, data, TIGHT, Probes.draw(data, 2, 0))
    assert float(likelihood.objective.detach()) == pytest.approx(oracle.log_likelihood(), abs=1e-7)
    dense = gradients(dense_log_likelihood(model, case, data), model)
    torch.testing.assert_close(gradients(likelihood.objective, model), dense, atol=1e-5, rtol=1e-5)
    posterior = condition(model, data, Plan(TIGHT, ""))
    for new in (case.coords, case.new_coords()):
        points = [torch.as_tensor(x) for x in new]
        np.testing.assert_allclose(posterior.mean(points).numpy(), oracle.mean_at(new), atol=1e-6)
        np.testing.assert_allclose(posterior.variance(points).numpy(), oracle.variance_at(new), atol=1e-6)
    assert posterior.variance_error == 0


@pytest.mark.parametrize("space", ["modes", "cells", "dense"])
@pytest.mark.parametrize("case", [*SOME, CURVES], ids=name)
def test_the_value_of_a_partial_grid_is_within_its_stated_error(case, space):
    model, data = case.build(), case.data()
    likelihood = log_likelihood(
        model, data, replace(TIGHT_IN[space], num_probes=200, lanczos_steps=200), Probes.draw(data, 2, 0)
    )
    assert abs(float(likelihood.objective.detach()) - case.oracle().log_likelihood()) <= 4.5 * likelihood.error + 1e-7


@pytest.mark.parametrize("tolerance", [1e-8, 1e-4, 1e-2])
def test_what_is_left_out_of_the_spectrum_keeps_its_bound(tolerance):
    case = Case("smooth", (12, 30), "random", kinds=("rbf", "rbf"), regular=True)
    model, data = case.build(), case.data()
    system = replace(TIGHT, tolerance=tolerance).system(model, data, columns=8)
    assert system.space.size < 12 * 30 / 2
    assert system.truncation <= tolerance * (1 + 1e-9)
    whole = math.sqrt(system.space.size) * torch.eye(system.space.size, dtype=torch.float64)
    lowest = system.space.lowest_eigenvalue
    left, _ = trace_of_log(system.space.exact.__matmul__, whole, system.space.size, lowest=lowest, whole=True)
    logdet = left + system.known_logdet
    assert abs(float(logdet) - np.linalg.slogdet(case.oracle().matrix)[1]) <= tolerance * data.grid.num_observed + 1e-7


def test_a_loose_truncation_is_mended_by_the_true_residual():
    """The posterior is that of the whole spectrum, however much of it the system leaves out."""
    case = Case("smooth", (12, 30), "random", kinds=("rbf", "matern"), regular=True)
    posterior = condition(case.build(), case.data(), Plan(Spectral(tolerance=1e-3), ""))
    assert posterior.solution.converged
    assert float(posterior.solution.residuals.max()) <= 1e-6
    points = [torch.as_tensor(x) for x in case.coords]
    np.testing.assert_allclose(posterior.mean(points).numpy(), case.oracle().mean_at(case.coords), atol=1e-5)


@pytest.mark.parametrize("space", ["modes", "cells", "dense"])
@pytest.mark.parametrize("case", SOME, ids=name)
def test_the_posterior_is_that_of_the_oracle_in_every_space(case, space):
    posterior = condition(case.build(), case.data(), Plan(TIGHT_IN[space], ""))
    oracle = case.oracle()
    for new in (case.coords, case.new_coords()):
        points = [torch.as_tensor(x) for x in new]
        np.testing.assert_allclose(posterior.mean(points).numpy(), oracle.mean_at(new), atol=1e-6)
        variance = oracle.variance_at(new)
        # 2000 samples: a variance has a relative standard error of sqrt(2 / 2000) at the most
        assert (
            np.abs(posterior.variance(points).numpy() - variance) <= 5 * math.sqrt(2 / 2000) * variance + 1e-7
        ).all()


@pytest.mark.parametrize("missing", [0.0, 0.3])
@pytest.mark.parametrize("space", ["modes", "cells"])
def test_error_bars_are_right_where_the_posterior_is_far_narrower_than_the_prior(missing, space):
    """Smooth functions, many observations, default tolerances: what is left out or solved loosely must not widen the
    error bars.
    """
    rng = np.random.default_rng(0)
    x = np.linspace(-1.7, 1.7, 60)
    values = np.where(rng.random((60, 60)) < missing, np.nan, rng.normal(size=(60, 60)))
    data = from_array([torch.as_tensor(x), torch.as_tensor(x)], torch.as_tensor(values))
    kernels = [ScaleKernel(RBFKernel()), RBFKernel()]
    kernels[0].outputscale, kernels[0].base_kernel.lengthscale, kernels[1].lengthscale = 4.0, 1.0, 1.0
    model = LatentKroneckerGP(kernels, mean=0.0, noise=0.002).double()
    model.requires_grad_(False)
    coords = list(data.grid.coords)
    exact = condition(model, data, plan(model, data, Direct())).variance(coords).sqrt()
    assert float(exact.mean()) < 0.02
    posterior = condition(model, data, plan(model, data, replace(DEFAULT_IN[space], num_samples=256)))
    assert posterior.solution.converged
    found = posterior.variance(coords).sqrt()
    # relative standard error 1 / sqrt(512) of a cell, far less of the mean
    assert float((found / exact).mean()) == pytest.approx(1, abs=0.05 if missing or space == "cells" else 1e-6)


def test_cells_with_a_huge_known_noise_do_not_loosen_the_solves_of_the_others():
    """The spread that errors are compared with is about that of the exact posterior."""
    case = Case("masked", (12, 11), "random", cell_noise=True)
    case.cell_variance[:2] = 1e6
    system = ObservationSpace().system(case.build(), case.data(), columns=8)
    variance = np.where(np.isnan(case.y), 0.0, case.oracle().variance_at(case.coords))
    assert system.spread == pytest.approx(math.sqrt(variance.sum()), rel=0.5)


@pytest.mark.parametrize("space", ["modes", "cells"])
def test_draws_and_error_bars_in_single_precision_off_the_grid(space):
    case, solver = SOME[0], replace(DEFAULT_IN[space], num_samples=2000)
    model = LKGP(
        case.kernels(), mean=case.mean, noise=case.noise, standardize=False, solver=solver, dtype=torch.float32
    )
    gp = model.fit(case.coords, case.y, optimize=False)
    new, oracle = case.new_coords(), case.oracle()
    mean, std = gp.predict(new)
    exact = np.sqrt(oracle.variance_at(new))
    np.testing.assert_allclose(mean, oracle.mean_at(new), atol=5e-3)
    # 2000 samples: relative standard errors of 1 / sqrt(4000), and 1 / sqrt(2000) of the mean
    assert np.abs(std / exact - 1).max() <= 5 / math.sqrt(4000) + 5e-3
    draws = gp.sample(2000, new, seed=1)
    assert np.abs(draws.std(axis=0) / exact - 1).max() <= 5 / math.sqrt(4000) + 5e-3
    assert np.abs((draws.mean(axis=0) - oracle.mean_at(new)) / exact).max() <= 5 / math.sqrt(2000) + 5e-3


def test_a_trace_takes_as_many_probes_at_a_time_as_memory_allows(monkeypatch):
    """And keeps the last two vectors of each if it must: so few steps need no others."""
    monkeypatch.setattr("lkgp.linalg.quadrature.CHECKED_STEPS", 10**9)
    matrix = torch.diag(torch.arange(1.0, 21.0, dtype=torch.float64))
    probes, widths = torch.randn(20, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64), []

    def apply(x):
        widths.append(x.shape[1])
        return matrix @ x

    whole, limited = (trace_of_log(apply, probes, 10, max_memory=limit, lowest=1.0) for limit in (None, 1.0))
    assert widths == [6] * 10 + [1] * 60
    torch.testing.assert_close(whole[0], limited[0], rtol=1e-9, atol=0)


def test_leading_eigenpairs_leave_nothing_negative(monkeypatch):
    x = torch.linspace(0, 1, 120, dtype=torch.float64)[:, None]
    matrix = torch.exp(-torch.cdist(x, x) / 0.2)
    values = torch.linalg.eigvalsh(matrix).flip(0)
    for pays in (10, 1000):
        monkeypatch.setattr("lkgp.linalg.eigenbasis.PIVOTED_PAYS", pays)
        for most, threshold in ((20, 1e-3), (120, 1e-3), (120, 0.1)):
            basis = FactorBasis.leading(matrix, most, threshold)
            left = torch.linalg.eigvalsh(matrix - basis.root @ basis.root.mT)
            assert float(left[0]) >= -1e-12
            assert float(left.sum()) == pytest.approx(basis.tail, abs=1e-10)
            # The largest one is about as found by pivoting as it is.
            assert float(basis.values[-1]) == pytest.approx(float(values[0]), rel=0.05)
            assert basis.rank <= 120
            assert float(basis.values[0]) > threshold


def test_low_rank_spectra_of_long_factors_are_found_by_pivoting(monkeypatch):
    x = torch.linspace(0, 1, 120, dtype=torch.float64)[:, None]
    matrix = torch.exp(-0.5 * torch.cdist(x, x).square() / 0.2**2)
    whole = FactorBasis.of(matrix)
    monkeypatch.setattr("lkgp.linalg.eigenbasis.PIVOTED_PAYS", 10)
    for tail in (0.0, 1e-6, 1e-2):
        basis = FactorBasis.of(matrix, tail)
        assert basis.rank <= whole.rank
        eye = torch.eye(basis.rank, dtype=torch.float64)
        torch.testing.assert_close(basis.vectors.mT @ basis.vectors, eye, atol=1e-12, rtol=0)
        left = matrix - basis.root @ basis.root.mT
        assert float(left.diagonal().sum()) <= max(tail, 1e-10)
        assert float(left.diagonal().sum()) <= basis.tail + 1e-10
        assert float(torch.linalg.eigvalsh(left)[0]) >= -1e-12


@pytest.mark.parametrize("space", ["modes", "cells"])
def test_a_start_is_used_and_a_limit_is_told(space, monkeypatch):
    monkeypatch.setattr("lkgp.linalg.preconditioners.leading_modes.cheapest_block", lambda diagonal, *_: 5)
    monkeypatch.setattr("lkgp.linalg.whitening_choice.cheapest_block", lambda diagonal, *_: 0)
    case = CURVES
    system = TIGHT_IN[space].system(case.build(), case.data(), columns=8)
    rhs = torch.randn(system.data.grid.num_observed, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    solution = system.solve_to(rhs, 1e-8)
    again = system.solve_to(rhs, 1e-5, start=solution.latent)
    assert again.iterations < system.solve_to(rhs, 1e-5).iterations / 3
    assert again.converged
    short = replace(TIGHT_IN[space], max_iterations=2).system(case.build(), case.data(), columns=8).solve_to(rhs, 1e-8)
    assert short.reason is Reason.ITERATION_LIMIT
    assert float(short.residuals.max()) > 1e-8


@pytest.mark.parametrize("space", ["cells", "dense"])
def test_where_float32_leads_nowhere_float64_follows(space, monkeypatch):
    """With a noise so far below the signal, the matrix that float32 rounds to is not the matrix."""
    monkeypatch.setattr("lkgp.linalg.preconditioners.leading_modes.cheapest_block", lambda diagonal, *_: 20)
    case = Case("hardly any noise", (12, 15), "curves", kinds=("matern", "rbf"), regular=True, noise=1e-6)
    system = TIGHT_IN[space].system(case.build(), case.data(), columns=8)
    rhs = torch.as_tensor(case.oracle().values)[:, None]
    solution = system.solve_to(rhs, 1e-3)
    assert solution.converged
    exact = np.linalg.solve(case.oracle().matrix, rhs.numpy())
    check_error_bound(solution, exact, case.oracle().matrix)


def test_nonsense_is_told():
    system = TIGHT.system(CURVES.build(), CURVES.data(), columns=8)
    rhs = torch.full((system.data.grid.num_observed, 1), math.nan, dtype=torch.float64)
    assert system.solve_to(rhs, 1e-6).reason is Reason.NON_FINITE


@pytest.mark.parametrize("case", SOME, ids=name)
def test_zero_right_hand_sides_are_solved_by_zero(case):
    system = TIGHT.system(case.build(), case.data(), columns=8)
    solution = system.solve_to(torch.zeros(system.data.grid.num_observed, 2, dtype=torch.float64), 1e-6)
    assert solution.converged
    assert bool((solution.values == 0).all())


def test_a_fit_in_the_eigenbasis_finds_what_the_exact_fit_finds():
    """The exact likelihood at its optimum is lower by less than half a nat a parameter, which is one standard error
    of each.
    """
    rng = np.random.default_rng(3)
    X, T = rng.uniform(0, 3, (40, 1)), np.linspace(0, 1, 25)
    smooth = np.sin(2 * X) * np.cos(3 * T) + X * T
    data = from_array([X, T], np.where(rng.random((40, 25)) < 0.7, smooth + 0.1 * rng.normal(size=(40, 25)), np.nan))
    model = LatentKroneckerGP(default_kernels([1, 1])).double()
    exact = fit(model, data, method=Direct(), optimizer=BFGS())
    stochastic = fit(model, data, method=Spectral(num_probes=32), optimizer=BFGS(gain_per_parameter=0.05))
    assert exact.converged
    assert stochastic.converged
    assert isinstance(stochastic.plan.method, Spectral)

    def likelihood(result):
        return float(log_likelihood(result.model, data, Direct()).objective.detach())

    num_free = sum(p.numel() for p in model.parameters())
    assert likelihood(exact) - 0.5 * num_free <= likelihood(stochastic) <= likelihood(exact) + 0.1
