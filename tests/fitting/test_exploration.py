"""Starting values: many are compared on few observations, and a fit ends at the best optimum."""

import copy

import numpy as np
import pytest
import torch
from gpytorch.kernels import AdditiveKernel, ConstantKernel, MaternKernel, ScaleKernel
from oracle import Oracle, matern52
from random_optima import RandomProblem, fitted_objective, objective_of, restarted_objectives

from lkgp import LKGP, LatentKroneckerGP, from_array
from lkgp.data.subsets import small_part
from lkgp.fitting.candidates import designs, find_lengths, nearest_distances, removable_parts
from lkgp.fitting.exploration import compare, get_state
from lkgp.fitting.profile import multiply, output_scales, profile
from lkgp.fitting.starts import begin_where_possible
from lkgp.inference import log_likelihood


def clusters(seed=1):
    """Two distant groups of points with smooth but fast variation inside each, along a second factor with gaps."""
    rng = np.random.default_rng(seed)
    x, t = np.concatenate([np.linspace(0, 1, 13), 60 + np.linspace(0, 1, 12)]), np.linspace(0, 4, 8)
    draw = rng.normal(size=(25, 8))
    for points, length in ((x, 0.3), (t, 2.0)):
        values, vectors = np.linalg.eigh(matern52(points[:, None], points[:, None], length))
        draw = (vectors * np.sqrt(values.clip(0)) @ draw).T
    Y = draw + 0.03 * rng.normal(size=draw.shape)
    return [x, t], np.where(rng.random(Y.shape) < 0.25, np.nan, Y)


def matern_model(coords, Y, noise=0.05, scale=0.7):
    """A Matern-5/2 x Matern-5/2 model with lengths 0.5 and 0.8, and its data."""
    kernels = [ScaleKernel(MaternKernel(nu=2.5)), MaternKernel(nu=2.5)]
    kernels[0].outputscale, kernels[0].base_kernel.lengthscale, kernels[1].lengthscale = scale, 0.5, 0.8
    return LatentKroneckerGP(kernels, noise=noise).double(), from_array(coords, Y)


def test_the_profile_is_the_likelihood_at_the_best_scale_and_noise():
    rng = np.random.default_rng(0)
    coords = [rng.normal(size=9), np.linspace(0, 1, 6)]
    Y = np.where(rng.random((9, 6)) < 0.3, np.nan, np.sin(coords[0])[:, None] + coords[1] + rng.normal(size=(9, 6)))
    model, data = matern_model(coords, Y)

    def dense(scale, noise):
        kernels = [lambda x, z: 0.7 * scale * matern52(x, z, 0.5), lambda x, z: matern52(x, z, 0.8)]
        return Oracle(kernels, [x[:, None] for x in coords], Y, 0.05 * noise).log_likelihood()

    found = profile(model, data, True, True)
    assert found.value == pytest.approx(dense(found.scale, found.noise), abs=1e-8)
    others = [
        dense(a * found.scale, b * found.noise) for a in (0.8, 1, 1.25) for b in (0.8, 1, 1.25) if (a, b) != (1, 1)
    ]
    assert found.value > max(others)
    multiply(model, output_scales(model), found.scale)
    multiply(model, model.noise.levels(), found.noise)
    assert float(objective_of(model, data).evaluate().value) == pytest.approx(found.value, abs=1e-4)
    for free_scale, free_noise in ((True, False), (False, True), (False, False)):
        one = profile(model, data, free_scale, free_noise)
        assert found.value - 0.05 < one.value < found.value + 0.05
        assert one.scale == 1 or free_scale
        assert one.noise == 1 or free_noise


def test_repeated_measurements_tell_the_noise_in_a_profile():
    rng = np.random.default_rng(1)
    coords = [rng.normal(size=6), np.arange(5.0)]
    model, data = matern_model(coords, np.sin(coords[0])[:, None] * np.cos(coords[1]))
    counts, scatter = torch.full_like(data.values, 4.0), torch.full_like(data.values, 3 * 0.3)
    data = data._replace(counts=counts, scatter=scatter)
    found = profile(model, data, True, True)
    assert 0.05 * found.noise == pytest.approx(0.3, rel=0.25)
    multiply(model, output_scales(model), found.scale)
    multiply(model, model.noise.levels(), found.noise)
    constant = -0.5 * float(counts.log().sum()) - 1.5 * len(counts) * np.log(2 * np.pi * 0.05)
    assert float(objective_of(model, data).evaluate().value) == pytest.approx(found.value + constant, abs=1e-3)


