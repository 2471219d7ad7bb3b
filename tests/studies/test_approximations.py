"""Approximate models against their dense definitions."""

import numpy as np
import pytest
import torch
from cases import Case, name
from gpytorch.kernels import IndexKernel, RBFKernel
from study_problems import smooth_problem

from lkgp.studies.comparators import cagp
from lkgp.studies.comparators.imaginary import ImaginaryObservationsGP
from lkgp.studies.comparators.svgp import SVGP
from lkgp.studies.comparators.vnngp import VNNGP
from lkgp.studies.models.grids import on_grid
from lkgp.studies.models.row_gp import observed_rows, product_kernel, rows_of
from lkgp.studies.predictions import Prediction
from lkgp.studies.scoring import score

GRIDS = [
    Case("two factors", (7, 6), "random"),
    Case("learning curves", (8, 7), "curves"),
    Case("a row missing", (5, 6), "row"),
    Case("several columns", (6, 7), "random", columns=(3, 2)),
]


def dense_cagp(case, S):
    """Bound, mean and variance by the definition, in NumPy."""
    oracle = case.oracle()
    cross, prior = oracle._blocks(case.coords)
    K = oracle.matrix - case.noise * np.eye(len(oracle.values))
    H = S.T @ oracle.matrix @ S
    v = np.linalg.solve(H, S.T @ oracle.values)
    mean = case.mean + cross @ S @ v
    variance = np.diag(prior - cross @ S @ np.linalg.solve(H, S.T @ cross.T))
    # q over the observed cells, and its divergence from the prior, by the formula for two Gaussians
    m, C = K @ S @ v, K - K @ S @ np.linalg.solve(H, S.T @ K)
    n = len(m)
    inverse = np.linalg.inv(K)
    divergence = 0.5 * (np.trace(inverse @ C) - n + m @ inverse @ m + np.linalg.slogdet(K)[1] - np.linalg.slogdet(C)[1])
    misfit = ((oracle.values - m) ** 2).sum() + np.trace(C)
    bound = -0.5 * (misfit / case.noise + n * np.log(2 * np.pi * case.noise)) - divergence
    return bound, mean, variance


@pytest.mark.parametrize("case", GRIDS, ids=name)
def test_cagp_is_its_dense_definition(case):
    case = Case(
        case.name, case.shape, case.gaps, columns=case.columns, kinds=("matern", "matern")
    )  # K must be well conditioned
    gp = cagp.ComputationAwareGP(case.build(), case.data(), num_actions=5)
    with torch.no_grad():
        gp.entries.add_(
            0.1 * torch.randn(len(gp.entries), dtype=torch.float64, generator=torch.Generator().manual_seed(0))
        )
    bound, mean, variance = dense_cagp(case, gp.actions().detach().numpy())
    coords = [torch.as_tensor(x) for x in case.coords]
    found = [part.numpy() for part in gp.predict(coords)]
    assert gp.elbo().item() == pytest.approx(bound, rel=1e-6)
    np.testing.assert_allclose(found[0], mean, rtol=1e-8, atol=1e-9)
    np.testing.assert_allclose(found[1], variance, rtol=1e-7, atol=1e-9)
    exact = case.oracle()
    assert (found[1] >= exact.variance_at(case.coords).ravel() - 1e-9).all()
    assert bound <= exact.log_likelihood()


