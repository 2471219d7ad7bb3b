"""A model with two terms, through the posterior and the gradient: what a sum of products will build on."""

import math

import numpy as np
import pytest
import torch
from cases import Case
from dense_gradients import gradients
from gpytorch.kernels import MaternKernel, RBFKernel, ScaleKernel
from inference_cases import ITERATIVE, SAMPLES
from oracle import kronecker, matern52, squared_exponential

from lkgp import Direct, InputError, ObservationSpace, PivotedCholesky, Plan, condition, plan
from lkgp.inference import Probes, log_likelihood
from lkgp.model import Term

CASE = Case("two terms", (5, 6), "random", kinds=("rbf", "matern"))
METHODS = [ObservationSpace(**ITERATIVE), ObservationSpace(preconditioner=PivotedCholesky(5), dense=True, **ITERATIVE)]


def model_of_two_terms():
    """The model of the case plus 0.6 Matern-5/2 (length 0.5) x squared exponential (length 0.9)."""
    first, second = ScaleKernel(MaternKernel(nu=2.5)).double(), RBFKernel().double()
    first.base_kernel.lengthscale, first.outputscale, second.lengthscale = 0.5, 0.6, 0.9
    model = CASE.build()
    model.terms.append(Term([first, second]))
    return model


def dense(a, b):
    """K between the cells of two grids, by the oracle's kernels."""
    own = kronecker([kernel(x, z) for kernel, x, z in zip(CASE.oracle().kernels, a, b, strict=True)])
    added = kronecker([0.6 * matern52(a[0], b[0], np.array([0.5])), squared_exponential(a[1], b[1], np.array([0.9]))])
    return own + added


def dense_posterior(new):
    index = CASE.oracle().index
    matrix = dense(CASE.coords, CASE.coords)[np.ix_(index, index)] + CASE.noise * np.eye(len(index))
    cross = dense(new, CASE.coords)[:, index]
    mean = CASE.mean + cross @ np.linalg.solve(matrix, CASE.y.ravel()[index] - CASE.mean)
    return mean, dense(new, new) - cross @ np.linalg.solve(matrix, cross.T)


@pytest.mark.parametrize("method", METHODS, ids=["grid", "dense"])
def test_the_posterior_of_a_sum_is_that_of_the_oracle(method):
    posterior = condition(model_of_two_terms(), CASE.data(), Plan(method, ""))
    assert posterior.solution.converged
    for new in (CASE.coords, CASE.new_coords()):
        points = [torch.as_tensor(x) for x in new]
        mean, covariance = dense_posterior(new)
        np.testing.assert_allclose(posterior.mean(points).numpy().ravel(), mean, atol=1e-6)
        np.testing.assert_allclose(posterior.covariance(points).numpy(), covariance, atol=1e-6)
        variance = covariance.diagonal()
        error = np.abs(posterior.variance(points).numpy().ravel() - variance)
        assert (error <= 5 * math.sqrt(2 / SAMPLES) * variance + 1e-7).all()
        draws = posterior.draws(4000, 1)(points).flatten(1).numpy()
        bound = 5.5 * np.sqrt((np.outer(variance, variance) + covariance**2) / 4000)
        assert (np.abs(np.cov(draws.T) - covariance) <= bound).all()


@pytest.mark.parametrize("method", METHODS, ids=["grid", "dense"])
def test_the_gradient_of_a_sum_is_that_of_dense_autograd(method, monkeypatch):
    monkeypatch.setattr("lkgp.inference.observation_space.JITTER", 1e-9)
    model, data = model_of_two_terms(), CASE.data()
    matrix = sum(
        torch.kron(
            *(kernel(torch.as_tensor(x)).to_dense() for kernel, x in zip(term.kernels, CASE.coords, strict=True))
        )
        for term in model.terms
    )
    index = data.grid.index
    covariance = matrix[index][:, index] + model.noise_variance() * torch.eye(len(index))
    normal = torch.distributions.MultivariateNormal(model.mean.constant.expand(len(index)), covariance)
    truth = gradients(normal.log_prob(data.values), model)
    n, width = data.grid.num_observed, 2 * data.grid.num_cells
    whole = math.sqrt(n + width) * torch.eye(n + width, dtype=torch.float64)
    found = log_likelihood(model, data, method, Probes(whole[:width], whole[width:]), value=False)
    torch.testing.assert_close(gradients(found.objective, model), truth, atol=2e-5, rtol=2e-5)


def test_other_ways_say_that_they_cannot():
    found = plan(model_of_two_terms(), CASE.data(), "auto")
    assert isinstance(found.method, ObservationSpace)
    with pytest.raises(InputError, match="sum of several products"):
        plan(model_of_two_terms(), CASE.data(), Direct())
