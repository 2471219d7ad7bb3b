"""Smooth, nearly noise-free data: covariances that cancel, tiny error bars, and what cannot be computed."""

import warnings

import numpy as np
import pytest
import torch
from gpytorch.kernels import LinearKernel, MaternKernel, ScaleKernel
from oracle import Oracle, matern52

from lkgp import LKGP, ConvergenceError, ConvergenceWarning, Direct, ObservationSpace, Spectral

X, T = np.linspace(0, 1, 12), np.linspace(0, 1, 9)
NEW = [X[::3] + 0.02, T[::2] + 0.01]
WAYS = [Direct(), Spectral(), ObservationSpace()]


def smooth(seed=0, share=0.1):
    """sin(3 x) cos(2 t) with gaps at random, (12, 9)."""
    Y = np.sin(3 * X)[:, None] * np.cos(2 * T)
    Y[np.random.default_rng(seed).random(Y.shape) < share] = np.nan
    return Y


def kernels(scale, lengths):
    """Matern-5/2 kernels with values that are not rounded to single precision."""
    first, second = ScaleKernel(MaternKernel(nu=2.5)).double(), MaternKernel(nu=2.5).double()
    first.outputscale = torch.tensor(scale, dtype=torch.float64)
    first.base_kernel.lengthscale, second.lengthscale = (torch.tensor(x, dtype=torch.float64) for x in lengths)
    return [first, second]


def column(points):
    return np.asarray(points)[:, None]


def fixed(scale, lengths, noise, **settings):
    """A model with given hyperparameters, and its dense twin."""
    Y = smooth()
    gp = LKGP(kernels=kernels(scale, lengths), mean=0.0, standardize=False, **settings)
    gp.fit([X, T], Y, noise_variance=noise, optimize=False)
    first = lambda x, z: scale * matern52(x, z, lengths[0])  # noqa: E731
    second = lambda x, z: matern52(x, z, lengths[1])  # noqa: E731
    return gp, Oracle([first, second], [column(X), column(T)], Y, noise)


def relative(found, expected):
    """The largest error of covariances, (c, c), in units of the standard deviations of their cells."""
    scale = np.sqrt(np.diag(expected))
    return np.abs((found - expected) / scale / scale[:, None]).max()


@pytest.mark.parametrize("way", WAYS, ids=lambda way: type(way).__name__)
def test_covariances_that_cancel_to_seven_digits(way):
    gp, oracle = fixed(30.0, (4.0, 6.5), np.full((12, 9), 1e-6), solver=way)
    new = [column(points) for points in NEW]
    found, expected = gp.covariance(NEW), oracle.covariance_at(new)
    assert np.diag(expected).max() < 1e-4
    assert relative(found, expected) < 0.02
    rows = [grid.ravel() for grid in np.meshgrid(*NEW, indexing="ij")]
    mean, std = gp.predict_rows(rows)
    np.testing.assert_allclose(std**2, np.diag(expected), rtol=0.02)
    assert np.abs(mean - oracle.mean_at(new).ravel()).max() < 0.02 * std.min()


@pytest.mark.parametrize("seed", range(4))
def test_a_fit_to_smooth_data_has_positive_variances_everywhere(seed):
    gp = LKGP().fit([X, T], smooth(seed, 0.05))
    variances = np.diag(gp.covariance(NEW))
    np.testing.assert_allclose(variances, gp.predict(NEW)[1].ravel() ** 2, rtol=1e-3)


def test_the_mean_is_accurate_beside_error_bars_of_very_different_size():
    noise = 10.0 ** np.random.default_rng(1).uniform(-10, -4, (12, 9))
    gp, oracle = fixed(1.0, (0.8, 1.0), noise, solver=Direct())
    mean, std = gp.predict()
    expected = oracle.mean_at([column(X), column(T)])
    assert np.abs((mean - expected) / std).max() < 0.01


def test_variances_below_the_rounding_error_are_bounds_and_are_told():
    with pytest.warns(ConvergenceWarning, match="rounding errors stopped the progress; raise the noise"):
        gp, _ = fixed(1e9, (100.0, 100.0), np.full((12, 9), 1e-6), solver=Direct())
    assert gp.report_.residuals.max() <= 1  # never worse than the prior mean
    floor = 64 * np.finfo(float).eps * 1e9
    for ask in (lambda: gp.predict(NEW)[1] ** 2, lambda: np.diag(gp.covariance(NEW))):
        with pytest.warns(ConvergenceWarning, match="rounding errors .*; raise the noise, or lower the kernels'"):
            assert (ask() >= floor * (1 - 1e-12)).all()
    strict, _ = fixed(100.0, (4.0, 6.0), np.full((12, 9), 0.03), solver=Direct(), strict=True, dtype=torch.float32)
    with pytest.raises(ConvergenceError, match=r"upper bounds; use float64\."):
        strict.predict(NEW)


def test_a_fit_to_a_plane_ends_where_variances_can_be_computed():
    """The likelihood of a plane grows without end with the length and output scales."""
    rng = np.random.default_rng(0)
    points, steps = rng.random((12, 2)), np.arange(1.0, 6)
    for noise in (0.0, 1e-3):
        Y = points.sum(axis=1)[:, None] + steps + noise * rng.standard_normal((12, 5))
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            gp = LKGP().fit([points, steps], Y)
            variances = np.diag(gp.covariance())
            mean, std = gp.predict()
        assert gp.report_.converged
        assert any("the prior variance was held near" in note for note in gp.report_.notes)
        # A posterior variance at an observed cell is below the noise variance.
        assert (variances < gp.noise_variance_).all()
        np.testing.assert_allclose(std.ravel() ** 2, variances, rtol=0.02)
        assert np.abs(mean - Y).max() < 5 * np.sqrt(gp.noise_variance_)


def test_ordinary_fits_are_not_held():
    rng = np.random.default_rng(3)
    Y = smooth() + 0.1 * rng.standard_normal((12, 9))
    assert not any("was held" in note for note in LKGP().fit([X, T], Y).report_.notes)


def far_from_the_model(noise):
    """Two sloped factors, and values that have nothing to do with planes."""
    Y = smooth()
    Y += np.random.default_rng(3).standard_normal(Y.shape)
    first, second = ScaleKernel(LinearKernel()).double(), LinearKernel().double()
    first.outputscale, second.variance = torch.tensor(10.0, dtype=torch.float64), torch.tensor([[1.0]]).double()
    first.base_kernel.variance = torch.tensor([[1.0]]).double()
    gp = LKGP(kernels=[first, second], mean=0.0, standardize=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        gp.fit([X, T], Y, noise_variance=np.full(Y.shape, noise), optimize=False)
    sloped = lambda scale: lambda x, z: scale * x @ z.T  # noqa: E731
    return gp, Oracle([sloped(10.0), sloped(1.0)], [column(X), column(T)], Y, noise)


def test_rounding_errors_of_the_mean_are_told_where_values_are_not_expected():
    gp, _ = far_from_the_model(noise=1e-10)
    rows = [np.array([0.5, 0.52]), np.array([0.25, 0.26])]
    for ask in (gp.predict, lambda: gp.predict(NEW), lambda: gp.covariance(NEW), lambda: gp.predict_rows(rows)):
        with pytest.warns(ConvergenceWarning, match="rounding errors of the mean matter: .*raise the noise, or fit"):
            ask()


def test_a_mean_without_that_warning_is_accurate():
    gp, oracle = far_from_the_model(noise=1e-5)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        mean, std = gp.predict(NEW)
    assert np.abs((mean - oracle.mean_at([column(points) for points in NEW])) / std).max() < 0.01
