"""The class as its users meet it: contract, reports, updates, bad input."""

import json
import math
import pickle
import warnings

import numpy as np
import pytest
import torch
from curves_data import curves
from gpytorch.constraints import Interval
from gpytorch.kernels import (
    HammingIMQKernel,
    IndexKernel,
    LinearKernel,
    MaternKernel,
    PeriodicKernel,
    RBFKernel,
    ScaleKernel,
)
from gpytorch.likelihoods import GaussianLikelihood
from gpytorch.priors import GammaPrior, LogNormalPrior, NormalPrior
from oracle import Oracle, squared_exponential

import lkgp
from lkgp import BFGS, LBFGS, LKGP, Adam, ConjugateGradients, Direct, InputError, Iterative, LatentKroneckerGP, Spectral
from lkgp.inference import log_likelihood


@pytest.fixture(scope="module")
def fitted():
    X, T, Y, _ = curves()
    return LKGP().fit([X, T], Y)


def test_the_contract(fitted):
    X, T, Y, truth = curves()
    mean, std = fitted.predict()
    assert isinstance(mean, np.ndarray)
    assert mean.shape == std.shape == Y.shape
    missing = np.isnan(Y)
    assert np.sqrt(np.mean((mean - truth)[missing] ** 2)) < 0.15
    _, noisy = fitted.predict(observation_noise=True)
    assert noisy == pytest.approx(np.sqrt(std**2 + fitted.report_.noise_std**2))
    mean, std = fitted.predict([X[:3] + 0.1, T[::2]])
    assert mean.shape == (3, 5)
    only_new_rows, _ = fitted.predict([X[:3] + 0.1, None])
    np.testing.assert_allclose(only_new_rows[:, ::2], mean, atol=1e-9)
    assert fitted.sample(7, [X[:3] + 0.1, T], seed=1).shape == (7, 3, 10)
    assert fitted.report_.converged
    assert fitted.report_.residuals.max() < 1e-6
    assert math.isfinite(fitted.log_marginal_likelihood())
    with pytest.raises(TypeError):
        LKGP(kernel=[RBFKernel()])


def test_fitting_raises_the_likelihood_and_finds_the_noise():
    X, T, Y, _ = curves(noise=0.1, rows=20)
    before = LKGP().fit([X, T], Y, optimize=False).log_marginal_likelihood()
    model = LKGP().fit([X, T], Y)
    assert model.log_marginal_likelihood() > before + 10
    assert model.report_.noise_std == pytest.approx(0.1, rel=0.3)


def test_same_seed_same_bits_and_nothing_of_the_callers_is_changed():
    X, T, Y, _ = curves()
    kernels = [ScaleKernel(RBFKernel(ard_num_dims=2)), RBFKernel()]
    state = [p.detach().clone() for kernel in kernels for p in kernel.parameters()]
    copies = X.copy(), T.copy(), Y.copy()
    first, second = (LKGP(kernels, seed=3).fit([X, T], Y) for _ in range(2))
    for a, b in zip(first.predict(), second.predict(), strict=True):
        assert np.array_equal(a, b)
    assert np.array_equal(first.sample(3, seed=2), second.sample(3, seed=2))
    assert not np.array_equal(first.sample(3, seed=2), first.sample(3, seed=4))
    assert all(torch.equal(a, b) for a, b in zip(state, [p for k in kernels for p in k.parameters()], strict=True))
    assert all(np.array_equal(a, b, equal_nan=True) for a, b in zip(copies, (X, T, Y), strict=True))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_torch_in_torch_out(dtype):
    X, T, Y, _ = curves()
    X, T, Y = (torch.tensor(a, dtype=dtype) for a in (X, T, Y))
    mean, std = LKGP().fit([X, T], Y).predict()
    assert mean.dtype == std.dtype == dtype
    assert mean.shape == Y.shape
    mean_32, _ = LKGP(dtype=torch.float32, noise=0.05).fit([X, T], Y, optimize=False).predict()
    mean_64, _ = LKGP(dtype=torch.float64, noise=0.05).fit([X, T], Y, optimize=False).predict()
    torch.testing.assert_close(mean_32, mean_64, atol=1e-3, rtol=1e-3)


def dense_twin(gp, X, T, Y):
    """An oracle with the hyperparameters that were found, in the model's own units."""
    model = gp.model_
    x_scale, t_scale, y_scale = *gp.standardization_.coords, gp.standardization_.values
    scaled = [x_scale.apply(torch.as_tensor(X)).numpy(), t_scale.apply(torch.as_tensor(T)[:, None]).numpy()]

    def kernel(k):
        return lambda a, b: model.kernels[k](torch.as_tensor(a), torch.as_tensor(b)).to_dense().detach().numpy()

    y = (Y - float(y_scale.shift)) / float(y_scale.scale)
    return (
        Oracle([kernel(0), kernel(1)], scaled, y, model.noise_variance().item(), model.mean.constant.item()),
        scaled,
        y_scale,
    )


