"""Variances from the nearest observations and from draws, against the dense oracle."""

import numpy as np
import pytest
import torch
from cases import CASES, name
from gpytorch.kernels import MaternKernel, ScaleKernel

from lkgp import ConjugateGradients, Iterative, LatentKroneckerGP, Plan, condition, from_array
from lkgp.posterior import local_variance, near_systems
from lkgp.posterior.local_variance import DrawnData, compact_groups, near_variance
from lkgp.posterior.near_systems import cholesky_among, near_predictors, places_of, small_solves, targets_at

DRAWS = 500
METHOD = Iterative(ConjugateGradients(rtol=1e-10), num_samples=DRAWS)
LONG = [case for case in CASES if min(case.shape) > 1]


def tensors(coords):
    return [torch.as_tensor(x) for x in coords]


def near(posterior, coords, size, nearest):
    cells = torch.arange(int(np.prod([len(x) for x in coords])))
    weights = posterior.draws(*posterior.behind_variance).weights
    groups = compact_groups(np.arange(len(cells), dtype=float)[:, None], size)
    data = DrawnData.of(posterior, tensors(coords), weights)
    return near_variance(near_predictors(posterior, tensors(coords), cells, groups, nearest), data)


@pytest.mark.parametrize("case", LONG, ids=name)
def test_the_bound_holds_and_the_stated_errors_are_right(case):
    posterior, oracle = condition(case.build(), case.data(), Plan(METHOD, "")), case.oracle()
    for new in (case.coords, case.new_coords()):
        exact = oracle.variance_at(new).ravel()
        found = near(posterior, new, 3, 6)
        bound, farther = found.near.numpy(), found.farther.numpy()
        assert (bound >= exact * (1 - 1e-9)).all()
        # farther has DRAWS degrees of freedom: 5 standard errors
        allowed = 5 * np.sqrt(2 / DRAWS) * (bound - exact) + 1e-9 * exact
        assert (np.abs(bound - farther - exact) <= allowed).all()
        stated = np.sqrt(0.5 / DRAWS) * farther / np.maximum(bound - farther, 1e-300)
        np.testing.assert_allclose(found.error.numpy(), stated)


@pytest.mark.parametrize("case", LONG, ids=name)
def test_with_all_observations_nothing_is_left_to_the_draws(case):
    posterior, oracle = condition(case.build(), case.data(), Plan(METHOD, "")), case.oracle()
    found = near(posterior, case.new_coords(), 4, 10_000)
    np.testing.assert_allclose(found.near.numpy(), oracle.variance_at(case.new_coords()).ravel(), atol=1e-7)
    assert found.farther.max() < 1e-6


@pytest.mark.parametrize("case", LONG[:4], ids=name)
def test_few_near_observations_are_combined_with_the_deviations_of_draws(case, monkeypatch):
    monkeypatch.setattr(local_variance, "SIZES", ((4, 16),))
    monkeypatch.setattr(local_variance, "LITTLE_BETTER", 1.0)
    posterior, oracle = condition(case.build(), case.data(), Plan(METHOD, "")), case.oracle()
    quality = posterior.variance_quality
    assert quality.combined
    assert 0.01 < quality.error <= np.sqrt(0.5 / DRAWS) * (1 + 1e-9)
    for new in (case.coords, case.new_coords()):
        ratio = posterior.variance(tensors(new)).sqrt().numpy() / np.sqrt(oracle.variance_at(new))
        assert np.abs(ratio - 1).max() <= 4.5 * np.sqrt(0.5 / DRAWS)


@pytest.mark.parametrize("case", LONG[:4], ids=name)
def test_few_draws_are_made_where_the_nearest_observations_tell_nearly_all(case, monkeypatch):
    monkeypatch.setattr(local_variance, "FEW_DRAWS_PAY", 1)
    posterior, oracle = condition(case.build(), case.data(), Plan(METHOD, "")), case.oracle()
    quality = posterior.variance_quality
    assert (quality.draws, quality.combined) == (local_variance.FEW_DRAWS, False)
    assert set(posterior.draw_store.kept) == {(local_variance.FEW_DRAWS, 0)}
    for new in (case.coords, case.new_coords()):
        found = posterior.variance(tensors(new)).numpy()
        np.testing.assert_allclose(found, oracle.variance_at(new), rtol=0.05, atol=1e-8)


