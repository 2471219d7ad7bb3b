"""Every solver on every case: the residual it reports is the true one, and its failures are said."""

import dataclasses
import math

import numpy as np
import pytest
import torch
from cases import CASES, SOME, name

import lkgp.linalg.preconditioners
import lkgp.solvers
from lkgp import (
    AlternatingProjections,
    Cholesky,
    ConjugateGradients,
    InputError,
    KalmanFilter,
    KroneckerEigenbasis,
    LeadingModes,
    Nystrom,
    PartialGrid,
    PivotedCholesky,
    Reason,
    StochasticGradientDescent,
    SuccessiveBlocks,
    Vecchia,
    solve,
)
from lkgp.linalg import LatentKronecker

SOLVERS = [
    ConjugateGradients(rtol=1e-9),
    Cholesky(rtol=1e-9),
    AlternatingProjections(rtol=1e-8, block_size=8),
    StochasticGradientDescent(rtol=1e-2, batch_size=8),
]
PRECONDITIONERS = [
    PivotedCholesky(rank=5),
    Nystrom(rank=5),
    LeadingModes(rank=5),
    KroneckerEigenbasis(),
    Vecchia(neighbours=5),
]


def class_name(record):
    return type(record).__name__


def right_hand_sides(n, scale=1.0):
    rhs = scale * np.random.default_rng(3).normal(size=(n, 4))
    rhs[:, 2] = 0.0
    return rhs


def check_solution(dense, rhs, solution):
    """The reported residuals are the true ones, column by column, and small."""
    left = rhs - dense @ solution.values.double().numpy()
    norms = np.linalg.norm(rhs, axis=0)
    true = np.linalg.norm(left, axis=0) / np.where(norms > 0, norms, 1)
    assert solution.reason is Reason.CONVERGED, solution
    np.testing.assert_allclose(solution.residuals.double().numpy(), true, rtol=1e-2, atol=1e-13)
    assert true.max() <= solution.rtol
    assert solution.products > 0
    assert solution.iterations > 0


@pytest.mark.parametrize("case", CASES, ids=name)
@pytest.mark.parametrize("solver", SOLVERS, ids=class_name)
@pytest.mark.parametrize("scale", [1.0, 1e-13])
def test_solves_every_case_in_any_units(case, solver, scale):
    operator, dense = case.build().covariance(case.data()).detach(), case.oracle().matrix
    rhs = right_hand_sides(len(dense), scale)
    check_solution(dense, rhs, solve(operator, torch.as_tensor(rhs), solver))


@pytest.mark.parametrize("case", SOME, ids=name)
@pytest.mark.parametrize("solver", SOLVERS, ids=class_name)
def test_single_precision_says_how_far_it_came(case, solver):
    operator, dense = case.build().covariance(case.data()).detach().to(torch.float32), case.oracle().matrix
    rhs = right_hand_sides(len(dense)).astype(np.float32)
    solution = solve(operator, torch.as_tensor(rhs), dataclasses.replace(solver, rtol=max(solver.rtol, 1e-4)))
    left = rhs - dense @ solution.values.double().numpy()
    true = np.linalg.norm(left, axis=0) / np.maximum(np.linalg.norm(rhs, axis=0), 1e-30)
    assert solution.converged
    np.testing.assert_allclose(solution.residuals.double().numpy(), true, atol=3e-6)


@pytest.mark.parametrize("case", CASES, ids=name)
@pytest.mark.parametrize("preconditioner", PRECONDITIONERS, ids=class_name)
def test_preconditioners_keep_the_solution(case, preconditioner):
    operator, dense = case.build().covariance(case.data()).detach(), case.oracle().matrix
    rhs = right_hand_sides(len(dense))
    built = preconditioner.build(operator)
    check_solution(
        dense, rhs, solve(operator, torch.as_tensor(rhs), ConjugateGradients(rtol=1e-9), preconditioner=built)
    )