KERNELS = {
    "squared exponential": lambda: [ScaleKernel(RBFKernel(ard_num_dims=2)), RBFKernel()],
    "matern and periodic": lambda: [ScaleKernel(MaternKernel(nu=1.5, ard_num_dims=2)), PeriodicKernel()],
    "product and sum": lambda: [
        RBFKernel(ard_num_dims=2) + LinearKernel(),
        ScaleKernel(RBFKernel() * PeriodicKernel()),
    ],
    "columns apart": lambda: [ScaleKernel(RBFKernel(active_dims=(0,)) * MaternKernel(active_dims=(1,))), RBFKernel()],
    "priors": lambda: [
        ScaleKernel(
            RBFKernel(ard_num_dims=2, lengthscale_prior=LogNormalPrior(0.0, 1.0)),
            outputscale_prior=GammaPrior(2.0, 0.15),
        ),
        RBFKernel(lengthscale_constraint=Interval(0.05, 5.0)),
    ],
}


@pytest.mark.parametrize("make", KERNELS.values(), ids=KERNELS)
def test_kernels_of_every_kind_are_fitted_and_saved(make, tmp_path):
    X, T, Y, _ = curves(rows=8, columns=7)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", lkgp.ConvergenceWarning)
        gp = LKGP(make(), optimizer=LBFGS(max_steps=15)).fit([X, T], Y)
    oracle, scaled, units = dense_twin(gp, X, T, Y)
    mean, std = gp.predict()
    np.testing.assert_allclose(mean, units.undo(torch.as_tensor(oracle.mean_at(scaled))).numpy(), atol=1e-6)
    np.testing.assert_allclose(std, np.sqrt(oracle.variance_at(scaled)) * float(units.scale), atol=1e-6)
    gp.save(tmp_path / "model.lkgp")
    loaded = LKGP.load(tmp_path / "model.lkgp")
    for a, b in zip(gp.predict([X + 0.1, T]), loaded.predict([X + 0.1, T]), strict=True):
        assert np.array_equal(a, b)
    assert [type(k) for k in loaded.kernels] == [type(k) for k in gp.kernels]
    assert float(loaded.model_.log_prior().detach()) == float(gp.model_.log_prior().detach())


def test_priors_are_part_of_the_objective():
    X, T, Y, _ = curves()
    strong = GaussianLikelihood(noise_prior=NormalPrior(0.5, 0.001))
    gp = LKGP(noise=strong).fit([X, T], Y)
    assert gp.model_.noise_variance().item() == pytest.approx(0.5, abs=0.02)


def test_only_columns_of_categories_keep_their_scale():
    """Sites by their number, and their altitude in metres."""
    rng = np.random.default_rng(0)
    sites, T = np.column_stack([np.arange(5) % 3, rng.uniform(0, 3000, 5)]), np.arange(6.0)
    Y = rng.normal(size=(5, 6))
    kernel = IndexKernel(num_tasks=3, rank=1, active_dims=(0,)) * MaternKernel(active_dims=(1,))
    gp = LKGP([kernel, RBFKernel()]).fit([sites, T], Y, optimize=False)
    points = gp.posterior_.data.grid.coords[0].numpy()
    assert np.array_equal(points[:, 0], sites[:, 0])
    assert points[:, 1] == pytest.approx((sites[:, 1] - sites[:, 1].mean()) / sites[:, 1].std())
    marks = np.eye(5)
    gp = LKGP([HammingIMQKernel(vocab_size=5), RBFKernel()]).fit([marks, T], Y, optimize=False)
    assert np.array_equal(gp.posterior_.data.grid.coords[0].numpy(), marks)


def test_full_rank_index_kernel_for_a_discrete_factor():
    """Tasks that are related: the covariance between them is learned, and unobserved tasks are told by the others."""
    rng = np.random.default_rng(0)
    X = np.linspace(0, 6, 25)
    Y = np.stack([np.sin(X), -np.sin(X), np.sin(X) + np.cos(X)], axis=1) + 0.02 * rng.normal(size=(25, 3))
    truth = Y.copy()
    Y[10:18, 1] = np.nan
    torch.manual_seed(0)
    gp = LKGP([RBFKernel(), IndexKernel(num_tasks=3, rank=3)]).fit([X, np.arange(3)], Y)
    mean, _ = gp.predict()
    assert np.abs(mean[10:18, 1] - truth[10:18, 1]).max() < 0.15
    assert gp.predict([X, [1]])[0][:, 0] == pytest.approx(mean[:, 1])
    with pytest.raises(InputError, match="whole numbers from 0 to 2"):
        gp.predict([X, [3]])


def test_adam_and_iterative_inference_reach_the_exact_optimum_nearly():
    X, T, Y, _ = curves(rows=20, noise=0.1)
    exact = LKGP().fit([X, T], Y).log_marginal_likelihood()
    method = Iterative(ConjugateGradients(rtol=1e-4), num_probes=32)
    gp = LKGP(solver=method, optimizer=Adam(max_steps=60, tolerance=5e-3))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", lkgp.ConvergenceWarning)
        gp.fit([X, T], Y)
    assert "observation space" in gp.report_.method
    assert "in addition to the errors of the solves" in gp.report_.variance
    found = LKGP(list(gp.model_.kernels), noise=gp.model_.noise_variance().item()).fit([X, T], Y, optimize=False)
    assert found.log_marginal_likelihood() > exact - 4
    assert gp.report_.products > 100


