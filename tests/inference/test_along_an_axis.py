"""Inference along a long axis with a cycle, block by block or by a filter, against dense matrices."""

import numpy as np
import pytest
import torch
from gpytorch.kernels import MaternKernel, PeriodicKernel, RQKernel, ScaleKernel

from lkgp import (
    ConjugateGradients,
    KalmanFilter,
    LatentKroneckerGP,
    ObservationSpace,
    SuccessiveBlocks,
    from_array,
    solve,
)
from lkgp.inference import Probes, log_likelihood, propose
from lkgp.inference.base import Plan
from lkgp.inference.costs import PlanningProblem
from lkgp.inference.filter_costs import filter_cost
from lkgp.inference.succession_costs import iterations_of_stretch
from lkgp.linalg.factors import markov
from lkgp.linalg.factors import sum as sums
from lkgp.posterior import condition

REACH, MEMORY, PERIOD, KEEPS, SHARE, NOISE = 0.6, 5.0, 24.0, 2000.0, 0.5, 0.02


def weather(a, b):
    return np.exp(-np.abs(a[:, None] - b) / MEMORY)


def cycle(a, b):
    apart = np.abs(a[:, None] - b)
    r = 5**0.5 * apart / KEEPS
    return SHARE * np.exp(-2 * np.sin(np.pi * apart / PERIOD) ** 2) * (1 + r + r**2 / 3) * np.exp(-r)


def over_places(a, b):
    return np.exp(-np.linalg.norm(a[:, None] - b, axis=-1) / REACH)


def kernels(keeps=KEEPS):
    places, short, changes, repeats = (
        MaternKernel(nu=0.5),
        MaternKernel(nu=0.5),
        MaternKernel(nu=2.5),
        PeriodicKernel(),
    )
    for kernel, length in ((places, REACH), (short, MEMORY), (changes, keeps), (repeats, 1.0)):
        kernel.double().lengthscale = length
    repeats.period_length = PERIOD
    last = ScaleKernel(repeats * changes).double()
    last.outputscale = SHARE
    return [places, short + last]


class Case:
    """Four places x 300 times with runs of missing times, drawn from the model, and its dense covariances."""

    def __init__(self, irregular):
        rng = np.random.default_rng(1)
        self.places = rng.random((4, 2))
        self.times = np.sort(rng.uniform(0, 300, 300)) if irregular else np.arange(300.0)
        seen = np.ones((4, 300), dtype=bool)
        for row in seen:
            for start in rng.integers(0, 290, 4):
                row[start : start + rng.integers(3, 40)] = False
        self.index = np.flatnonzero(seen)
        in_time = weather(self.times, self.times) + cycle(self.times, self.times)
        self.prior = np.kron(over_places(self.places, self.places), in_time)
        self.matrix = self.prior[np.ix_(self.index, self.index)] + NOISE * np.eye(len(self.index))
        self.values = np.linalg.cholesky(self.matrix) @ rng.standard_normal(len(self.index))
        y = np.full(1200, np.nan)
        y[self.index] = self.values
        self.y = y.reshape(4, 300)
        self.data = from_array([self.places, self.times[:, None]], self.y)
        self.model = LatentKroneckerGP(kernels(), mean=0.0, noise=NOISE).double()


@pytest.fixture(params=[False, True], ids=["regular", "irregular"])
def case(request, monkeypatch):
    # Irregular times are a sum of kernels in linear memory, however few they are here.
    for module in (markov, sums):
        monkeypatch.setattr(module, "MARKOV_PAYS", 100)
    found = Case(request.param)
    assert found.model.structures(found.data.grid) == ("dense", "sum" if request.param else "dense")
    return found


BLOCKS, FILTER = (ObservationSpace(preconditioner=made) for made in (SuccessiveBlocks(), KalmanFilter()))
METHODS = pytest.mark.parametrize("method", [BLOCKS, FILTER], ids=["blocks", "filter"])


@METHODS
def test_the_likelihood_is_within_its_stated_error(case, method):
    found = log_likelihood(case.model, case.data, method, Probes.draw(case.data, 8, 0))
    solved = np.linalg.solve(case.matrix, case.values)
    exact = -0.5 * (case.values @ solved + np.linalg.slogdet(2 * np.pi * case.matrix)[1])
    assert abs(float(found.objective.detach()) - exact) < 4 * found.error
    # Without a preconditioner the error would be some nats.
    assert found.error < 2