@pytest.mark.parametrize("case", CASES, ids=name)
@pytest.mark.parametrize("preconditioner", PRECONDITIONERS, ids=class_name)
def test_a_preconditioner_is_one_matrix(case, preconditioner):
    """solve, root and logdet belong to the same symmetric positive definite M = G G^T, and M <= A where that is
    said.
    """
    built = preconditioner.build(case.build().covariance(case.data()).detach())
    n = len(case.oracle().matrix)
    inverse = built.solve(torch.eye(n, dtype=torch.float64)).numpy()
    np.testing.assert_allclose(inverse, inverse.T, atol=1e-9)
    assert np.linalg.eigvalsh(inverse).min() > 0
    if built.logdet is None:
        return
    root = built.root(torch.eye(sum(built.widths), dtype=torch.float64)).numpy()
    np.testing.assert_allclose(root @ root.T @ inverse, np.eye(n), atol=1e-7)
    if built.below:
        assert np.linalg.eigvalsh(case.oracle().matrix - root @ root.T).min() > -1e-9
    np.testing.assert_allclose(float(built.logdet), -np.linalg.slogdet(inverse)[1], rtol=1e-9)


@pytest.mark.parametrize("preconditioner", [PivotedCholesky(60), Nystrom(60), LeadingModes(60)], ids=class_name)
def test_full_rank_preconditioners_are_the_matrix_itself(preconditioner):
    case = SOME[0]
    operator, dense = case.build().covariance(case.data()).detach(), case.oracle().matrix
    inverse = preconditioner.build(operator).solve(torch.eye(len(dense), dtype=torch.float64)).numpy()
    if not isinstance(preconditioner, LeadingModes):  # whose modes are those of the whole grid, of which there are more
        np.testing.assert_allclose(inverse @ dense, np.eye(len(dense)), atol=1e-6)
    spectrum = np.linalg.eigvals(inverse @ dense).real
    assert spectrum.min() > 1 - 1e-6


def test_leading_modes_bound_the_spectrum_whatever_the_gaps():
    """All eigenvalues of M^-1 A lie in [1, 1 + (first eigenvalue left out) / noise]."""
    for case in SOME:
        if case.cell_noise:
            continue
        operator, oracle = case.build().covariance(case.data()).detach(), case.oracle()
        latent = np.ones((1, 1))
        for kernel, x in zip(oracle.kernels, oracle.coords, strict=True):
            latent = np.kron(latent, kernel(x, x))
        eigenvalues = np.sort(np.linalg.eigvalsh(latent))[::-1]
        inverse = LeadingModes(rank=6).build(operator).solve(torch.eye(len(oracle.matrix), dtype=torch.float64)).numpy()
        spectrum = np.linalg.eigvals(inverse @ oracle.matrix).real
        assert spectrum.min() > 1 - 1e-8
        assert spectrum.max() < 1 + eigenvalues[6] / case.noise + 1e-8


def test_eigenbasis_solves_a_complete_grid_at_once():
    case = next(case for case in CASES if case.name == "nothing missing")
    operator = case.build().covariance(case.data()).detach()
    rhs = torch.as_tensor(right_hand_sides(30))
    solution = solve(operator, rhs, ConjugateGradients(rtol=1e-9), preconditioner=KroneckerEigenbasis().build(operator))
    assert solution.converged
    assert solution.iterations == 1


@pytest.mark.parametrize("solver", SOLVERS, ids=class_name)
def test_a_warm_start_at_the_solution_costs_no_iteration(solver):
    case = SOME[0]
    operator = case.build().covariance(case.data()).detach()
    rhs = torch.as_tensor(right_hand_sides(operator.shape[0]))
    exact = solve(operator, rhs, Cholesky()).values
    again = solve(operator, rhs, solver, x0=exact)
    assert again.converged
    assert again.iterations == (1 if isinstance(solver, Cholesky) else 0)


def test_a_warm_start_worse_than_nothing_is_not_used():
    case = SOME[0]
    operator = case.build().covariance(case.data()).detach()
    rhs = torch.as_tensor(right_hand_sides(operator.shape[0]))
    assert solve(operator, rhs, ConjugateGradients(1e-9), x0=1e12 * torch.ones_like(rhs)).converged


def test_a_column_that_is_done_is_left_alone():
    """An easy column beside a hard one is not iterated to 0 / 0, and takes no products."""
    case = SOME[0]
    operator = case.build().covariance(case.data()).detach()
    dense = case.oracle().matrix
    _, vectors = np.linalg.eigh(dense)
    rhs = np.stack([vectors[:, -1], np.random.default_rng(0).normal(size=len(dense))], axis=1)
    solution = solve(operator, torch.as_tensor(rhs), ConjugateGradients(rtol=1e-10))
    check_solution(dense, rhs, solution)
    alone = solve(operator, torch.as_tensor(rhs[:, 1]), ConjugateGradients(rtol=1e-10))
    assert solution.products <= alone.products + 4