def test_known_noise_a_number_or_one_a_cell():
    X, T, Y, _ = curves(noise=0.1)
    variance = np.where(np.isnan(Y), np.nan, 0.01)
    one, each = LKGP().fit([X, T], Y, noise_variance=0.01), LKGP().fit([X, T], Y, noise_variance=variance)
    np.testing.assert_allclose(one.predict()[0], each.predict()[0], atol=1e-6)
    _, latent = one.predict()
    _, noisy = one.predict(observation_noise=True)
    np.testing.assert_allclose(noisy**2 - latent**2, 0.01, rtol=1e-9)
    with pytest.raises(InputError, match="pass observation_noise as an array"):
        each.predict(observation_noise=True)
    _, told = each.predict(observation_noise=np.full(Y.shape, 0.04))
    np.testing.assert_allclose(told**2 - each.predict()[1] ** 2, 0.04, rtol=1e-9)
    draws = one.sample(3000, observation_noise=True)
    assert draws.std(axis=0) == pytest.approx(noisy, rel=0.08)


def test_the_noise_of_observations_is_not_that_of_other_draws(fitted):
    """With another seed, the prior was drawn with the same numbers as this noise."""
    cells = fitted.predict()[0].size
    noise = (fitted.sample(200, seed=5, observation_noise=True) - fitted.sample(200, seed=5)).reshape(200, cells)
    other = fitted.posterior_.draws(200, 6).prior.known.terms[0].normals.pieces[0][1].movedim(-1, 0).flatten(1).numpy()
    assert np.abs(np.corrcoef(noise.ravel(), other.ravel())[0, 1]) < 0.05


def test_draws_that_were_put_away_come_back_as_they_were():
    X, T, Y, _ = curves()
    gp = LKGP().fit([X, T], Y, optimize=False)
    new = [[X[:2] + 0.1, T], [X[2:4] + 0.1, T]]
    first = [gp.sample(3, coords, seed=1) for coords in new]
    for seed in range(2, 8):
        gp.sample(3, seed=seed)
    assert (3, 1) not in gp.posterior_.draw_store.kept
    for coords, draws in reversed(list(zip(new, first, strict=True))):
        assert np.array_equal(gp.sample(3, coords, seed=1), draws)


def test_a_long_table_is_the_same_model_and_repeats_are_averaged():
    X, T = np.array([0.0, 1.0, 2.5]), np.array([0.0, 0.4, 0.9, 1.3])
    rng = np.random.default_rng(0)
    rows = np.array([(i, j) for i in range(3) for j in range(4) if (i, j) != (1, 2)])
    rows = np.concatenate([rows, rows[:3], rows[:1]])
    values = rng.normal(size=len(rows))
    order = rng.permutation(len(rows))
    words = {"noise": 0.2, "mean": 0.0, "standardize": False}
    table = LKGP([RBFKernel(), RBFKernel()], **words)
    with pytest.raises(InputError, match=r"rows \d+ and \d+ of the table belong to the same cell.*duplicates='mean'"):
        table.fit_table([X[rows[order, 0]], T[rows[order, 1]]], values[order], optimize=False)
    table.fit_table([X[rows[order, 0]], T[rows[order, 1]]], values[order], duplicates="mean", optimize=False)

    # The oracle sees every row as an observation of its own.
    lengthscale = RBFKernel().lengthscale.item()
    x, t = X[rows[:, 0], None], T[rows[:, 1], None]
    full = squared_exponential(x, x, lengthscale) * squared_exponential(t, t, lengthscale) + 0.2 * np.eye(len(rows))
    gx, gt = np.repeat(X, 4)[:, None], np.tile(T, 3)[:, None]
    cross = squared_exponential(gx, x, lengthscale) * squared_exponential(gt, t, lengthscale)
    mean, std = table.predict()
    np.testing.assert_allclose(mean.ravel(), cross @ np.linalg.solve(full, values), atol=1e-6)
    np.testing.assert_allclose(
        std.ravel() ** 2, 1 - np.einsum("ij,ji->i", cross, np.linalg.solve(full, cross.T)), atol=1e-6
    )
    # So does the likelihood, in any units.
    density = -0.5 * (
        values @ np.linalg.solve(full, values) + np.linalg.slogdet(full)[1] + len(values) * np.log(2 * np.pi)
    )
    np.testing.assert_allclose(table.log_marginal_likelihood(), density, rtol=1e-8)
    np.testing.assert_allclose(table.report_.log_likelihood, density, rtol=1e-8)
    known = LKGP([RBFKernel(), RBFKernel()], **words)
    known.fit_table(
        [x[:, 0], t[:, 0]], values, noise_variance=np.full(len(values), 0.2), duplicates="mean", optimize=False
    )
    np.testing.assert_allclose(known.predict()[0], mean, atol=1e-9)


@pytest.mark.parametrize(
    "solver", ["auto", Spectral(), Iterative(ConjugateGradients(1e-8))], ids=["direct", "spectral", "iterative"]
)
def test_measurements_that_repeat_tell_the_noise(solver, tmp_path):
    rng = np.random.default_rng(0)
    cells = np.array([(i, j) for i in range(4) for j in range(3) if (i, j) != (1, 2)])
    rows = np.repeat(cells, 40, axis=0)
    values = 1000 * (np.sin(rows[:, 0]) + rows[:, 1] + 0.5 * rng.normal(size=len(rows)))
    gp = LKGP(solver=solver).fit_table([rows[:, 0].astype(float), rows[:, 1].astype(float)], values, duplicates="mean")
    cell = rows[:, 0] * 3 + rows[:, 1]
    within = np.sqrt(np.mean([values[cell == c].var(ddof=1) for c in np.unique(cell)]))
    assert gp.report_.noise_std == pytest.approx(within, rel=0.1)
    gp.save(tmp_path / "model.lkgp")
    again = LKGP.load(tmp_path / "model.lkgp")
    assert again.log_marginal_likelihood() == gp.log_marginal_likelihood()
    more = np.full((4, 3), np.nan)
    more[1, 2] = 1000 * (np.sin(1) + 2)
    assert again.update(more, refit=True).report_.noise_std == pytest.approx(within, rel=0.1)