@pytest.mark.parametrize("case", LONG[:4], ids=name)
def test_all_draws_are_made_where_few_are_too_few(case, monkeypatch):
    monkeypatch.setattr(local_variance, "FEW_DRAWS_PAY", 1)
    monkeypatch.setattr(local_variance, "SIZES", ((4, 16), (6, 16)))
    monkeypatch.setattr(local_variance, "HALF_AND_MOST", ((4, 16), (6, 16)))
    monkeypatch.setattr(local_variance, "LITTLE_BETTER", 1.0)
    posterior = condition(case.build(), case.data(), Plan(METHOD, ""))
    quality = posterior.variance_quality
    assert (quality.combined, quality.draws) == (True, DRAWS)
    assert quality.nearest in (4, 6)
    assert set(posterior.draw_store.kept) == {(DRAWS, 0)}


@pytest.mark.parametrize("case", LONG[:4], ids=name)
def test_draws_alone_are_used_where_the_nearest_observations_hardly_help(case, monkeypatch):
    monkeypatch.setattr(local_variance, "SIZES", ((1, 16), (2, 16)))
    monkeypatch.setattr(local_variance, "LITTLE_BETTER", 0.0)
    posterior, oracle = condition(case.build(), case.data(), Plan(METHOD, "")), case.oracle()
    quality = posterior.variance_quality
    assert (quality.nearest, quality.combined, quality.draws) == (0, True, DRAWS)
    assert quality.error == np.sqrt(0.5 / DRAWS)
    assert str(quality).startswith(f"from {DRAWS} posterior samples, because observations near by tell too little")
    for new in (case.coords, case.new_coords()):
        ratio = posterior.variance(tensors(new)).sqrt().numpy() / np.sqrt(oracle.variance_at(new))
        assert np.abs(ratio - 1).max() <= 4.5 * np.sqrt(0.5 / DRAWS)


def test_draws_alone_are_chosen_by_the_error_that_they_would_have():
    near = torch.ones(100, dtype=torch.float64)
    little = {(256, 16): local_variance.NearVariance(near, torch.full_like(near, 0.7), 64)}
    much = {(256, 16): local_variance.NearVariance(near, torch.full_like(near, 0.3), 64)}
    assert local_variance.combined_quality(little, 64) == local_variance.VarianceQuality(
        np.sqrt(0.5 / 64), 0, 0, True, 64
    )
    assert local_variance.combined_quality(much, 64).nearest == 256


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_small_systems_are_solved_as_numpy_solves_them(dtype):
    case = LONG[0]
    operator = condition(case.build(), case.data(), Plan(METHOD, "")).system.precise_operator.rounded(dtype)
    dense, rng = operator.to_dense().double().numpy(), np.random.default_rng(0)
    cells = np.stack([rng.permutation(len(dense))[:6] for _ in range(5)])
    cross = rng.standard_normal((5, 6, 4))
    roots = np.linalg.cholesky(np.stack([dense[np.ix_(some, some)] for some in cells]))
    factors = cholesky_among(operator, torch.as_tensor(cells))
    np.testing.assert_allclose(factors.tril().numpy(), roots, atol=10 * torch.finfo(dtype).eps * roots.max())
    v, w = (x.double().numpy() for x in small_solves(factors, torch.as_tensor(cross, dtype=dtype)))
    allowed = 100 * torch.finfo(dtype).eps * np.linalg.cond(roots).max() ** 2
    np.testing.assert_allclose(v, np.linalg.solve(roots, cross), atol=allowed)
    np.testing.assert_allclose(w, np.linalg.solve(roots @ roots.mT, cross), atol=allowed)


def test_small_systems_that_rounding_makes_indefinite_get_a_jitter(monkeypatch):
    # the covariance matrix of equal points, without noise, is singular
    monkeypatch.setattr(
        near_systems, "covariances_among", lambda operator, cells, dtype: torch.ones(len(cells), 4, 4, dtype=dtype)
    )
    case = LONG[0]
    operator = condition(case.build(), case.data(), Plan(METHOD, "")).system.precise_operator
    factors = cholesky_among(operator, torch.zeros(3, 4, dtype=torch.long)).tril()
    assert bool(torch.isfinite(factors).all())
    np.testing.assert_allclose((factors @ factors.mT).numpy(), 1.0, atol=1e-9)


def test_more_observations_are_used_only_where_they_help():
    near, farther = torch.ones(100, dtype=torch.float64), torch.full((100,), 0.5, dtype=torch.float64)
    as_good = {n: local_variance.NearVariance(near, farther * (1 - n[0] / 1e4), 64) for n in local_variance.SIZES}
    assert local_variance.combined_quality(as_good, 64).nearest == 64
    better = {n: local_variance.NearVariance(near, farther / n[0], 64) for n in local_variance.SIZES}
    assert local_variance.combined_quality(better, 64).nearest == 256


