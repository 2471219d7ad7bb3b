"""Mean, variance and draws against the dense oracle, on the grid and off it."""

import numpy as np
import pytest
import torch
from cases import CASES, SOME, name

from lkgp import LKGP, ConjugateGradients, ConvergenceWarning, Direct, InputError, Iterative, Plan, Spectral, condition
from lkgp.posterior.moments import Cells, joint_moments, row_moments

ITERATIVE = Iterative(ConjugateGradients(rtol=1e-10), num_samples=2000)


def tensors(coords):
    return [torch.as_tensor(x) for x in coords]


def places(case):
    """On the grid, off it in each factor alone, off it in all."""
    return [case.coords, *(case.new_coords([k]) for k in range(len(case.shape))), case.new_coords()]


@pytest.mark.parametrize("case", CASES, ids=name)
def test_mean_and_variance_along_every_axis_of_reduction(case):
    model, data, oracle = case.build(), case.data(), case.oracle()
    for axis in range(len(case.shape)):
        posterior = condition(model, data, Plan(Direct(), "", axis))
        assert posterior.solution.converged
        for new in places(case):
            np.testing.assert_allclose(posterior.mean(tensors(new)).numpy(), oracle.mean_at(new), atol=1e-6)
            np.testing.assert_allclose(posterior.variance(tensors(new)).numpy(), oracle.variance_at(new), atol=1e-6)


@pytest.mark.parametrize("case", CASES, ids=name)
def test_joint_covariance_of_few_cells(case):
    model, data, oracle = case.build(), case.data(), case.oracle()
    for method in (Direct(), Spectral(residual_rtol=1e-10, rtol=1e-9, tolerance=1e-12), ITERATIVE):
        posterior = condition(model, data, Plan(method, ""))
        for new in places(case):
            np.testing.assert_allclose(posterior.covariance(tensors(new)).numpy(), oracle.covariance_at(new), atol=1e-6)


@pytest.mark.parametrize("case", SOME, ids=name)
def test_single_cells_row_by_row(case):
    """Some cells of the product of fitted and new points, one of them twice."""
    posterior, oracle = condition(case.build(), case.data(), Plan(Direct(), "")), case.oracle()
    new = [np.vstack([x, z]) for x, z in zip(case.coords, case.new_coords(), strict=True)]
    cells = np.random.default_rng(0).integers(0, [len(x) for x in new], (9, len(new)))
    cells[-1] = cells[0]
    mean, variance = row_moments(posterior, tensors([x[i] for x, i in zip(new, cells.T, strict=True)]))
    np.testing.assert_allclose(mean.numpy(), oracle.mean_at(new)[tuple(cells.T)], atol=1e-6)
    np.testing.assert_allclose(variance.numpy(), oracle.variance_at(new)[tuple(cells.T)], atol=1e-6)


def test_moments_from_solves_that_fail_are_told():
    case = SOME[0]
    method = Iterative(ConjugateGradients(rtol=1e-12, max_iterations=2), preconditioner=None)
    posterior, new = condition(case.build(), case.data(), Plan(method, "")), tensors(case.new_coords())
    for question in (
        lambda: row_moments(posterior, new),
        lambda: joint_moments(posterior, [Cells(new[0][None], (new[1],))]),
    ):
        with pytest.warns(ConvergenceWarning, match="for a covariance did not converge"):
            question()


@pytest.mark.parametrize("case", SOME, ids=name)
def test_the_iterative_mean_is_exact_and_its_variance_is_within_its_stated_error(case):
    model, data, oracle = case.build(), case.data(), case.oracle()
    posterior = condition(model, data, Plan(ITERATIVE, ""))
    for new in places(case):
        np.testing.assert_allclose(posterior.mean(tensors(new)).numpy(), oracle.mean_at(new), atol=1e-6)
        std = posterior.variance(tensors(new)).sqrt().numpy()
        exact = np.sqrt(oracle.variance_at(new))
        # z-test with the stated relative error: 4.5 standard errors over some hundred cells, false alarms below 1e-3
        assert np.abs(std / exact - 1).max() <= 4.5 * posterior.variance_error


def covariance_z_scores(draws, truth):
    """z-scores of the entries of the sample covariance, known mean zero: their variance is (C_ii C_jj + C_ij^2) / s."""
    count = len(draws)
    estimate = draws.T @ draws / count
    diagonal = np.diag(truth)
    return (estimate - truth) / np.sqrt((np.outer(diagonal, diagonal) + truth**2) / count)