@pytest.mark.parametrize("solver", ["auto", Iterative(ConjugateGradients(1e-10))], ids=["direct", "iterative"])
def test_update_takes_in_more_cells(solver):
    X, T, Y, truth = curves()
    gp = LKGP(noise=0.01, solver=solver).fit([X, T], Y, optimize=False)
    more = Y.copy()
    more[:4] = truth[:4]
    kept = ~np.isnan(Y)
    more[kept] = Y[kept]
    only_new = np.where(kept, np.nan, more)
    before = gp.log_marginal_likelihood()
    gp.update(only_new)
    assert gp.grid_.num_observed == np.isfinite(more).sum()
    # the same model, hyperparameters and units, given everything at once
    z = (more - float(gp.standardization_.values.shift)) / float(gp.standardization_.values.scale)
    coords = [c.numpy() for c in gp.posterior_.data.grid.coords]
    whole = LKGP(list(gp.model_.kernels), mean=0.0, noise=0.01, standardize=False).fit(coords, z, optimize=False)
    np.testing.assert_allclose(
        gp.predict()[0], gp.standardization_.values.undo(torch.as_tensor(whole.predict()[0])).numpy(), atol=1e-5
    )
    assert gp.log_marginal_likelihood() != before
    clash = more.copy()
    clash[0, 0] += 1
    with pytest.raises(InputError, match=r"cell \(0, 0\) already has the value"):
        gp.update(clash)
    with pytest.raises(InputError, match="shape"):
        gp.update(more[:-1])
    if solver == "auto":
        found = gp.log_marginal_likelihood()
        gp.update(more, refit=True)
        assert gp.log_marginal_likelihood() > found


def test_conditioning_on_the_same_values_is_the_same_model():
    """With known noise, and with means of several measurements."""
    X, T, Y, _ = curves()
    V = np.random.default_rng(0).uniform(0.001, 0.01, Y.shape)
    gp = LKGP().fit([X, T], Y, noise_variance=V, optimize=False)
    with pytest.raises(InputError, match="give noise_variance for these values, too"):
        gp.conditioned_on(Y)
    again = gp.conditioned_on(Y, noise_variance=V)
    for a, b in zip(gp.predict(observation_noise=True), again.predict(observation_noise=True), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12)
    with pytest.raises(InputError, match=r"1 column\(s\), but the model was fitted to 2"):
        gp.conditioned_on(Y, [X[:, :1], T], noise_variance=V)


def test_conditioning_on_some_of_the_measurements():
    """Those that are left count as often as before; the others are as if they had never been."""
    rng = np.random.default_rng(0)
    cells = np.array([(i, j) for i in range(4) for j in range(3)])
    rows = np.repeat(cells, rng.integers(1, 5, len(cells)), axis=0)
    values = rng.normal(size=len(rows))

    def fitted(which):
        gp = LKGP([RBFKernel(), RBFKernel()], mean=0.0, noise=0.2, standardize=False)
        return gp.fit_table([rows[which, 0], rows[which, 1]], values[which], duplicates="mean", optimize=False)

    whole, left = fitted(np.full(len(rows), True)), fitted((rows != [1, 2]).any(axis=1))
    means = whole.grid_.scatter(whole.observations_.values).view(4, 3).numpy()
    means[1, 2] = np.nan
    found = whole.conditioned_on(means)
    for a, b in zip(found.predict(), left.predict(), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9)
    assert found.log_marginal_likelihood() == pytest.approx(left.log_marginal_likelihood())


def test_update_with_known_noise_is_the_oracle_of_all_cells():
    """Noise known for each cell: that of new cells is asked for where it is not known."""
    rng = np.random.default_rng(0)
    X, T = np.arange(5.0), np.arange(4.0)
    Y, V = rng.normal(size=(5, 4)), rng.uniform(0.1, 0.4, (5, 4))
    first = Y.copy()
    first[rng.random(Y.shape) < 0.5] = np.nan
    seen = np.isfinite(first)
    gp = LKGP([RBFKernel(), RBFKernel()], mean=0.0, standardize=False)
    gp.fit([X, T], first, noise_variance=np.where(seen, V, np.nan), optimize=False)
    with pytest.raises(InputError, match="noise variance"):
        gp.update(Y)
    gp.update(Y, noise_variance=np.where(seen, np.nan, V))
    lengthscale = RBFKernel().lengthscale.item()
    oracle = Oracle([lambda a, b: squared_exponential(a, b, lengthscale)] * 2, [X[:, None], T[:, None]], Y, V)
    mean, std = gp.predict()
    np.testing.assert_allclose(mean, oracle.mean_at([X[:, None], T[:, None]]), atol=1e-6)
    np.testing.assert_allclose(std**2, oracle.variance_at([X[:, None], T[:, None]]), atol=1e-6)
    np.testing.assert_allclose(gp.predict(observation_noise=True)[1] ** 2 - std**2, V, atol=1e-9)
    learned = LKGP().fit([X, T], first, optimize=False)
    with pytest.raises(InputError, match="call fit instead"):
        learned.update(Y, noise_variance=0.1)