def test_fast_variation_inside_clusters_is_not_taken_for_noise():
    coords, Y = clusters()
    gp = LKGP().fit(coords, Y)
    problem = RandomProblem("clusters", coords, Y, None)
    best = max(restarted_objectives(problem, 3))
    assert fitted_objective(problem) > best - 0.5
    # Beginning at the given lengths only, the variation would be noise.
    assert fitted_objective(problem, compare_starts=False) < best - 5
    assert gp.report_.noise_std < 0.1 * np.nanstd(Y)
    assert any("starting values" in note for note in gp.report_.notes)
    assert np.array_equal(LKGP().fit(coords, Y).predict()[0], gp.predict()[0])


@pytest.mark.parametrize("seed", [22, 31, 136])
def test_fits_of_random_problems_reach_the_best_optimum(seed):
    problem = RandomProblem.draw(seed)
    assert fitted_objective(problem) > max(restarted_objectives(problem, 2)) - 1.0


def test_a_sum_ends_no_lower_than_its_parts():
    coords, Y = clusters(3)
    simple = [ScaleKernel(MaternKernel(nu=2.5)), MaternKernel(nu=2.5)]
    richer = [copy.deepcopy(simple[0]), MaternKernel(nu=2.5) + ConstantKernel()]
    plain, more = (fitted_objective(RandomProblem("", coords, Y, kernels)) for kernels in (simple, richer))
    assert more > plain - 0.1


def test_parts_that_can_be_removed_are_those_with_a_scale():
    kernels = [
        ScaleKernel(MaternKernel(nu=2.5)),
        AdditiveKernel(MaternKernel(nu=2.5), ScaleKernel(MaternKernel(nu=0.5)), ConstantKernel()),
    ]
    model = LatentKroneckerGP(kernels)
    assert [len(scales) for scales in removable_parts(model)] == [1, 1]
    assert [id(p) for p in output_scales(model)] == [id(kernels[0].raw_outputscale)]
    assert output_scales(LatentKroneckerGP([MaternKernel(nu=2.5), kernels[1]])) == []


def test_candidates_reach_from_neighbours_to_beyond_the_extent():
    coords, Y = clusters()
    model, data = matern_model(coords, Y)
    lengths = find_lengths(model, data)
    assert float(lengths[0].shortest) == pytest.approx(1 / 12, rel=0.1)
    assert float(lengths[0].longest) == pytest.approx(3 * np.std(coords[0]), rel=1e-6)
    lengths[0].set(0.5)
    assert lengths[0].position() == pytest.approx(0.5)
    before = get_state(model)
    found = compare(model, data, lengths)
    assert len(found) == 1 + len(designs(2))
    assert all(torch.equal(one, two) for one, two in zip(before, get_state(model), strict=True))
    # Many kernels do not make many times as many candidates.
    assert len(designs(6)) == len(designs(3))


@pytest.mark.parametrize("number", [10, 60])
def test_a_point_is_not_its_own_neighbour(number):
    points = np.random.default_rng(0).uniform(size=(number, 7))
    apart = np.linalg.norm(points[:, None] - points, axis=-1)
    nearest = np.where(np.eye(number, dtype=bool), np.inf, apart).min(axis=1)
    assert nearest_distances(torch.from_numpy(points)).numpy() == pytest.approx(nearest, rel=1e-12)
    assert nearest_distances(torch.from_numpy(points).repeat(2, 1)).min() > 0.1 * nearest.min()
    assert len(nearest_distances(torch.zeros(number, 2))) == 0


def test_few_observations_are_taken_from_every_factor():
    rng = np.random.default_rng(0)
    Y = np.where(rng.random((60, 30, 4)) < 0.5, np.nan, rng.normal(size=(60, 30, 4)))
    data = from_array([np.arange(60.0), np.arange(30.0), np.arange(4.0)], Y)
    part = small_part(data, 250, 0)
    assert 150 < part.grid.num_observed < 400
    assert all(2 < few < n for few, n in zip(part.grid.shape[:2], (60, 30), strict=True))
    assert small_part(part, 1000, 0) is part


def test_a_start_that_cannot_be_used_is_left(monkeypatch):
    coords, Y = clusters()
    model, data = RandomProblem("", coords, Y, None).prepared()
    given = get_state(model)
    assert not begin_where_possible(objective_of(model, data), [given])
    multiply(model, model.noise.levels(), 1e-9)
    broken = objective_of(model, data)

    def fragile(model, *rest, **settings):
        if model.noise_variance().item() < 1e-3:
            raise torch.linalg.LinAlgError("not positive definite")
        return log_likelihood(model, *rest, **settings)

    monkeypatch.setattr("lkgp.fitting.objective.log_likelihood", fragile)
    assert begin_where_possible(broken, [given])
    assert all(torch.equal(one, two) for one, two in zip(get_state(model), given, strict=True))