@pytest.mark.parametrize("case", SOME, ids=name)
@pytest.mark.parametrize("method", [Direct(), ITERATIVE], ids=["direct", "iterative"])
def test_joint_covariance_of_draws_between_training_and_new_cells(case, method):
    """All entries of the joint covariance within 5.5 standard errors; about 1e4 entries, false alarms below 1e-3."""
    model, data, oracle = case.build(), case.data(), case.oracle()
    posterior = condition(model, data, Plan(method, ""))
    draws = posterior.draws(6000, seed=4)
    extra = case.new_coords()
    union = [np.concatenate([x[:3], z[:2]]) for x, z in zip(case.coords, extra, strict=True)]
    values = draws(tensors(union)).flatten(1).numpy() - oracle.mean_at(union).ravel()
    z = covariance_z_scores(values, oracle.covariance_at(union))
    assert np.abs(z).max() <= 5.5
    # and the mean of the draws is the posterior mean
    error = np.sqrt(np.diag(oracle.covariance_at(union)) / 6000)
    assert np.abs(values.mean(axis=0) / error).max() <= 5


@pytest.mark.parametrize("case", SOME, ids=name)
def test_far_from_all_data_draws_have_the_prior_covariance(case):
    model, data, oracle = case.build(), case.data(), case.oracle()
    draws = condition(model, data, Plan(Direct(), "", 0)).draws(6000, seed=0)
    far = [x[:2] + 50.0 for x in case.coords]
    values = draws(tensors(far)).flatten(1).numpy() - case.mean
    truth = oracle.covariance_at(far)
    assert np.diag(truth) == pytest.approx(case.scale)
    assert np.abs(covariance_z_scores(values, truth)).max() <= 5.5


@pytest.mark.parametrize("case", SOME, ids=name)
def test_a_draw_is_a_function(case):
    """Asked in parts, in another order or again, the same draws give the same values."""
    posterior = condition(case.build(), case.data(), Plan(Direct(), "", 0))
    draws = posterior.draws(3, seed=1)
    new = tensors(case.new_coords())
    first = draws(new)
    parts = draws([x[:1] for x in new])
    torch.testing.assert_close(parts, first[(slice(None), *(slice(0, 1) for _ in new))])
    union = [torch.cat([z, torch.as_tensor(x)]) for z, x in zip(new, case.coords, strict=True)]
    torch.testing.assert_close(draws(union)[(slice(None), *(slice(0, len(z)) for z in new))], first)
    torch.testing.assert_close(draws(new), first)
    again = condition(case.build(), case.data(), Plan(Direct(), "", 0)).draws(3, seed=1)(new)
    assert torch.equal(again, first)


@pytest.mark.parametrize(("case", "most_pieces"), [(SOME[0], 64), (SOME[-1], 2)], ids=["two factors", "three factors"])
def test_joint_covariance_of_draws_between_requests(case, most_pieces, monkeypatch):
    """Cells of the grid and of several requests, each with new points of every factor; bounds as above."""
    monkeypatch.setattr("lkgp.posterior.normals.MOST_PIECES", most_pieces)
    oracle, rng = case.oracle(), np.random.default_rng(5)
    draws = condition(case.build(), case.data(), Plan(Direct(), "")).draws(6000, seed=4)
    requests = [[x[:2] for x in case.coords]]
    for _ in range(3):
        requests.append([rng.uniform(0, 2, (1, x.shape[1])) for x in case.coords])
    requests.append([requests[1][0], *requests[2][1:]])  # an old point of one factor with old ones of the others
    values = np.concatenate([draws(tensors(new)).flatten(1).numpy() for new in requests], axis=1)
    union = [np.concatenate(parts) for parts in zip(*requests, strict=True)]
    sizes = [[len(x) for x in new] for new in requests]
    starts = np.cumsum([[0] * len(union), *sizes[:-1]], axis=0)
    cells = [
        np.add(start, np.stack(np.unravel_index(np.arange(np.prod(size)), size), axis=1))
        for start, size in zip(starts, sizes, strict=True)
    ]
    index = np.ravel_multi_index(tuple(np.concatenate(cells).T), [len(x) for x in union])
    truth = oracle.covariance_at(union)[np.ix_(index, index)]
    deviations = values - oracle.mean_at(union).ravel()[index]
    assert np.abs(covariance_z_scores(deviations, truth)).max() <= 5.5