def test_a_fit_that_fails_leaves_the_model_as_it_was():
    X, T, Y, _ = curves()
    gp = LKGP(solver=Direct(max_size=200)).fit([X, T], Y, optimize=False)
    before = gp.predict()
    X2, T2, Y2, _ = curves(rows=80)
    with pytest.raises(InputError, match="more than max_size=200"):
        gp.fit([X2, T2], 1000 * Y2)
    for a, b in zip(gp.predict(), before, strict=True):
        assert np.array_equal(a, b)


def test_the_callers_tensors_are_not_kept():
    X, T, Y, _ = (torch.as_tensor(a) for a in curves())
    variance = torch.full_like(Y, 0.01)
    gp = LKGP().fit([X, T], Y, noise_variance=variance, optimize=False)
    new = torch.where(torch.isnan(Y), 10.0, torch.nan)
    expected = LKGP().fit([X.clone(), T], Y, noise_variance=variance.clone(), optimize=False).update(new).predict()
    X.add_(1.0)
    variance.mul_(100.0)
    for a, b in zip(gp.update(new).predict(), expected, strict=True):
        assert torch.equal(a, b)


# What bad input gets


def good():
    return [np.arange(4.0), np.arange(3.0)], np.arange(12.0).reshape(4, 3) % 5


def changed(array, index, value):
    array = array.copy()
    array[index] = value
    return array


BAD = {
    "infinite value": (lambda c, y: (c, changed(y, (1, 2), np.inf)), r"infinite value in .* at \(1, 2\)"),
    "NaN coordinate": (
        lambda c, y: ([changed(c[0], 2, np.nan), c[1]], y),
        r"row 2 of the coordinates of factor 0 has a NaN or infinite value",
    ),
    "repeated coordinate": (lambda c, y: ([c[0], changed(c[1], 2, 0.0)], y), r"factor 1 are not unique: rows 0 and 2"),
    "shapes": (lambda c, y: (c, y.T), r"shape \(3, 4\) but the coordinates make a grid of \(4, 3\)"),
    "nothing observed": (lambda c, y: (c, np.full_like(y, np.nan)), "nothing is observed"),
    "complex": (lambda c, y: (c, y + 1j), "complex"),
    "text": (lambda c, y: ([np.array(list("abcd")), c[1]], y), "found text in the coordinates of factor 0"),
    "objects": (lambda c, y: (c, changed(y.astype(object), (0, 0), "x")), "text or other objects"),
    "dates": (lambda c, y: ([np.arange("2020-01-01", "2020-01-05", dtype="datetime64[D]"), c[1]], y), "found dates"),
    "not a list": (lambda c, y: (c[0], y), "a list with one array per factor"),
    "three columns of axes": (lambda c, y: ([c[0][:, None, None], c[1]], y), "shape"),
    "empty": (lambda c, y: ([c[0][:0], c[1]], y[:0]), "list of points"),
}


@pytest.mark.parametrize(("spoil", "message"), BAD.values(), ids=BAD)
def test_bad_data_gets_one_clear_sentence(spoil, message):
    coords, values = spoil(*good())
    with pytest.raises(InputError, match=message) as raised:
        LKGP().fit(coords, values)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("variance", [-1.0, 0.0, np.nan, np.inf])
def test_noise_that_is_not_positive_is_refused(variance):
    coords, values = good()
    with pytest.raises(InputError, match="noise variance"):
        LKGP().fit(coords, values, noise_variance=variance)
    with pytest.raises(InputError, match="noise variance"):
        LKGP().fit(coords, values, noise_variance=changed(np.ones_like(values), (2, 1), variance))


def test_bad_settings_get_one_clear_sentence():
    coords, values = good()
    with pytest.raises(InputError, match=r"3 kernel\(s\) were given for 2 factor\(s\)"):
        LKGP([RBFKernel(), RBFKernel(), RBFKernel()]).fit(coords, values)
    with pytest.raises(InputError, match=r"factor 1 has ard_num_dims=4, but that factor has 1 column"):
        LKGP([RBFKernel(), RBFKernel(ard_num_dims=4)]).fit(coords, values)
    with pytest.raises(InputError, match=r"factor 0 cannot be evaluated at a point with 2 column\(s\)"):
        LKGP([RBFKernel(ard_num_dims=1) + RBFKernel(), RBFKernel()]).fit(
            [np.arange(8.0).reshape(4, 2), coords[1]], values
        )
    with pytest.raises(InputError, match="reads column 3"):
        LKGP([RBFKernel(active_dims=(3,)), RBFKernel()]).fit(coords, values)
    with pytest.raises(InputError, match="kernel of factor 0 is a str"):
        LKGP(["rbf", RBFKernel()]).fit(coords, values)
    with pytest.raises(InputError, match="positive number"):
        LKGP(noise=-0.1).fit(coords, values)
    for words in ({"solver": "cg"}, {"optimizer": "sgd"}, {"standardize": "yes"}, {"dtype": torch.int64}):
        with pytest.raises(InputError, match=next(iter(words))):
            LKGP(**words)
    with pytest.raises(InputError, match="more than max_size=3"):
        LKGP(solver=Direct(max_size=3)).fit(coords, values)
    with pytest.raises(lkgp.NotFittedError, match="call fit first"):
        LKGP().predict()


