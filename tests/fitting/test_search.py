"""The search for hyperparameters: its curvature, its steps, and the smaller data it begins on."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from cases import CASES, SOME, Case, name
from gpytorch.kernels import MaternKernel, PeriodicKernel, ScaleKernel
from gpytorch.priors import GammaPrior
from search_places import Place

import lkgp.data.subsets
import lkgp.fitting.objective
from lkgp import BFGS, Direct, InputError, from_array
from lkgp.data.subsets import clustered, coarse_levels, thin
from lkgp.fitting.contrast import Contrast
from lkgp.fitting.information import average_information
from lkgp.fitting.objective import Objective
from lkgp.fitting.optimizers.bfgs import with_sufficient_noise
from lkgp.fitting.trust_region import maximise, step_within, updated
from lkgp.inference import log_likelihood, plan


def dense_information(model, case, data):
    """1/2 a^T dA_i A^-1 dA_j a by central differences of the dense covariance, over max(1, r^T a / n); 1^T A^-1 1
    for the mean.
    """
    index = np.flatnonzero(~np.isnan(case.y).ravel())

    def dense():
        matrix = torch.ones(1, 1, dtype=torch.float64)
        for kernel, x in zip(model.kernels, case.coords, strict=True):
            matrix = torch.kron(matrix, kernel(torch.as_tensor(x)).to_dense())
        known = case.cell_variance
        noise = model.noise_variance().expand(len(index)) if known is None else torch.as_tensor(known.ravel()[index])
        return (matrix[index][:, index] + torch.diag(noise)).detach().numpy()

    matrix, values = dense(), case.y.ravel()[index] - case.mean
    weights = np.linalg.solve(matrix, values)
    columns, means = [], []
    for parameter_name, p in model.named_parameters():
        flat = p.data.view(-1)
        for i in range(len(flat)):
            before = flat[i].item()
            flat[i] = before + 1e-5
            up = dense()
            flat[i] = before - 1e-5
            columns.append((up - dense()) / 2e-5 @ weights)
            flat[i] = before
            means.append(parameter_name.startswith("mean"))
    columns = np.stack(columns, axis=1)
    information = 0.5 * columns.T @ np.linalg.solve(matrix, columns)
    where = means.index(True)
    information[where, where] = np.linalg.inv(matrix).sum()
    return information / max(1.0, values @ weights / len(values))


@pytest.mark.parametrize("case", CASES, ids=name)
def test_the_average_information_is_that_of_the_dense_covariance(case):
    model, data = case.build(), case.data()
    system = Direct(axis=0).system(model, data, columns=1).reduction
    weights = system.solve(model.residuals(data).detach()[:, None])[:, 0]
    found = average_information(model, Contrast(data), weights, system.solve, list(model.parameters())).numpy()
    dense = dense_information(model, case, data)
    np.testing.assert_allclose(found, dense, atol=5e-3 * np.abs(dense).max())


def test_priors_add_to_the_information():
    case = SOME[0]
    model, data = case.build(), case.data()
    system = Direct(axis=0).system(model, data, columns=1).reduction
    weights = system.solve(model.residuals(data).detach()[:, None])[:, 0]
    without = average_information(model, Contrast(data), weights, system.solve, list(model.parameters()))
    model.likelihood.register_prior("noise_prior", GammaPrior(50.0, 500.0), "noise")
    added = average_information(model, Contrast(data), weights, system.solve, list(model.parameters())) - without
    raw = model.likelihood.raw_noise
    density = model.log_prior()
    (first,) = torch.autograd.grad(density, [raw], create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), [raw])
    assert float(added.diagonal().sum()) == pytest.approx(-second.item(), rel=1e-6)
    assert int((added.abs() > 1e-9).sum()) == 1


def rosenbrock(flat, with_value):
    """A curved valley, upside down, with its best place at (1, 1); its information is that of Gauss and Newton."""
    x, y = flat
    value = -((1 - x) ** 2) - 10 * (y - x**2) ** 2
    gradient = np.array([2 * (1 - x) + 40 * x * (y - x**2), -20 * (y - x**2)])
    jacobian = np.array([[-1.0, 0.0], [-2 * x * math.sqrt(10), math.sqrt(10)]])
    return Place(value if with_value else math.nan, gradient, 2 * jacobian.T @ jacobian)


@pytest.mark.parametrize("with_value", [True, False], ids=["values", "gradients only"])
def test_steps_follow_a_curved_valley(with_value):
    accepted = [np.array([-1.2, 1.0])]
    converged, reason = maximise(lambda flat, gain: rosenbrock(flat, with_value), accepted, 100, 1e-10)
    assert converged, reason
    np.testing.assert_allclose(accepted[-1], [1, 1], atol=1e-4)
    values = [rosenbrock(place, True).value for place in accepted]
    if with_value:
        assert values == sorted(values)


def test_a_place_where_nothing_can_be_computed_is_backed_out_of():
    def walled(flat, gain):
        here = rosenbrock(flat, True)
        return here if flat[0] < 0.8 else Place(math.nan, np.full(2, math.nan), here.curvature)

    accepted = [np.array([-1.2, 1.0])]
    converged, reason = maximise(walled, accepted, 100, 1e-10)
    assert not converged
    assert "no better point" in reason
    assert accepted[-1][0] < 0.8
    assert rosenbrock(accepted[-1], True).value > -0.3
    with pytest.raises(np.linalg.LinAlgError):
        maximise(walled, [np.array([2.0, 2.0])], 100, 1e-10)


def test_gradients_of_solves_that_failed_are_not_followed():
    def misleading(flat, gain):
        here = rosenbrock(flat, False)
        return here if flat[0] < 0.8 else replace(here, gradient=np.array([100.0, 100.0]), solved=False)

    accepted = [np.array([-1.2, 1.0])]
    converged, reason = maximise(misleading, accepted, 100, 1e-10)
    assert not converged, reason
    assert accepted[-1][0] < 0.8
    assert rosenbrock(accepted[-1], True).value > -0.3
    accepted = [np.array([2.0, 2.0])]
    assert maximise(misleading, accepted, 100, 1e-10) == (False, "stopped at the initial hyperparameters")
    assert len(accepted) == 1


def test_a_limit_of_steps_is_told():
    converged, reason = maximise(lambda flat, gain: rosenbrock(flat, True), [np.array([-1.2, 1.0])], 2, 1e-10)
    assert not converged
    assert "raise max_steps" in reason


@pytest.mark.parametrize("radius", [0.1, 1.0, 100.0])
def test_a_step_is_the_best_within_its_radius(radius):
    rng = np.random.default_rng(0)
    root = rng.normal(size=(4, 4))
    curvature, gradient = root @ root.T, rng.normal(size=4)
    step, expected = step_within(radius, curvature, gradient)
    assert np.linalg.norm(step) <= radius * (1 + 1e-6)
    others = rng.normal(size=(5000, 4))
    others *= radius * rng.random((5000, 1)) / np.linalg.norm(others, axis=1, keepdims=True)
    gains = others @ gradient - 0.5 * np.einsum("ki,ij,kj->k", others, curvature, others)
    assert expected >= gains.max() - 1e-9
    if radius == 100.0:
        np.testing.assert_allclose(step, np.linalg.solve(curvature, gradient), rtol=1e-6)


def test_updates_keep_the_curvature_positive_and_satisfy_the_secant():
    rng = np.random.default_rng(0)
    step = rng.normal(size=3)
    change = 2 * step + 0.1 * rng.normal(size=3)
    np.testing.assert_allclose(updated(np.eye(3), step, change) @ step, change)
    against = updated(np.eye(3), step, -change)  # negative curvature along the step
    assert np.linalg.eigvalsh(against)[0] > 0


def test_settings_that_make_no_sense_are_refused():
    with pytest.raises(InputError, match="max_steps must be a positive number"):
        BFGS(max_steps=0)


def test_the_information_is_found_some_columns_at_a_time(monkeypatch):
    """More parameters than the plan counts columns: the curvature is the same, and no solve is larger than the plan
    says.
    """
    case = Case("many lengths", (7, 6), "random", columns=(6, 4))
    widths, found = [], []

    def watched(*arguments, **settings):
        likelihood = log_likelihood(*arguments, **settings)
        return replace(likelihood, solve=lambda x: (widths.append(x.shape[1]), likelihood.solve(x))[1])

    monkeypatch.setattr("lkgp.fitting.objective.log_likelihood", watched)
    for limit in (None, 1.0):
        model, data = case.build(), case.data()
        objective = Objective(model, data, plan(model, data, Direct()).method, max_memory=limit)
        found.append(objective.evaluate().information())
    assert widths == [13, 9, 4]
    np.testing.assert_allclose(found[0], found[1], rtol=1e-9, atol=1e-9)


def test_a_known_noise_is_not_sought():
    """Nor does it count as free, where nothing else is."""
    case = next(case for case in CASES if case.name == "two factors, known noise")
    model = case.build()
    found = lkgp.fit(model, case.data()).model
    assert torch.equal(found.likelihood.raw_noise, model.likelihood.raw_noise)
    assert found.likelihood.raw_noise.requires_grad
    model.kernels.requires_grad_(False)
    model.mean.requires_grad_(False)
    assert lkgp.fit(model, case.data()).reason == "no hyperparameter is free"


@pytest.fixture
def long_data():
    case = Case("long", (150, 90), "random")
    return from_array(case.coords, case.y)


def test_coarse_levels_grow_and_stay_much_smaller(long_data, monkeypatch):
    monkeypatch.setattr("lkgp.data.subsets.COARSE_OBSERVATIONS", 300)
    sizes = [subset.grid.num_observed for subset in coarse_levels(long_data, seed=0)]
    assert len(sizes) == 2
    assert sizes == sorted(sizes)
    assert sizes[-1] * 2 <= long_data.grid.num_observed
    assert 300 / 3 < sizes[0] < 300 * 3
    assert lkgp.data.subsets.largest_part(long_data.grid.num_observed) == 2400
    assert lkgp.data.subsets.largest_part(500) == 0


def test_thinned_data_are_a_part_of_the_data(long_data):
    subset = thin(long_data, 500, seed=1)
    rows = torch.stack([(long_data.grid.coords[0] == x).all(dim=1).nonzero()[0, 0] for x in subset.grid.coords[0]])
    columns = torch.stack([(long_data.grid.coords[1] == x).all(dim=1).nonzero()[0, 0] for x in subset.grid.coords[1]])
    whole = long_data.grid.scatter(long_data.values, fill=math.nan).view(long_data.grid.shape)[rows][:, columns]
    np.testing.assert_array_equal(
        subset.grid.scatter(subset.values, fill=math.nan).view(subset.grid.shape).numpy(), whole.numpy()
    )
    again = thin(long_data, 500, seed=1)
    assert bool((again.values == subset.values).all())


def test_short_factors_are_not_thinned():
    case = Case("short", (20, 30), "random")
    assert thin(from_array(case.coords, case.y), 50, seed=0) is None


def test_clusters_have_the_extremes_and_neighbours():
    rng = np.random.default_rng(0)
    coords, values = torch.arange(200.0)[:, None], torch.as_tensor(rng.normal(size=200))
    chosen = clustered(coords, values, 40, torch.Generator().manual_seed(0))
    assert len(chosen) == 40
    assert len(set(chosen.tolist())) == 40
    assert int(values.argmax()) in chosen
    assert int(values.argmin()) in chosen
    assert int((chosen[1:] - chosen[:-1] == 1).sum()) >= 20


@pytest.fixture
def waves():
    """A smooth function on 150 x 90 cells with noise of variance 0.04, a third of them missing."""
    rng = np.random.default_rng(0)
    a, b = np.sort(rng.uniform(0, 1, 150)), np.sort(rng.uniform(0, 1, 90))
    values = np.sin(7 * a)[:, None] * np.cos(6 * b) + 0.2 * rng.standard_normal((150, 90))
    values[rng.random(values.shape) < 0.33] = np.nan
    return from_array([a, b], values)


def smooth_model(noise=0.05):
    return lkgp.LatentKroneckerGP([ScaleKernel(MaternKernel(nu=2.5)), MaternKernel(nu=2.5)], noise=noise).double()


def test_a_search_may_end_on_a_part_of_the_data(waves, monkeypatch):
    """Where that is asked for, and the part is large enough; the result is near that of all data, and says what it
    was.
    """
    monkeypatch.setattr("lkgp.data.subsets.COARSE_OBSERVATIONS", 500)
    largest = [subset.grid.num_observed for subset in coarse_levels(waves, seed=0)][-1]
    part = lkgp.fit(smooth_model(), waves, optimizer=BFGS(sufficient_observations=200))
    whole = lkgp.fit(smooth_model(), waves, optimizer=BFGS(sufficient_observations=10**6))
    assert part.reason.endswith(f"on {largest} of the observations")
    assert part.converged
    assert "of the observations" not in whole.reason
    assert part.model.noise_variance().item() == pytest.approx(0.04, rel=0.15)
    assert whole.model.noise_variance().item() == pytest.approx(0.04, rel=0.05)


def test_a_period_is_learned_where_the_search_ends_on_a_part(monkeypatch):
    """It starts at a whole number of steps between the points, here half a step off."""
    monkeypatch.setattr("lkgp.data.subsets.COARSE_OBSERVATIONS", 1000)
    rng = np.random.default_rng(0)
    x, period = np.arange(120.0), 20.5
    values = np.sin(2 * np.pi * x / period + rng.uniform(0, 6, (100, 1))) + 0.1 * rng.normal(size=(100, 120))
    data = from_array([np.arange(100.0), x], np.where(rng.random(values.shape) < 0.3, np.nan, values))
    model = lkgp.LatentKroneckerGP([ScaleKernel(MaternKernel(nu=2.5)), PeriodicKernel()]).double()
    result = lkgp.fit(model, data, optimizer=BFGS(sufficient_observations=500))
    assert "of the observations" in result.reason
    assert result.model.kernels[1].period_length.item() == pytest.approx(period, abs=0.1)
    assert result.model.kernels[1].raw_period_length.requires_grad


def test_a_start_that_is_far_too_sure_gets_more_noise_first(waves):
    model = smooth_model(noise=1e-5)
    chosen = plan(model, waves, "auto", fitting=True)
    objective = Objective(model, waves, chosen.method)
    before = objective.parameters.get()
    here = with_sufficient_noise(objective)
    after = objective.parameters.get()
    assert 0.04 / 8 < model.noise_variance().item() < 0.04 * 8
    assert (before != after).sum() == 1
    assert np.allclose(here.gradient, objective.evaluate(value=False, expected=math.inf).gradient, rtol=0.05, atol=5.0)
    model.likelihood.raw_noise.requires_grad_(False)
    assert with_sufficient_noise(Objective(model, waves, chosen.method)) is None


@pytest.mark.parametrize("case", SOME, ids=name)
def test_values_without_gradients_are_those_with_them(case):
    objective = Objective(case.build(), case.data(), Direct(), seed=0)
    flat = objective.parameters.get()
    plain = objective.evaluate(gradient=False)
    assert not plain.gradient.any()
    assert objective.known_value(flat) is None
    whole = objective.evaluate()
    assert whole.gradient.any()
    np.testing.assert_allclose(plain.value, whole.value, rtol=1e-12)
    assert objective.known_value(flat) == whole.value
    assert objective.known_value(flat + 1.0) is None