def test_cagp_with_an_action_for_every_observation_is_exact():
    case = GRIDS[0]
    gp = cagp.ComputationAwareGP(case.build(), case.data(), num_actions=10**6)
    mean, variance = gp.predict([torch.as_tensor(x) for x in case.coords])
    np.testing.assert_allclose(mean.numpy(), case.oracle().mean_at(case.coords).ravel(), rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(variance.numpy(), case.oracle().variance_at(case.coords).ravel(), rtol=1e-7, atol=1e-10)


def test_cagp_learns_hyperparameters_and_actions():
    case = GRIDS[1]
    gp = cagp.ComputationAwareGP(case.build(), case.data(), num_actions=6)
    entries = gp.entries.detach().clone()
    bounds = cagp.fit(gp, steps=30, rate=0.05)
    assert bounds[-1] > bounds[0]
    assert not torch.equal(entries, gp.entries)
    assert bounds[-1] * len(entries) <= case.oracle().log_likelihood() + 60  # the hyperparameters moved, too


@pytest.mark.parametrize("case", GRIDS, ids=name)
def test_imaginary_observations_have_the_exact_mean_and_variance(case):
    gp = ImaginaryObservationsGP(case.build(), case.data(), rtol=1e-12)
    mean, variance = gp.predict(4000, torch.Generator().manual_seed(0))
    exact = case.oracle()
    # Imaginary cells still carry a little information: a millionth of what a real one does.
    np.testing.assert_allclose(mean.detach().numpy(), exact.mean_at(case.coords).ravel(), atol=1e-4)
    np.testing.assert_allclose(variance.detach().numpy(), exact.variance_at(case.coords).ravel(), rtol=0.12, atol=1e-3)


def test_imaginary_observations_have_a_gradient_that_is_right():
    case = Case("complete", (6, 5), "none")
    gp = ImaginaryObservationsGP(case.build(), case.data(), rtol=1e-13)
    # On a complete grid the approximation of the determinant is exact.
    assert gp.objective().item() * 30 == pytest.approx(case.oracle().log_likelihood(), rel=1e-9)
    gp.objective().backward()
    parameter = gp.model.kernels[1].raw_lengthscale
    step, found = 1e-5, parameter.grad.item()
    values = []
    for sign in (1, -1):
        with torch.no_grad():
            parameter.add_(sign * step)
            values.append(gp.objective().item())
            parameter.sub_(sign * step)
    assert found == pytest.approx((values[0] - values[1]) / (2 * step), rel=1e-5)
    case = GRIDS[1]
    losses = ImaginaryObservationsGP(case.build(), case.data()).fit(15, 0.05)
    assert losses[-1] > losses[0]


def test_rows_and_their_kernel_are_those_of_the_grid():
    case = Case("several columns", (4, 5), "none", columns=(3, 2))
    coords = [torch.as_tensor(x) for x in case.coords]
    rows = rows_of(coords, torch.arange(20))
    with torch.no_grad():
        found = product_kernel(case.kernels(), coords)(rows).to_dense().numpy()
    np.testing.assert_allclose(found, case.oracle().matrix - case.noise * np.eye(20), atol=1e-10)
    tasks = [torch.randn(4, 2), torch.arange(3.0)[:, None]]
    kernels = [RBFKernel(ard_num_dims=2), IndexKernel(num_tasks=3, rank=3)]
    with torch.no_grad():
        found = product_kernel(kernels, tasks)(rows_of(tasks, torch.arange(12))).to_dense()
        expected = torch.kron(kernels[0](tasks[0]).to_dense(), kernels[1](tasks[1]).to_dense())
    torch.testing.assert_close(found, expected)


def test_svgp_with_all_points_comes_close_to_the_exact_posterior():
    """At the true hyperparameters, with every row an inducing point, only the variational distribution is learned."""
    case = Case("two factors", (6, 5), "random", noise=0.3)
    data, coords = case.data(), [torch.as_tensor(x) for x in case.coords]
    gp = SVGP(coords, data.grid.index, data.values, case.kernels(), inducing=10**6, batch=10**6)
    gp.likelihood.noise = torch.tensor(case.noise, dtype=torch.float64)
    gp.model.mean_module.constant.data.fill_(case.mean)
    for parameter in (
        *gp.model.covar_module.parameters(),
        *gp.likelihood.parameters(),
        *gp.model.mean_module.parameters(),
    ):
        parameter.requires_grad_(False)
    gp.model.variational_strategy.inducing_points.requires_grad_(False)
    bounds = gp.fit(600, 0.05)
    mean, variance = gp.predict()
    np.testing.assert_allclose(mean.numpy(), case.oracle().mean_at(case.coords).ravel(), atol=0.02)
    np.testing.assert_allclose(variance.numpy(), case.oracle().variance_at(case.coords).ravel() + case.noise, atol=0.03)
    assert bounds[-1] <= case.oracle().log_likelihood() / len(data.values) + 1e-6


@pytest.mark.parametrize("inducing", [10**6, 150])
def test_vnngp_learns_from_neighbours(inducing):
    problem = smooth_problem()
    coords, observed, y = observed_rows(problem)
    gp = VNNGP(coords, observed, y, problem.make_kernels(), neighbours=12, inducing=inducing, batch=100)
    bounds = gp.fit(50, 0.05)
    mean, variance = gp.predict()
    assert bounds[-1] > bounds[0]
    found = score(problem, Prediction(on_grid(problem, mean), on_grid(problem, variance.sqrt())))
    assert found["test_rmse"] < 0.7 * problem.values.std()
