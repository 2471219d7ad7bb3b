"""Inference with nearest neighbours as preconditioner: rough kernels, against dense matrices."""

import math

import numpy as np
import pytest
import torch
from gpytorch.kernels import MaternKernel, RBFKernel, ScaleKernel

from lkgp import LKGP, Direct, LatentKroneckerGP, ObservationSpace, Vecchia, fit, from_array
from lkgp.inference import Probes, Purpose, log_likelihood
from lkgp.inference.choice import propose
from lkgp.inference.costs import PlanningProblem
from lkgp.inference.neighbour_costs import cells_around


def exponential(a, b, lengthscale):
    distance = np.sqrt(((a[:, None, :] - b[None, :, :]) ** 2).sum(axis=-1))
    return np.exp(-distance / lengthscale)


def problem(seed=0, noise=0.02, places=40, times=12, scale=0.3, memory=2.0):
    """Data drawn from an exponential kernel over places times one over times, with gaps; the model, and dense A."""
    rng = np.random.default_rng(seed)
    x, t = rng.random((places, 2)), np.arange(float(times))[:, None]
    observed = np.flatnonzero(rng.random(places * times) < 0.7)
    dense = np.kron(exponential(x, x, scale), exponential(t, t, memory))
    matrix = dense[np.ix_(observed, observed)] + noise * np.eye(len(observed))
    y = np.full(places * times, np.nan)
    y[observed] = np.linalg.cholesky(matrix) @ rng.standard_normal(len(observed))
    kernels = [MaternKernel(nu=0.5), MaternKernel(nu=0.5)]
    for kernel, lengthscale in zip(kernels, (scale, memory), strict=True):
        kernel.double().lengthscale = lengthscale
    model = LatentKroneckerGP(kernels, mean=0.0, noise=noise).double()
    return model, from_array([x, t], y.reshape(places, times)), matrix


def log_density(matrix, values):
    return -0.5 * (values @ np.linalg.solve(matrix, values) + np.linalg.slogdet(2 * np.pi * matrix)[1])


def test_the_likelihood_is_within_its_stated_error():
    model, data, matrix = problem()
    exact = log_density(matrix, data.values.numpy())
    errors = []
    for neighbours in (3, 10, 30):
        method = ObservationSpace(preconditioner=Vecchia(neighbours))
        found = log_likelihood(model, data, method, Probes.draw(data, 8, 0))
        assert abs(float(found.objective.detach()) - exact) < 4 * found.error
        errors.append(found.error)
    assert 3 * errors[2] < errors[0]
    assert errors[2] < errors[1] < errors[0]


def test_the_gradient_has_little_variance():
    """Over seeds, the gradient scatters far less than that from draws of the data, about the differences of densities.

    The oracle is the difference quotient of the dense log density by each raw parameter.
    """
    model, data, _ = problem()
    values = data.values.numpy()
    x, t = (c.numpy() for c in data.grid.coords)
    index = data.grid.index.numpy()

    def density():
        with torch.no_grad():
            scale, memory = (float(kernel.lengthscale) for kernel in model.kernels)
            noise = float(model.noise_variance())
        dense = np.kron(exponential(x, x, scale), exponential(t, t, memory))[np.ix_(index, index)]
        return log_density(dense + noise * np.eye(len(index)), values)

    parameters = [p for p in model.parameters() if p.requires_grad]
    expected = []
    for p in parameters:
        before, step = p.data.clone(), 1e-5
        p.data = before + step
        above = density()
        p.data = before - step
        expected.append((above - density()) / (2 * step))
        p.data = before
    scatter = {}
    for name, method in {
        "draws": ObservationSpace(rtol=1e-8),
        "neighbours": ObservationSpace(preconditioner=Vecchia(45), rtol=1e-8),
    }.items():
        found = []
        for seed in range(10):
            for p in parameters:
                p.grad = None
            log_likelihood(model, data, method, Probes.draw(data, 4, seed), value=False).objective.backward()
            found.append([float(p.grad) for p in parameters])
        error = np.std(found, axis=0, ddof=1) / math.sqrt(len(found))
        assert (np.abs(np.mean(found, axis=0) - expected) < 5 * error + 1e-3).all()
        scatter[name] = np.std(found, axis=0)
    assert (scatter["neighbours"] < 0.4 * scatter["draws"]).all()