@pytest.mark.parametrize(
    "solver", [*SOLVERS[:3], StochasticGradientDescent(max_iterations=400, batch_size=8)], ids=class_name
)
def test_failures_are_said(solver):
    case = next(case for case in CASES if case.name == "two factors")
    good = case.build().covariance(case.data()).detach()
    indefinite = LatentKronecker(*good.factors, torch.tensor(-1.0, dtype=torch.float64), grid=good.grid)
    rhs = torch.as_tensor(right_hand_sides(good.shape[0]))
    broken = solve(indefinite, rhs, solver)
    assert not broken.converged
    expected = (
        {Reason.NOT_POSITIVE_DEFINITE, Reason.ITERATION_LIMIT}
        if isinstance(solver, StochasticGradientDescent)
        else {Reason.NOT_POSITIVE_DEFINITE}
    )
    assert broken.reason in expected
    assert torch.isfinite(broken.values).all()
    nan = rhs.clone()
    nan[0, 0] = math.nan
    assert solve(good, nan, solver).reason is Reason.NON_FINITE


@pytest.mark.parametrize(
    "solver",
    [
        ConjugateGradients(1e-10, 2),
        AlternatingProjections(1e-10, 4, 2),
        StochasticGradientDescent(1e-10, max_iterations=200),
    ],
    ids=class_name,
)
def test_running_out_of_iterations_is_said(solver):
    case = next(case for case in CASES if case.name == "two factors")
    operator = case.build().covariance(case.data()).detach()
    rhs = right_hand_sides(operator.shape[0])
    solution = solve(operator, torch.as_tensor(rhs), solver)
    assert solution.reason is Reason.ITERATION_LIMIT
    true = np.linalg.norm(rhs - case.oracle().matrix @ solution.values.numpy(), axis=0) / np.maximum(
        np.linalg.norm(rhs, axis=0), 1e-30
    )
    np.testing.assert_allclose(solution.residuals.numpy(), true, rtol=1e-6, atol=1e-12)


def test_settings_are_checked():
    with pytest.raises(InputError, match="rtol must be a positive number"):
        ConjugateGradients(rtol=-1)
    with pytest.raises(InputError, match="rank"):
        PivotedCholesky(rank=0)
    with pytest.raises(InputError, match="rows"):
        solve(torch.eye(3), torch.ones(4), ConjugateGradients())


def test_every_solver_and_preconditioner_is_in_these_lists():
    solvers = {cls for cls in vars(lkgp.solvers).values() if dataclasses.is_dataclass(cls) and hasattr(cls, "solve")}
    assert solvers == {type(solver) for solver in SOLVERS}
    built = {
        cls
        for cls in vars(lkgp.linalg.preconditioners).values()
        if dataclasses.is_dataclass(cls) and hasattr(cls, "build")
    }
    # Two need a long axis: see tests/linalg/test_successive_blocks.py and test_kalman_filter.py.
    assert built - {SuccessiveBlocks, KalmanFilter} == {type(preconditioner) for preconditioner in PRECONDITIONERS}


def peak_bytes(function):
    """The most bytes that PyTorch's allocator had given out at once while `function` ran, beyond what it held
    before.
    """
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
        function()
    changes = [event.nbytes() for event in profile.profiler.kineto_results.events() if event.name() == "[memory]"]
    assert len(changes) > 10
    return int(np.cumsum(changes).max())


@pytest.mark.parametrize("columns", [1, 8])
def test_a_solve_holds_at_most_six_arrays_a_column(columns, monkeypatch):
    monkeypatch.setattr("lkgp.linalg.kronecker.CHUNK_CELLS", 2 * 200 * 200)
    monkeypatch.setattr("lkgp.solvers.cg.DOT_ENTRIES", 2**12)
    size = 200
    generator = torch.Generator().manual_seed(0)
    x = torch.linspace(0, 4, size, dtype=torch.float64)
    factor = torch.exp(-0.5 * (x[:, None] - x) ** 2)
    observed = torch.rand(size, size, generator=generator) < 0.9
    grid = PartialGrid((x, x), observed)
    operator = LatentKronecker(factor, factor, torch.tensor(0.1, dtype=torch.float64), grid=grid)
    rhs = torch.randn(grid.num_observed, columns, dtype=torch.float64, generator=generator)
    _ = grid.index
    peak = peak_bytes(lambda: solve(operator, rhs, ConjugateGradients(rtol=1e-2)))
    # The right-hand side was made before and counts as well.
    assert 1 + peak / (size * size * columns * 8) <= 6