def test_bad_questions_get_one_clear_sentence(fitted):
    X, T, _, _ = curves()
    with pytest.raises(InputError, match=r"1 coordinate array\(s\) were given for 2 factor\(s\)"):
        fitted.predict([X])
    with pytest.raises(InputError, match=r"3 column\(s\), but the model was fitted to 2"):
        fitted.predict([np.ones((4, 3)), T])
    with pytest.raises(InputError, match="row 1"):
        fitted.predict([X, [0.0, np.nan]])
    with pytest.raises(InputError, match="num_samples"):
        fitted.sample(0)
    with pytest.raises(InputError, match="seed must be a whole number"):
        fitted.sample(1, seed=0.5)


@pytest.mark.parametrize("solver", ["auto", Iterative()], ids=["direct", "iterative"])
def test_extremes_are_handled(solver):
    """Constant targets, one observation, one-point axes, near-duplicate and far-off coordinates: finite numbers, no
    error.
    """
    coords, values = good()
    single = np.full((4, 3), np.nan)
    single[2, 1] = 7.0
    far = [1e9 + coords[0], coords[1] * 1e-9]
    close = [np.array([0.0, 1e-12, 1.0, 2.0]), coords[1]]
    for points, y in [
        (coords, np.full((4, 3), 5.0)),
        (coords, single),
        ([[3.0], coords[1]], values[:1]),
        ([[3.0], [1.0]], [[2.0]]),
        (far, values),
        (close, values),
        (coords, values * 1e-13),
        (coords, values * 1e200),
    ]:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", lkgp.ConvergenceWarning)
            gp = LKGP(solver=solver, optimizer=LBFGS(max_steps=5) if solver == "auto" else Adam(max_steps=3)).fit(
                points, y
            )
        mean, std = gp.predict(observation_noise=True)
        assert np.isfinite(mean).all()
        assert np.isfinite(std).all()
        assert (std > 0).all()
        assert np.isfinite(gp.sample(2)).all()
    constant = LKGP(solver=solver).fit(coords, np.full((4, 3), 5.0))
    assert constant.predict()[0] == pytest.approx(5.0)
    assert "all observed values are equal" in constant.report_.notes[0]


def test_masked_arrays_and_integers_are_read():
    coords, values = good()
    masked = np.ma.masked_array(values.astype(int), mask=values == 3)
    gp = LKGP().fit(coords, masked, optimize=False)
    assert gp.grid_.num_observed == int((values != 3).sum())


def test_what_did_not_converge_is_said(fitted):
    X, T, Y, _ = curves()
    loose = Iterative(ConjugateGradients(rtol=1e-12, max_iterations=2), preconditioner=None)
    with pytest.warns(lkgp.ConvergenceWarning, match="iteration limit.*raise max_iterations"):
        gp = LKGP(solver=loose).fit([X, T], Y, optimize=False)
    assert not gp.report_.converged
    assert "NO" in str(gp.report_)
    assert gp.report_.residuals.max() > 1e-12
    with pytest.raises(lkgp.ConvergenceError, match="did not converge"):
        LKGP(solver=loose, strict=True).fit([X, T], Y, optimize=False)
    with pytest.warns(lkgp.ConvergenceWarning, match="hyperparameters did not converge"):
        LKGP(optimizer=LBFGS(max_steps=1)).fit([X, T], Y)


def test_strict_holds_each_time(tmp_path):
    """Error bars and covariances from solves that fail: an error, asked again and after a file, too."""
    X, T, Y, _ = curves()
    loose = Iterative(ConjugateGradients(rtol=1e-12, max_iterations=2), preconditioner=None, num_samples=4)
    with pytest.warns(lkgp.ConvergenceWarning):
        gp = LKGP(solver=loose).fit([X, T], Y, optimize=False)
    with pytest.warns(lkgp.ConvergenceWarning, match="for a covariance did not converge"):
        gp.covariance([X[:1], None])
    gp.strict = True
    for _ in range(2):
        for question in (gp.predict, gp.covariance, lambda: gp.sample(2)):
            with pytest.raises(lkgp.ConvergenceError, match="did not converge"):
                question()
    gp.save(tmp_path / "model.lkgp")
    with pytest.raises(lkgp.ConvergenceError, match="did not converge"):
        LKGP.load(tmp_path / "model.lkgp").predict()


def test_ctrl_c_keeps_the_best_so_far():
    X, T, Y, _ = curves()

    def press(step, value):
        if step == 3:
            raise KeyboardInterrupt

    for solver in ("auto", Iterative(ConjugateGradients(1e-3))):
        with pytest.warns(lkgp.ConvergenceWarning, match="interrupted"):
            gp = LKGP(progress=press, solver=solver).fit([X, T], Y)
        assert np.isfinite(gp.predict()[0]).all()
        if solver == "auto":
            start = LKGP().fit([X, T], Y, optimize=False)
            assert gp.log_marginal_likelihood() > start.log_marginal_likelihood()