@pytest.mark.parametrize("kernel", ["rough", "smooth", "little noise"])
def test_stated_errors_of_solves_are_true(kernel):
    settings = {"rough": {}, "smooth": {"scale": 3.0, "memory": 20.0}, "little noise": {"noise": 2e-4, "scale": 1.0}}
    model, data, matrix = problem(**settings[kernel])
    system = ObservationSpace(preconditioner=Vecchia(8), rtol=1e-4).system(model, data, columns=4)
    rhs = torch.randn(len(matrix), 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    found = system.solve(rhs, Purpose.LIKELIHOOD)
    assert found.converged
    exact = np.linalg.solve(matrix, rhs.numpy())
    error = found.values.numpy() - exact
    size = np.sqrt(np.einsum("ic,ij,jc->c", error, matrix, error) / np.einsum("ic,ij,jc->c", exact, matrix, exact))
    assert (size <= found.residuals.numpy() + 1e-12).all()
    # The smallest eigenvalue of M^-1 A is not above what it is taken to be.
    eigenvalues = np.linalg.eigvals(system.inverse.solve(torch.from_numpy(matrix)).numpy()).real
    assert system.inverse.lowest <= 1.01 * eigenvalues.min()


def test_a_useless_start_does_no_harm():
    model, data, _ = problem(noise=2e-4)
    system = ObservationSpace(preconditioner=Vecchia(8)).system(model, data, columns=1)
    rhs = data.values[:, None]
    plain = system.solve(rhs, Purpose.LIKELIHOOD)
    started = system.solve(rhs, Purpose.LIKELIHOOD, 100 * torch.ones(1, data.grid.num_cells, dtype=torch.float64))
    assert started.converged
    assert started.iterations <= plain.iterations + 2


def test_a_fit_finds_the_same_optimum():
    _, data, _ = problem(noise=0.05)
    best = {}
    for name, method in {"direct": Direct(), "neighbours": ObservationSpace(preconditioner=Vecchia(10))}.items():
        model = LatentKroneckerGP([ScaleKernel(MaternKernel(nu=0.5)), MaternKernel(nu=0.5)], mean=0.0).double()
        result = fit(model, data, method=method)
        assert result.converged
        best[name] = float(log_likelihood(result.model, data, Direct()).objective.detach())
    assert best["neighbours"] > best["direct"] - 0.5


def test_a_large_rough_field_is_planned_with_neighbours_and_the_report_says_so():
    x, y = np.meshgrid(np.arange(90.0), np.arange(80.0), indexing="ij")
    rng = np.random.default_rng(0)
    there = rng.random(x.size) < 0.8
    points = np.stack([x.ravel(), y.ravel()], axis=1)[there]
    values = rng.standard_normal(len(points))
    kernel = MaternKernel(nu=0.5)
    kernel.lengthscale = 20.0
    data = from_array([points], values)
    model = LatentKroneckerGP([kernel.double()], mean=0.0, noise=1e-3).double()
    for fitting in (True, False):
        found = propose(model, data, fitting=fitting)
        assert "nearest-neighbour preconditioner with" in found.why
    method = ObservationSpace(preconditioner=Vecchia(15))
    gp = LKGP([kernel], mean=0.0, noise=1e-3, standardize=False, solver=method).fit([points], values, optimize=False)
    assert "nearest-neighbour preconditioner with 15 neighbours" in str(gp.report_)
    solution = method.system(model, data, columns=1).solve(data.values[:, None], Purpose.MEAN)
    assert solution.converged
    assert solution.iterations < 60


def test_smooth_kernels_keep_their_modes():
    rng = np.random.default_rng(0)
    data = from_array([rng.random((300, 2)), np.arange(50.0)[:, None]], rng.standard_normal((300, 50)))
    kernel, over_time = RBFKernel(), RBFKernel()
    over_time.lengthscale = 10.0
    model = LatentKroneckerGP([kernel.double(), over_time.double()], noise=0.1).double()
    assert "neighbour" not in propose(model, data).why
    planned = ObservationSpace(preconditioner=Vecchia(15)).plan(PlanningProblem(model, data))
    assert not planned.obstacle


def test_a_part_for_a_prediction_holds_the_most_correlated_cells():
    model, data, _ = problem(places=200, times=40)
    part = cells_around(model, data, 1000, 500)
    assert 200 <= part.grid.num_observed <= 1000
    place = data.grid.coords[0][data.grid.axis_index[0][1000]]
    distances = (data.grid.coords[0] - place).norm(dim=1)
    kept = (part.grid.coords[0] - place).norm(dim=1)
    assert float(kept.max()) <= float(distances.sort().values[len(kept) - 1]) + 1e-12