def test_new_points_of_draws_are_limited_and_refused_beyond_the_limit(monkeypatch):
    case, rng = SOME[0], np.random.default_rng(0)
    monkeypatch.setattr("lkgp.posterior.draws.NEW_POINTS_BYTES", 2e4)
    fitted = gp(case)
    wanted = [[rng.uniform(0, 2, (2, 1)) for _ in case.coords] for _ in range(30)]
    given = []

    def sample_all():
        for new in wanted:
            given.append(fitted.sample(5, new, seed=1))

    with pytest.raises(InputError, match=r"remember .* points outside the fitted grid.*use another seed"):
        sample_all()
    assert 1 < len(given) < len(wanted)
    (line,) = fitted.report_.new_points
    assert f"5 with seed 1 remember {4 * len(given)} points outside the grid" in line
    assert line in str(fitted.report_)
    # What was given stays: the same functions at all earlier points and on the grid, and other draws can go on.
    for new, values in zip(wanted, given, strict=False):
        np.testing.assert_allclose(fitted.sample(5, new, seed=1), values, rtol=1e-12, atol=1e-12)
    np.testing.assert_array_equal(fitted.sample(5, seed=1), gp(case).sample(5, seed=1))
    assert fitted.sample(5, wanted[-1], seed=2).shape == (5, 2, 2)


def test_the_first_request_of_draws_is_never_refused(monkeypatch):
    monkeypatch.setattr("lkgp.posterior.draws.NEW_POINTS_BYTES", 1.0)
    fitted = gp(SOME[0])
    new = [np.linspace(0, 2, 40)[:, None] + 0.001, np.linspace(0, 2, 30)[:, None] + 0.001]
    assert fitted.sample(3, new).shape == (3, 40, 30)
    assert fitted.sample(3, [np.array([[0.77]]), None]).shape == (3, 1, 6)  # and some more: up to twice as many


def test_draws_that_were_discarded_are_the_same_functions_or_are_refused(monkeypatch):
    case = SOME[0]
    monkeypatch.setattr("lkgp.posterior.draws.KEPT_DRAWS", 1)
    monkeypatch.setattr("lkgp.posterior.draws.KEPT_REPLAY_LOGS", 1)
    fitted, new = gp(case), case.new_coords()
    first = fitted.sample(3, new, seed=1)
    held = fitted.posterior_.draws(3, 1)
    fitted.sample(3, seed=2)
    assert fitted.posterior_.draws(3, 1) is held  # whoever holds them and whoever asks again has the same functions
    del held
    fitted.sample(3, new, seed=2)
    np.testing.assert_allclose(fitted.sample(3, new, seed=1), first, rtol=1e-12, atol=1e-12)
    fitted.sample(3, new, seed=3)  # of the draws discarded so far, only those with seed 1 are remembered
    np.testing.assert_array_equal(fitted.sample(3, seed=2), gp(case).sample(3, seed=2))
    with pytest.raises(InputError, match=r"3 draws with seed 2 were discarded.*use another seed"):
        fitted.sample(3, new, seed=2)


def gp(case, solver="auto", **words):
    model = LKGP(case.kernels(), mean=case.mean, noise=case.noise, standardize=False, solver=solver, **words)
    return model.fit(case.coords, case.y, noise_variance=case.cell_variance, optimize=False)


@pytest.mark.parametrize("case", CASES, ids=name)
def test_the_class_agrees_with_the_oracle(case):
    fitted, oracle = gp(case), case.oracle()
    assert fitted.log_marginal_likelihood() == pytest.approx(oracle.log_likelihood(), abs=1e-8, rel=1e-8)
    for new in places(case):
        mean, std = fitted.predict(new)
        np.testing.assert_allclose(mean, oracle.mean_at(new), atol=1e-6)
        np.testing.assert_allclose(std**2, oracle.variance_at(new), atol=1e-6)


# Invariances


