"""scikit-learn's contract, with targets of which some are missing."""

import pickle

import numpy as np
import pandas as pd
import pytest
from gpytorch.kernels import MaternKernel, RBFKernel, ScaleKernel
from oracle import Oracle, matern52
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from lkgp.sklearn import LKGPRegressor, LKGPTableRegressor


@parametrize_with_checks([LKGPRegressor(), LKGPTableRegressor()])
def test_all_of_scikit_learns_checks(estimator, check):
    check(estimator)


@pytest.fixture(scope="module")
def tasks():
    """40 rows of 3 features and 4 related targets, half of them missing, and the function behind them."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 3))
    f = np.stack([np.sin(X[:, 0]), np.cos(X[:, 1])], axis=1) @ rng.normal(size=(2, 4))
    Y = f + 0.05 * rng.normal(size=f.shape)
    return X, np.where(rng.random(Y.shape) < 0.5, np.nan, Y), f


@pytest.fixture(scope="module")
def fitted(tasks):
    return LKGPRegressor().fit(*tasks[:2])


def test_missing_targets_are_filled_from_related_ones(tasks, fitted):
    X, Y, f = tasks
    mean, std = fitted.predict(X, return_std=True)
    assert mean.shape == std.shape == Y.shape
    gaps = np.isnan(Y)
    assert np.sqrt(np.mean((mean - f)[gaps] ** 2)) < 0.4 * f[gaps].std()
    assert fitted.score(X, Y) > 0.95
    assert fitted.score(X, np.where(gaps, f, Y)) < fitted.score(X, Y)


def test_predictions_and_draws_are_those_of_the_dense_model(tasks):
    """Tasks with coordinates of their own; on the rows of the fit, and off them."""
    X, Y, _ = tasks
    epochs = np.array([1.0, 2.0, 4.0, 7.0])
    model = LKGPRegressor(tasks=epochs).fit(X, Y)
    kernels, gp = model.model_.model_.kernels, model.model_
    scalings = gp.standardization_.coords
    new = np.random.default_rng(1).normal(size=(5, 3))

    def scaled(x, k):
        return (x.reshape(len(x), -1) - scalings[k].shift.numpy()) / scalings[k].scale.numpy()

    lengths = [kernels[0].lengthscale.detach().numpy(), kernels[1].base_kernel.lengthscale.detach().numpy()]
    scale = kernels[1].outputscale.item()
    shift, unit = gp.standardization_.values.shift.item(), gp.standardization_.values.scale.item()
    oracle = Oracle(
        [lambda x, z: matern52(x, z, lengths[0]), lambda x, z: scale * matern52(x, z, lengths[1])],
        [scaled(X, 0), scaled(epochs, 1)],
        (Y - shift) / unit,
        gp.model_.noise_variance().item(),
        gp.model_.mean.constant.item(),
    )
    at = [scaled(new, 0), scaled(epochs, 1)]
    mean, std = model.predict(new, return_std=True)
    assert np.allclose(mean, shift + unit * oracle.mean_at(at), atol=1e-6)
    assert np.allclose(std, unit * np.sqrt(oracle.variance_at(at)), rtol=1e-5)
    assert np.allclose(model.predict(new, return_cov=True)[1], unit**2 * oracle.covariance_at(at), atol=1e-6)
    noisy = model.predict(new, return_std=True, observation_noise=True)[1]
    assert np.allclose(
        np.diag(model.predict(new, return_cov=True, observation_noise=True)[1]).reshape(noisy.shape),
        noisy**2,
        rtol=1e-5,
    )
    with pytest.raises(RuntimeError, match="at most one"):
        model.predict(new, return_std=True, return_cov=True)
    assert np.allclose(noisy**2 - std**2, unit**2 * gp.model_.noise_variance().item())
    draws = model.sample_y(new, n_samples=4000, random_state=3)
    assert draws.shape == (5, 4, 4000)
    deviation = np.sqrt(np.diag(oracle.covariance_at(at)))
    found = np.cov(draws.reshape(20, -1) / unit) / np.outer(deviation, deviation)
    assert np.abs(found - oracle.covariance_at(at) / np.outer(deviation, deviation)).max() < 8 / np.sqrt(4000)


def test_it_lives_in_pipelines_searches_and_pickles(tasks, fitted):
    X, Y, _ = tasks
    pipeline = make_pipeline(StandardScaler(), LKGPRegressor()).fit(X, Y)
    assert pipeline.predict(X).shape == Y.shape
    assert np.array_equal(pickle.loads(pickle.dumps(fitted)).predict(X), fitted.predict(X))
    kernels = [ScaleKernel(RBFKernel(ard_num_dims=3)), MaternKernel(nu=0.5, ard_num_dims=3)]
    search = GridSearchCV(LKGPRegressor(), {"kernel": kernels}, cv=2).fit(X, Y[:, 0:2])
    assert search.best_params_["kernel"] in kernels
    copied = clone(fitted)
    assert not hasattr(copied, "model_")
    assert copied.get_params()["noise"] == 0.05
    single = LKGPRegressor().fit(X, Y[:, 0])
    assert single.predict(X).shape == (40,)
    assert single.sample_y(X[:3], 2).shape == (3, 2)
    assert np.isfinite(single.log_marginal_likelihood())


def test_targets_need_not_share_a_unit(tasks):
    """The same model, whatever the units of each column; so does the table, by name."""
    X, Y, _ = tasks
    units, shifts = np.array([1.0, 1e4, 1e-3, 1.0]), np.array([0.0, 5e4, 1.0, -7.0])
    plain, mixed = LKGPRegressor().fit(X, Y), LKGPRegressor().fit(X, Y * units + shifts)
    (mean, std), (other, spread) = (model.predict(X, return_std=True) for model in (plain, mixed))
    assert np.allclose((other - shifts) / units, mean, atol=0.02)
    assert np.allclose(spread / units, std, rtol=0.05)
    assert np.allclose(np.sqrt(np.diag(mixed.predict(X[:2], return_cov=True)[1])).reshape(2, 4), spread[:2], rtol=1e-4)
    jacobian = np.isfinite(Y).sum(axis=0) @ np.log(units)
    assert mixed.log_marginal_likelihood() == pytest.approx(plain.log_marginal_likelihood() - jacobian, abs=0.3)
    draws = mixed.sample_y(X[:2], 500)
    assert np.allclose(draws.mean(axis=-1), other[:2], atol=5 * spread[:2].max(axis=0) / np.sqrt(500) + 1e-9 * units)
    rows, columns = np.nonzero(np.isfinite(Y))
    table = pd.DataFrame(X[rows]).assign(joint=np.array(["a", "b", "c", "d"])[columns])
    table.columns = [0, 1, 2, 3]
    named = LKGPTableRegressor(3).fit(table, (Y * units + shifts)[rows, columns])
    assert np.allclose((named.predict(table) - shifts[columns]) / units[columns], mean[rows, columns], atol=0.1)


def test_bad_targets_are_refused(tasks):
    X, Y, _ = tasks
    with pytest.raises(ValueError, match="same coordinates"):
        LKGPRegressor(tasks=[1, 1, 2, 3]).fit(X, Y)
    with pytest.raises(ValueError, match="only NaN"):
        LKGPRegressor().fit(X, np.full_like(Y, np.nan))
    with pytest.raises(ValueError, match="infinity"):
        LKGPRegressor().fit(X, np.where(np.isnan(Y), np.inf, Y))
    with pytest.raises(ValueError, match="2 tasks but 4 columns"):
        LKGPRegressor(tasks=[1, 2]).fit(X, Y)
    with pytest.raises(ValueError, match="at least two values of one target"):
        LKGPRegressor().fit(X, Y).score(X[:1], Y[:1])


def test_a_table_with_a_column_for_the_second_factor(tasks):
    X, Y, _ = tasks
    rows, columns = np.nonzero(np.isfinite(Y))
    table = pd.DataFrame(X[rows], columns=["a", "b", "c"]).assign(
        joint=np.array(["one", "two", "three", "four"])[columns]
    )
    y = Y[rows, columns]
    model = LKGPTableRegressor("joint").fit(table, y)
    mean, std = model.predict(table, return_std=True)
    assert mean.shape == std.shape == y.shape
    assert model.score(table, y) > 0.95
    shuffled = np.random.default_rng(0).permutation(len(y))
    assert np.allclose(model.predict(table.iloc[shuffled]), mean[shuffled], atol=1e-8)
    with pytest.raises(ValueError, match="'five', which was not in the training data"):
        model.predict(table.assign(joint="five"))
    with pytest.raises(ValueError, match="no column 'elbow'"):
        LKGPTableRegressor("elbow").fit(table, y)
    numbers = np.column_stack([X[rows], columns])
    again = LKGPTableRegressor().fit(np.vstack([numbers, numbers[:3]]), np.append(y, y[:3]))
    assert again.model_.observations_.counts.max() == 2
    with pytest.raises(ValueError, match="give a DataFrame that has it"):
        LKGPTableRegressor("joint").fit(numbers, y)
    with pytest.raises(ValueError, match="fitted to a DataFrame with names"):
        model.predict(numbers)


def test_rows_that_repeat():
    rng = np.random.default_rng(0)
    X = np.repeat([[0.0], [1.0], [2.0]], 100, axis=0)
    y = X[:, 0] + rng.normal(size=300)
    model = LKGPRegressor().fit(X, y)
    std = model.predict([[1.0]], return_std=True, observation_noise=True)[1]
    assert std[0] == pytest.approx(1.0, abs=0.1)
    # The same in other units: a density is divided by the unit once for every row.
    larger = LKGPRegressor().fit(X, 1000 * y)
    assert larger.log_marginal_likelihood() == pytest.approx(
        model.log_marginal_likelihood() - 300 * np.log(1000), rel=1e-3
    )


def test_means_are_predicted_without_standard_deviations(monkeypatch):
    rng = np.random.default_rng(0)
    X, y = rng.random((12, 3)), rng.normal(size=12)
    models = [
        LKGPRegressor().fit(X, np.stack([y, -y], axis=1)),
        LKGPTableRegressor().fit(np.c_[X, np.arange(12) % 3], y),
    ]
    inputs = [X[:4], np.c_[X, np.arange(12) % 3][:4]]
    expected = [model.predict(some, return_std=True)[0] for model, some in zip(models, inputs, strict=True)]
    for name in ("variance", "draws", "predictors"):
        monkeypatch.setattr(f"lkgp.posterior.posterior.Posterior.{name}", None)
    for model, some, mean in zip(models, inputs, expected, strict=True):
        np.testing.assert_allclose(model.predict(some), mean, rtol=1e-10)