@pytest.mark.parametrize("solver", [Direct(), Spectral(), Iterative()], ids=["direct", "spectral", "iterative"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_kernel_that_is_zero_explains_nothing(solver, dtype):
    """A linear kernel over a single point, which scaling moves to zero: the prior is known exactly."""
    Y = np.array([[1.0], [np.nan], [3.0]])
    gp = LKGP([RBFKernel(), LinearKernel()], mean=2.0, solver=solver, dtype=dtype)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", lkgp.ConvergenceWarning)
        gp.fit([np.arange(3.0), [5.0]], Y, optimize=False)
        mean, std = gp.predict()
        draws = gp.sample(3)
    np.testing.assert_allclose(mean, 2.0, atol=1e-6)
    np.testing.assert_allclose(std, 0.0, atol=1e-6)
    np.testing.assert_allclose(draws, 2.0, atol=1e-6)


def test_noise_below_the_rounding_of_float32_is_refused():
    rng = np.random.default_rng(1)
    x, t = rng.uniform(-1, 1, 60), np.arange(4.0)
    Y = np.cos(3 * x)[:, None] * np.cos(t)
    Y[rng.random(Y.shape) < 0.4] = np.nan
    kernels = [RBFKernel(), MaternKernel(nu=0.5)]
    exact = LKGP(kernels, noise=1e-8, solver=Direct()).fit([x, t], Y, optimize=False)
    assert np.isfinite(exact.predict()[0]).all()
    with pytest.raises(InputError, match=r"factorised in float32 because rounding errors .*; use dtype=torch.float64"):
        LKGP(kernels, noise=1e-8, solver=Direct(), dtype=torch.float32).fit([x, t], Y, optimize=False)


def test_a_step_into_nonsense_is_backed_out(monkeypatch):
    """A likelihood that fails beyond some noise: all optimisers come back and end at finite parameters."""
    X, T, Y, _ = curves()

    def fragile(model, *rest, **settings):
        if model.noise_variance().item() < 0.01:
            raise torch.linalg.LinAlgError("not positive definite")
        return log_likelihood(model, *rest, **settings)

    monkeypatch.setattr("lkgp.fitting.objective.log_likelihood", fragile)
    for optimizer in (BFGS(), LBFGS(), Adam(max_steps=80)):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", lkgp.ConvergenceWarning)
            gp = LKGP(optimizer=optimizer).fit([X, T], Y)
        assert gp.model_.noise_variance().item() >= 0.01
        assert gp.model_.noise_variance().item() < 0.05
        assert np.isfinite(gp.predict()[1]).all()


def test_a_large_fit_starts_on_some_of_the_curves_and_says_so(monkeypatch):
    monkeypatch.setattr("lkgp.data.subsets.COARSE_OBSERVATIONS", 150)
    X, T, Y, _ = curves(rows=80, noise=0.05)
    gp = LKGP().fit([X, T], Y)
    assert any("started from the optimum on" in note for note in gp.report_.notes)
    assert gp.report_.converged
    monkeypatch.setattr("lkgp.data.subsets.COARSE_OBSERVATIONS", 10**6)
    assert gp.log_marginal_likelihood() == pytest.approx(LKGP().fit([X, T], Y).log_marginal_likelihood(), abs=1.0)


def test_a_spectrum_that_outgrows_the_factorisation_is_followed_in_the_eigenbasis():
    """A start that reduces to few unknowns, and data that want a short length scale along the reduced axis."""
    rng = np.random.default_rng(0)
    X, T = np.arange(6.0), np.linspace(0, 1, 30)
    Y = np.sin(9 * T) * rng.normal(size=(6, 1)) + 0.01 * rng.normal(size=(6, 30))
    Y[rng.random(Y.shape) < 0.2] = np.nan
    over_time = RBFKernel()
    over_time.lengthscale = 1.0
    model = LatentKroneckerGP([ScaleKernel(RBFKernel()), over_time], noise=0.5).double()
    data = lkgp.from_array([X, T], Y)
    start = lkgp.plan(model, data, "auto").size
    result = lkgp.fit(model, data, method=Direct(max_size=start + 3))
    assert any("continued in the eigenbasis" in note for note in result.notes)
    assert "spectral" in result.plan.why
    assert isinstance(result.plan.method, Spectral)
    assert result.model.kernels[1].lengthscale.item() < 0.5
    # What the search found is not lost where direct inference was asked for.
    gp = LKGP(
        [ScaleKernel(RBFKernel()), over_time], noise=0.5, standardize=False, solver=Direct(max_size=start + 3)
    ).fit([X, T], Y)
    assert any("posterior was computed in the eigenbasis" in note for note in gp.report_.notes)
    assert gp.model_.kernels[1].lengthscale.item() < 0.5
    assert np.isfinite(gp.predict()[1]).all()


def test_the_report_is_plain_data(fitted):
    assert json.loads(json.dumps(fitted.report_.to_dict()))["converged"] is True
    words = str(fitted.report_)
    for expected in ("missing", "direct", "residual", "exact", "seconds"):
        assert expected in words


@pytest.mark.parametrize(
    "solver", [Direct(), Spectral(), lkgp.ObservationSpace(), Iterative()], ids=lambda s: type(s).__name__
)
def test_a_fit_in_single_precision_ends_near_that_in_double(solver):
    X, T, Y, _ = curves(rows=12, noise=0.1)
    found = []
    for dtype in (torch.float32, torch.float64):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", lkgp.ConvergenceWarning)
            gp = LKGP(solver=solver, dtype=dtype).fit([X, T], Y)
        fixed = LKGP(list(gp.model_.kernels), mean=None, noise=gp.model_.noise_variance().item())
        found.append(fixed.fit([X, T], Y, optimize=False).log_marginal_likelihood())
    assert found[0] > found[1] - 5


def test_the_report_remembers_every_set_of_draws_and_cannot_be_changed():
    X, T, Y, _ = curves(rows=6)
    gp = LKGP().fit([X, T], Y)
    for seed in range(8):
        gp.sample(3, seed=seed)
    report = gp.report_
    assert [(one.num, one.seed) for one in report.draws] == [(3, seed) for seed in range(8)]
    assert report.seconds["draws"] > 0
    for change in (lambda: report.residuals.__setitem__(0, 1.0), lambda: report.seconds.update(fit=0.0)):
        with pytest.raises((TypeError, ValueError)):
            change()
    report.to_dict()["seconds"]["fit"] = -1.0
    assert report.seconds["fit"] >= 0
    assert pickle.loads(pickle.dumps(report)).seconds == report.seconds


def test_a_factor_to_reduce_along_must_be_there():
    X, T, Y, _ = curves(rows=6)
    for axis in (-1, 2):
        with pytest.raises(InputError, match=f"axis={axis} is not one of the factors 0 to 1"):
            LKGP(solver=Direct(axis=axis)).fit([X, T], Y, optimize=False)


def test_long_regular_axes_of_few_modes_are_found_row_by_row(monkeypatch):
    """Mean and error bars of every way are those of a dense factor."""
    T = np.linspace(0, 1, 40)
    rng = np.random.default_rng(0)
    Y = np.where(rng.random((3, 40)) < 0.5, np.nan, np.sin(6 * T) + 0.1 * rng.normal(size=(3, 40)))
    kernels = [RBFKernel(), RBFKernel()]
    for solver in (Direct(axis=0), Direct(axis=1), Spectral(num_samples=500)):
        plain = LKGP(kernels, solver=solver).fit([np.arange(3.0), T], Y, optimize=False).predict()
        with monkeypatch.context() as patch:
            patch.setattr("lkgp.linalg.factors.toeplitz.TOEPLITZ_PAYS", 20)
            patch.setattr("lkgp.linalg.factors.base.MOST_DENSE_POINTS", 30)
            gp = LKGP(kernels, solver=solver).fit([np.arange(3.0), T], Y, optimize=False)
            assert gp.report_.structures[1] == "toeplitz"
            found = gp.predict()
        np.testing.assert_allclose(found[0], plain[0], atol=1e-6)
        np.testing.assert_allclose(found[1], plain[1], rtol=1e-5 if isinstance(solver, Direct) else 0.2)


def test_the_learned_noise_is_told_in_the_units_of_the_data():
    X, T, Y, _ = curves(noise=0.1)
    small, large = LKGP().fit([X, T], Y), LKGP().fit([X, T], 1000 * Y)
    assert small.noise_variance_ == pytest.approx(small.report_.noise_std**2)
    assert large.noise_variance_ == pytest.approx(1e6 * small.noise_variance_, rel=1e-3)
    assert LKGP().fit([X, T], Y, noise_variance=0.01, optimize=False).noise_variance_ is None


@pytest.mark.parametrize("solver", [Direct(), Spectral(num_samples=8)], ids=["direct", "eigenbasis"])
def test_means_alone_are_the_same_and_need_no_variances(solver, monkeypatch):
    """On the grid, off it and row by row; nothing is drawn or solved for."""
    rng = np.random.default_rng(0)
    X, T, Y = rng.random((8, 2)), np.linspace(0, 1, 6), rng.normal(size=(8, 6))
    Y[rng.random(Y.shape) < 0.3] = np.nan
    gp, new = LKGP(solver=solver).fit([X, T], Y, optimize=False), [rng.random((3, 2)), rng.random(4)]
    both, rows = [gp.predict(), gp.predict(new)], gp.predict_rows([X[:4], T[:4]])
    fresh = LKGP(solver=solver).fit([X, T], Y, optimize=False)
    for name in ("variance", "draws", "predictors"):
        monkeypatch.setattr(f"lkgp.posterior.posterior.Posterior.{name}", None)
    for coords, (mean, _) in zip((None, new), both, strict=True):
        np.testing.assert_array_equal(fresh.predict(coords, std=False), mean)
    np.testing.assert_allclose(fresh.predict_rows([X[:4], T[:4]], std=False), rows[0], rtol=1e-12)
    assert fresh.report_.draws == ()


def test_a_fixed_mean_is_not_rounded_to_single_precision():
    rng = np.random.default_rng(0)
    X, T, Y = np.linspace(0, 2, 7)[:, None], np.linspace(0, 2, 5)[:, None], rng.normal(size=(7, 5))
    Y[rng.random(Y.shape) < 0.3] = np.nan
    kernels = [RBFKernel().double(), RBFKernel().double()]
    for kernel in kernels:
        kernel.lengthscale = torch.tensor(0.5, dtype=torch.float64)
    gp = LKGP(kernels, mean=1.1, noise=1e-4, standardize=False).fit([X, T], Y, optimize=False)
    assert float(gp.model_.mean.constant) == 1.1
    oracle = Oracle([lambda x, z: squared_exponential(x, z, 0.5)] * 2, [X, T], Y, 1e-4, 1.1)
    assert gp.log_marginal_likelihood() == pytest.approx(oracle.log_likelihood(), rel=1e-10)
