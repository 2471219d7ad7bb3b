"""A search that says it converged has done so, and a model with more parts does not end below one with fewer."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from gpytorch.kernels import ConstantKernel, MaternKernel, ScaleKernel
from oracle import Oracle, matern52
from search_places import Place

from lkgp import BFGS, Direct, LatentKroneckerGP, Spectral, fit, from_array
from lkgp.fitting.candidates import find_lengths
from lkgp.fitting.comparison import along_line, improvement
from lkgp.fitting.exploration import get_state, set_state
from lkgp.fitting.long_lengths import shorter_start
from lkgp.fitting.objective import Objective
from lkgp.fitting.simpler import SimplerStart
from lkgp.fitting.trust_region import maximise


def test_a_curvature_that_is_too_large_does_not_end_a_search_without_values():
    """Each step gains a little more than expected: a parabola of height 16 whose curvature seems 30 times as large."""
    true = np.diag([2.0, 8.0])
    start = np.array([-2.0, -math.sqrt(3.0)])

    def height(flat):
        return -0.5 * flat @ true @ flat

    accepted = [start]
    converged, reason = maximise(lambda flat, gain: Place(math.nan, -true @ flat, 30 * true), accepted, 100, 1.0)
    assert converged, reason
    assert height(start) == pytest.approx(-16.0)
    assert height(accepted[-1]) > -1.0


def test_a_step_that_fails_where_little_is_expected_ends_a_search():
    """The last steps were rejected; that is an optimum, not a failure."""

    def evaluate(flat, gain):
        x = float(flat[0])
        # From the start, all steps lead to where the gradient points back.
        return Place(math.nan, np.array([0.5 if x == 0.0 else -40.0]), np.eye(1))

    accepted = [np.zeros(1)]
    assert maximise(evaluate, accepted, 100, 1.0) == (True, "converged after 0 steps")


def learning_curves(seed, runs=60, epochs=25):
    """Noisy curves of runs with four settings, one of which does not matter, cut at random epochs; heavy tails."""
    rng = np.random.default_rng(seed)
    x, t = rng.normal(size=(runs, 4)), np.log1p(np.arange(epochs))[:, None] / np.log(epochs)
    y = np.sin(2 * x[:, :1]) + 0.5 * x[:, 1:2] + 2 * np.exp(-3 * np.exp(0.5 * x[:, 2:3]) * t.T)
    y = y + 0.3 * rng.standard_t(3, size=y.shape)
    y[np.arange(epochs) >= rng.integers(3, epochs + 1, size=runs)[:, None]] = np.nan
    return [x, t], (y - np.nanmean(y)) / np.nanstd(y)


def curve_model(lasting):
    over_time = MaternKernel(nu=2.5) + ConstantKernel() if lasting else MaternKernel(nu=2.5)
    return LatentKroneckerGP([ScaleKernel(MaternKernel(nu=2.5, ard_num_dims=4)), over_time]).double()


def dense_value(model, coords, y):
    """The log likelihood of a `curve_model`."""
    first, second = model.kernels
    lasting = hasattr(second, "kernels")
    matern = second.kernels[0] if lasting else second
    constant = second.kernels[1].constant.item() if lasting else 0.0
    lengths, length = first.base_kernel.lengthscale.detach().numpy(), matern.lengthscale.item()
    kernels = [
        lambda a, b: first.outputscale.item() * matern52(a, b, lengths),
        lambda a, b: matern52(a, b, length) + constant,
    ]
    return Oracle(kernels, coords, y, model.noise_variance().item(), model.mean.constant.item()).log_likelihood()


@pytest.mark.parametrize("seed", [0, 2])
def test_with_estimated_gradients_a_search_ends_near_an_optimum_and_not_below_a_simpler_model(seed):
    """With exact gradients, less can be gained than the limit, which is half a nat per parameter."""
    coords, y = learning_curves(seed)
    data, ends = from_array(coords, y), []
    for lasting in (False, True):
        found = fit(curve_model(lasting), data, method=Spectral(), compare_starts=False)
        assert found.converged
        ends.append(dense_value(found.model, coords, y))
        exact = Objective(found.model, data, Direct())
        limit = 0.5 * exact.num_free
        BFGS().maximise(exact)
        assert dense_value(found.model, coords, y) < ends[-1] + limit
    assert ends[1] > ends[0] - 1.0


def line_problem():
    """A model on data with gaps, and two nearby sets of its hyperparameters, (P,) each."""
    coords, y = learning_curves(1, runs=20, epochs=12)
    model, data = curve_model(lasting=True), from_array(coords, y)
    before = Objective(model, data, Direct()).parameters.get()
    return model, data, coords, y, before, before + 0.3 * np.random.default_rng(0).normal(size=len(before))


def test_gradients_along_a_line_give_the_difference_of_dense_likelihoods():
    model, data, coords, y, before, after = line_problem()
    exact = Objective(model, data, Direct())
    dense = []
    for flat in (before, after):
        exact.parameters.set(flat)
        dense.append(dense_value(model, coords, y))
    assert along_line(exact, before, after) == pytest.approx(dense[1] - dense[0], abs=0.01)
    estimated = Objective(model, data, Spectral().for_fitting())
    assert along_line(estimated, before, after) == pytest.approx(dense[1] - dense[0], abs=5.0)
    assert improvement(exact, estimated, before, after) == pytest.approx(dense[1] - dense[0], abs=1e-4)
    np.testing.assert_allclose(exact.parameters.get(), after)


def test_values_that_are_too_uncertain_are_not_compared(monkeypatch):
    model, data, *_, before, after = line_problem()
    exact, estimated = Objective(model, data, Direct()), Objective(model, data, Spectral().for_fitting())
    expected = along_line(estimated, before, after)
    certain = exact.at

    def uncertain(flat, value=True, expected=0.0):
        return replace(certain(flat, value, expected), value=float(flat is before), error=9.0)

    monkeypatch.setattr(exact, "at", uncertain)
    assert improvement(exact, estimated, before, after) == pytest.approx(expected)


def test_a_length_that_no_longer_matters_is_set_back_where_a_shorter_one_is_better():
    """The first setting matters over a distance of about one."""
    coords, y = learning_curves(0, runs=30, epochs=15)
    model, data = curve_model(lasting=False), from_array(coords, y)
    fitted = fit(model, data).model
    set_state(model, get_state(fitted))
    lengths, kernel = find_lengths(model, data), model.kernels[0].base_kernel
    good = kernel.lengthscale.detach().view(-1).clone()
    kernel.lengthscale = torch.tensor([[1e4, *good[1:].tolist()]])
    before = get_state(model)
    state = shorter_start(Objective(model, data, Direct()), lengths)
    assert all(torch.equal(a, b) for a, b in zip(before, get_state(model), strict=True))
    assert state is not None
    set_state(model, state)
    back = kernel.lengthscale.detach().view(-1)
    assert back[0].item() == pytest.approx(lengths[0].longest[0].item())
    np.testing.assert_allclose(back[1], good[1], rtol=1e-5)
    set_state(model, before)
    again = fit(model, data, method=Direct(), optimizer=BFGS()).model
    assert dense_value(again, coords, y) == pytest.approx(dense_value(fitted, coords, y), abs=0.5)


def test_long_lengths_of_a_nearly_linear_function_are_not_set_back():
    rng = np.random.default_rng(0)
    x, t = rng.uniform(-1, 1, (25, 4)), np.linspace(0, 1, 12)[:, None]
    y = x.sum(axis=1, keepdims=True) + 0.5 * t.T + 0.05 * rng.normal(size=(25, 12))
    y[rng.random(y.shape) < 0.3] = np.nan
    model, data = curve_model(lasting=False), from_array([x, t], y)
    model = fit(model, data).model
    lengths = find_lengths(model, data)
    assert bool((model.kernels[0].base_kernel.lengthscale > 2 * lengths[0].longest).any())
    assert shorter_start(Objective(model, data, Direct()), lengths) is None


def test_a_simpler_model_that_stays_better_is_reported(monkeypatch):
    """As if no search with all parts had reached it."""
    coords, y = learning_curves(1, runs=20, epochs=12)
    model, data = curve_model(lasting=True), from_array(coords, y)
    begun = []

    def simpler_start(model, value_of, objective_of, optimizer):
        begun.append(value_of(model))
        return SimplerStart(get_state(model), begun[-1] + 25.0, 2)

    monkeypatch.setattr("lkgp.fitting.search.simpler_start", simpler_start)
    found = fit(model, data)
    assert dense_value(found.model, coords, y) == pytest.approx(begun[0], abs=1.0)
    assert any(note == "the model without part 2 of a sum is better, by 25 nats" for note in found.notes)