def test_the_combination_is_better_than_either_estimate():
    rng = np.random.default_rng(0)
    exact, num, many = 1.0, 64, 20_000
    for farther in (0.05, 0.5, 1.0, 3.0):
        chi = torch.as_tensor(rng.chisquare(num, (2, many)) / num)
        found = local_variance.NearVariance(torch.full((many,), exact + farther), farther * chi[0], num)
        error = float((found.combined(exact * chi[1], num) - exact).square().mean().sqrt())
        best = np.sqrt(2 / num) * exact * farther / np.hypot(exact, farther)
        assert error < 1.2 * best
        assert abs(float(found.combined(exact * chi[1], num).mean()) - exact) < 0.25 * best


def test_groups_are_compact_and_leave_out_nothing():
    places = np.random.default_rng(0).uniform(0, [1, 5], (1003, 2))
    groups = compact_groups(places, 16)
    assert groups.shape[1] <= 16
    assert set(groups.ravel()) == set(range(1003))
    spread = np.ptp(places[groups], axis=1)
    assert np.median(spread.max(axis=1)) < 4 * np.sqrt(16 * 5 / 1003)


@pytest.mark.parametrize("count", [1, 5, 16, 17, 90, 1003, 4100])
def test_groups_are_nearly_full(count):
    places = np.random.default_rng(0).uniform(0, [1, 5], (count, 2))
    groups = local_variance.full_groups(places, 16)
    assert groups.shape[1] <= 16
    assert set(groups.ravel()) == set(range(count))
    assert len(groups) <= 1.25 * count / 16 + 1


def test_fewer_draws_are_made_where_memory_holds_no_more():
    case = LONG[0]
    roomy, tight = (condition(case.build(), case.data(), Plan(METHOD, ""), max_memory=m) for m in (1e9, 2e3))
    assert roomy.behind_variance == (DRAWS, 0)
    assert tight.behind_variance == (local_variance.FEW_DRAWS, 0)
    assert f"{local_variance.FEW_DRAWS} posterior samples" in str(tight.variance_quality)


@pytest.mark.parametrize("case", LONG[:4], ids=name)
def test_the_accuracy_is_judged_at_groups_of_neighbours(case):
    posterior = condition(case.build(), case.data(), Plan(METHOD, ""))
    groups = local_variance.some_groups(posterior, 5, 16)
    assert groups.shape == (5, min(16, int(np.prod(case.shape))))
    places = np.concatenate(places_of(posterior, targets_at(tensors(case.coords), groups.flatten())), axis=1).reshape(
        *groups.shape, -1
    )
    every = np.concatenate(
        places_of(posterior, targets_at(tensors(case.coords), torch.arange(int(np.prod(case.shape))))),
        axis=1,
    )
    for group, own in zip(groups, places, strict=True):
        assert len(set(group.tolist())) == len(group)
        apart = np.sort(np.linalg.norm(every - own[0], axis=1))
        found = np.sort(np.linalg.norm(own - own[0], axis=1))
        np.testing.assert_allclose(found, apart[: len(found)], atol=1e-12)


def test_single_precision_changes_little_where_it_is_used(monkeypatch):
    """A standard deviation changes by less than a thousandth at the least noise for which float32 is used."""
    rng = np.random.default_rng(0)
    coords = [rng.random((30, 2)), np.arange(20.0)[:, None]]
    values = np.where(rng.random((30, 20)) < 0.6, rng.standard_normal((30, 20)), np.nan)
    kernels = [ScaleKernel(MaternKernel(nu=1.5)), MaternKernel(nu=2.5)]
    for kernel, length in ((kernels[0].base_kernel, 0.5), (kernels[1], 8.0)):
        kernel.lengthscale = length
    for noise, changes in ((1.01 * near_systems.LEAST_NOISE_OF_SINGLE, True), (1e-6, False)):
        noise_variance = noise * float(kernels[0].outputscale.detach())
        model = LatentKroneckerGP([k.double() for k in kernels], noise=noise_variance).double()
        posterior = condition(model, from_array(coords, values), Plan(METHOD, ""))
        found = {}
        for least in (10**9, 1):
            monkeypatch.setattr(near_systems, "MANY_SYSTEMS", least)
            found[least] = near(posterior, coords, 8, 64)
        exact, rounded = (found[least].near.sqrt().numpy() for least in (10**9, 1))
        assert (np.abs(rounded / exact - 1).max() > 0) == changes
        assert np.abs(rounded / exact - 1).max() < 1e-3
        farther = [found[least].farther.numpy() for least in (10**9, 1)]
        np.testing.assert_allclose(farther[1], farther[0], atol=1e-3 * exact.min() ** 2)