@METHODS
def test_the_posterior_is_the_dense_one(case, method):
    posterior = condition(case.model, case.data, Plan(method, ""))
    cross = case.prior[:, case.index]
    mean = cross @ np.linalg.solve(case.matrix, case.values)
    covariance = case.prior - cross @ np.linalg.solve(case.matrix, cross.T)
    deviation = np.sqrt(np.diag(covariance))
    coords = case.data.grid.coords
    found = posterior.mean(coords).flatten().numpy()
    assert np.abs(found - mean).max() < 1e-3 * deviation.min()
    draws = posterior.draws(256, 0)(coords).flatten(1).numpy()
    # The scatter of 256 draws: standard errors of variances and of covariances are 9 and 6 %.
    ratio = draws.std(axis=0) / deviation
    assert abs(ratio.mean() - 1) < 0.02
    assert 0.75 < ratio.min() < ratio.max() < 1.3
    lag = np.mean([np.corrcoef(draws[:, i], draws[:, i + 1])[0, 1] for i in range(0, 1190, 7)])
    scaled = covariance / np.outer(deviation, deviation)
    assert abs(lag - np.mean([scaled[i, i + 1] for i in range(0, 1190, 7)])) < 0.02


@METHODS
def test_it_needs_far_fewer_iterations_than_nothing(case, method):
    posterior = condition(case.model, case.data, Plan(method, ""))
    plain = condition(case.model, case.data, Plan(ObservationSpace(preconditioner=None), ""))
    assert 4 * posterior.solution.iterations < plain.solution.iterations


@METHODS
def test_new_times_are_predicted(case, method):
    posterior = condition(case.model, case.data, Plan(method, ""))
    later = np.array([305.5, 312.0])
    coords = [torch.as_tensor(case.places), torch.as_tensor(later)[:, None]]
    found, deviation = posterior.mean(coords), posterior.variance(coords).sqrt()
    in_time = weather(later, case.times) + cycle(later, case.times)
    cross = np.kron(over_places(case.places, case.places), in_time)[:, case.index]
    mean = cross @ np.linalg.solve(case.matrix, case.values)
    prior = np.full(8, 1 + SHARE)
    exact = np.sqrt(prior - (cross * np.linalg.solve(case.matrix, cross.T).T).sum(axis=1))
    np.testing.assert_allclose(found.flatten().numpy(), mean, atol=1e-3 * exact.min())
    np.testing.assert_allclose(deviation.flatten().numpy(), exact, rtol=0.15)


def test_a_short_stretch_predicts_the_iterations_of_a_longer_one():
    """From 114 times and half of the digits, roughly: the shorter stretch has fewer modes of the cycle."""
    rng = np.random.default_rng(0)
    y = np.where(rng.random((50, 256)) < 0.3, np.nan, rng.standard_normal((50, 256)))
    data = from_array([rng.random((50, 2)), np.arange(256.0)[:, None]], y)
    model = LatentKroneckerGP(kernels(), noise=NOISE).double()
    operator = model.covariance(data, ["dense", "dense"]).detach()
    rhs = torch.as_tensor(rng.standard_normal((data.grid.num_observed, 1)))
    blocks = SuccessiveBlocks()
    needed = solve(operator, rhs, ConjugateGradients(rtol=1e-6), preconditioner=blocks.build(operator)).iterations
    assert iterations_of_stretch(model, data, 1, blocks) == pytest.approx(needed, rel=0.4)


def test_plans_name_them():
    case = Case(irregular=False)
    blocks, along = (propose(case.model, case.data, method) for method in (BLOCKS, FILTER))
    assert "block by block along an axis" in blocks.why
    assert "iterations" in blocks.why
    assert "filter along an axis with at most 512 modes as preconditioner" in along.why
    assert "iterations" in along.why
    short = from_array([case.places, case.times[:20, None]], case.y[:, :20])
    assert "at least 256 points" in propose(case.model, short, BLOCKS).obstacle
    assert "long axis" in propose(case.model, short, FILTER).obstacle


def test_kernels_that_are_no_processes_have_no_filter():
    case = Case(irregular=False)
    model = LatentKroneckerGP([MaternKernel(nu=0.5), ScaleKernel(RQKernel())], noise=NOISE).double()
    assert "needs a Matern kernel" in propose(model, case.data, FILTER).obstacle


@pytest.mark.parametrize("keeps", [KEEPS, 100.0])
def test_the_filter_is_predicted_to_take_about_as_many_iterations_as_it_does(keeps):
    """With modes of the cycle and, for one that changes too fast, without."""
    rng = np.random.default_rng(0)
    y = np.where(rng.random((8, 1500)) < 0.3, np.nan, rng.standard_normal((8, 1500)))
    data = from_array([rng.random((8, 2)), np.arange(1500.0)[:, None]], y)
    model = LatentKroneckerGP(kernels(keeps), noise=NOISE).double()
    operator = model.covariance(data, ["dense", "dense"]).detach()
    rhs = torch.as_tensor(rng.standard_normal((data.grid.num_observed, 1)))
    settings = KalmanFilter()
    needed = solve(operator, rhs, ConjugateGradients(rtol=1e-6), preconditioner=settings.build(operator)).iterations
    _, predicted = filter_cost(PlanningProblem(model, data), settings)
    assert needed / 2 < predicted < 2 * needed