@pytest.mark.parametrize("case", SOME, ids=name)
@pytest.mark.parametrize("solver", ["auto", Iterative(ConjugateGradients(rtol=1e-11))], ids=["direct", "iterative"])
class TestInvariances:
    def test_permuting_a_factor(self, case, solver):
        mean, std = gp(case, solver).predict(case.new_coords())
        order = np.random.default_rng(0).permutation(case.shape[0])
        noise = None if case.cell_variance is None else case.cell_variance[order]
        other = LKGP(case.kernels(), mean=case.mean, noise=case.noise, standardize=False, solver=solver)
        other.fit([case.coords[0][order], *case.coords[1:]], case.y[order], noise_variance=noise, optimize=False)
        mean_2, std_2 = other.predict(case.new_coords())
        np.testing.assert_allclose(mean_2, mean, atol=1e-8)
        tolerance = 1e-8 if solver == "auto" else 0.5  # other random numbers fall on other cells
        np.testing.assert_allclose(std_2, std, rtol=tolerance)

    def test_permuting_the_order_of_factors(self, case, solver):
        mean, std = gp(case, solver).predict()
        order = list(range(len(case.shape)))[::-1]
        noise = None if case.cell_variance is None else case.cell_variance.transpose(order)
        kernels = case.kernels()
        other = LKGP([kernels[k] for k in order], mean=case.mean, noise=case.noise, standardize=False, solver=solver)
        other.fit([case.coords[k] for k in order], case.y.transpose(order), noise_variance=noise, optimize=False)
        mean_2, std_2 = other.predict()
        np.testing.assert_allclose(mean_2.transpose(order), mean, atol=1e-8)
        np.testing.assert_allclose(std_2.transpose(order), std, rtol=1e-7 if solver == "auto" else 0.5)

    def test_adding_a_row_that_was_never_observed(self, case, solver):
        mean, std = gp(case, solver).predict()
        coords = [np.concatenate([case.coords[0], case.coords[0][:1] + 0.123]), *case.coords[1:]]
        empty = np.full((1, *case.shape[1:]), np.nan)
        noise = None if case.cell_variance is None else np.concatenate([case.cell_variance, empty])
        other = LKGP(case.kernels(), mean=case.mean, noise=case.noise, standardize=False, solver=solver)
        other.fit(coords, np.concatenate([case.y, empty]), noise_variance=noise, optimize=False)
        mean_2, std_2 = other.predict()
        np.testing.assert_allclose(mean_2[:-1], mean, atol=1e-8)
        np.testing.assert_allclose(std_2[:-1], std, rtol=1e-7 if solver == "auto" else 0.5)

    def test_asking_for_a_subset(self, case, solver):
        fitted = gp(case, solver)
        new = case.new_coords()
        mean, std = fitted.predict(new)
        one = (slice(1, 2),) * len(new)
        mean_1, std_1 = gp(case, solver).predict([x[1:2] for x in new])
        np.testing.assert_allclose(mean_1, mean[one], atol=1e-10)
        np.testing.assert_allclose(std_1, std[one], rtol=1e-9)
        whole, spread = fitted.predict()
        again, spread_again = fitted.predict([x[:2] for x in case.coords])
        first = (slice(0, 2),) * len(new)
        np.testing.assert_allclose(again, whole[first], atol=1e-10)
        np.testing.assert_allclose(spread_again, spread[first], rtol=1e-9)


@pytest.mark.parametrize("factor", [1e-13, 1e12])
def test_affine_change_of_units(factor):
    """Values and coordinates in other units: the same fit, and everything comes back in those units."""
    case = next(case for case in CASES if case.name == "several columns")
    rng = np.random.default_rng(0)
    smooth = np.sin(2 * case.coords[0][:, :1]) + case.coords[1][:, 0] + 0.1 * rng.normal(size=case.shape)
    y = np.where(np.isnan(case.y), np.nan, smooth)
    first = LKGP().fit(case.coords, y)
    other_coords = [1e3 * case.coords[0] - 7, case.coords[1] / 1e3]
    second = LKGP().fit(other_coords, factor * y + 3 * factor)
    mean, std = first.predict(observation_noise=True)
    mean_2, std_2 = second.predict(observation_noise=True)
    np.testing.assert_allclose(mean_2 / factor - 3, mean, rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(std_2 / factor, std, rtol=1e-2)
    n = int((~np.isnan(y)).sum())
    expected = first.log_marginal_likelihood() - n * np.log(factor)
    assert second.log_marginal_likelihood() == pytest.approx(expected, abs=0.01 * n)
