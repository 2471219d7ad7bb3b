"""The choice among kernels by the likelihood of parts of the data."""

import numpy as np
import pytest
import torch
from gpytorch.kernels import MaternKernel, RQKernel, ScaleKernel
from oracle import Oracle, matern, rational_quadratic

from lkgp import BFGS, LKGP
from lkgp.data.readers import from_array
from lkgp.fitting import parts as parts_module
from lkgp.fitting.composite import Composite, maximise
from lkgp.fitting.parts import make_parts
from lkgp.fitting.smoothness import Form, choose_forms
from lkgp.model import LatentKroneckerGP, learned_noise


def field(nus, lengths, sizes=(30, 40), noise=0.02, missing=0.3, seed=0):
    """A draw of a product of Matern processes over random points, with gaps: coordinates and values."""
    rng = np.random.default_rng(seed)
    coords = [np.sort(rng.random((n, 1)) * 10, axis=0) for n in sizes]
    roots = [
        np.linalg.cholesky(matern(x, x, length, nu) + 1e-9 * np.eye(len(x)))
        for x, length, nu in zip(coords, lengths, nus, strict=True)
    ]
    values = rng.standard_normal(sizes)
    for axis, root in enumerate(roots):
        values = np.moveaxis(np.tensordot(root, values, axes=(1, axis)), 0, axis)
    values = values + noise**0.5 * rng.standard_normal(sizes)
    values[rng.random(sizes) < missing] = np.nan
    return coords, values


def forms(scaled):
    """Three smoothnesses and a rational quadratic kernel."""
    cores = {f"{nu}": MaternKernel(nu=nu) for nu in (1.5, 0.5, 2.5)} | {"rq": RQKernel()}
    return [Form(name, ScaleKernel(core) if scaled else core, core) for name, core in cores.items()]


def blank(width):
    kernels = [ScaleKernel(MaternKernel()), *(MaternKernel() for _ in range(width - 1))]
    return LatentKroneckerGP(kernels, noise=learned_noise(0.05)).double()


def test_the_composite_likelihood_is_the_sum_over_dense_parts(monkeypatch):
    monkeypatch.setattr(parts_module, "PART_OBSERVATIONS", 50)
    coords, values = field((1.5, 0.5), (2.0, 3.0))
    data = from_array(coords, values)
    found = make_parts(data, seed=3)
    assert len(found.parts) > 2
    assert len({part.grid.num_observed for part in found.parts}) > 1
    model = LatentKroneckerGP([ScaleKernel(MaternKernel(nu=1.5)), RQKernel()], noise=learned_noise(0.05)).double()
    composite = Composite(found.parts, data)
    expected = 0.0
    for part in found.parts:
        y = part.grid.scatter(part.values, fill=torch.nan).view(part.grid.shape).numpy()
        scale, space, time = model.kernels[0].outputscale.item(), model.kernels[0].base_kernel, model.kernels[1]
        kernels = [
            lambda x, z, s=scale, k=space: s * matern(x, z, k.lengthscale.item(), 1.5),
            lambda x, z, k=time: rational_quadratic(x, z, k.lengthscale.item(), k.alpha.item()),
        ]
        oracle = Oracle(kernels, [x.numpy() for x in part.grid.coords], y, model.noise_variance().item(), 0.0)
        expected += oracle.log_likelihood()
    assert composite.value(model) == pytest.approx(expected, rel=1e-9)
    # The gradient against finite differences.
    assert composite.value_and_gradient(model) == pytest.approx(expected, rel=1e-9)
    for p in [p for p in model.parameters() if p.requires_grad]:
        gradient, step = p.grad.item(), 1e-5
        p.data += step
        above = composite.value(model)
        p.data -= 2 * step
        below = composite.value(model)
        p.data += step
        assert gradient == pytest.approx((above - below) / (2 * step), rel=1e-4, abs=1e-4)


def test_the_best_scale_is_better_than_its_neighbours():
    coords, values = field((1.5, 0.5), (2.0, 3.0), sizes=(12, 15))
    data = from_array(coords, values)
    composite, model = Composite(make_parts(data, 0).parts, data), blank(2)
    value, scale, noise = composite.best_scale(model, [0.1])
    assert noise / scale == pytest.approx(0.1 * model.kernels[0].outputscale.item() / model.noise_variance().item())

    def at(factor):
        trial = blank(2)
        trial.kernels[0].outputscale = trial.kernels[0].outputscale.item() * scale * factor
        trial.noise.likelihood.noise = trial.noise_variance().item() * noise * factor
        return composite.value(trial)

    assert at(1.0) == pytest.approx(value, abs=1e-5)
    assert at(1.0) > max(at(0.9), at(1.1))


def test_parts_hold_near_and_far_pairs_and_repeat_with_the_seed():
    rng = np.random.default_rng(0)
    places, times = rng.random((900, 2)), np.arange(60.0)
    values = np.where(rng.random((900, 60)) < 0.5, rng.standard_normal((900, 60)), np.nan)
    data = from_array([places, times], values)
    first, again, other = (make_parts(data, seed) for seed in (0, 0, 1))
    assert not first.whole
    assert first.observations <= data.grid.num_observed
    for one, two in zip(first.parts, again.parts, strict=True):
        assert torch.equal(one.values, two.values)
    assert any(a.values.shape != b.values.shape or not torch.equal(a.values, b.values)
               for a, b in zip(first.parts, other.parts, strict=True))  # fmt: skip
    assert all(part.grid.num_observed <= parts_module.PART_OBSERVATIONS for part in first.parts)
    extents = [float((part.grid.coords[0].amax(0) - part.grid.coords[0].amin(0)).max()) for part in first.parts]
    assert min(extents) < 0.25
    assert max(extents) > 0.8
    steps = [float(part.grid.coords[1].diff(dim=0).median()) for part in first.parts]
    assert min(steps) == 1.0
    assert max(steps) > 1.0
    # Every value is that of its own cell.
    part = first.parts[5]
    for value, i, j in zip(part.values, *part.grid.axis_index, strict=True):
        place = int(np.flatnonzero((places == part.grid.coords[0][i].numpy()).all(axis=1))[0])
        assert float(value) == values[place, int(part.grid.coords[1][j])]
    assert make_parts(from_array([places[:20], times[:10]], values[:20, :10]), 0).whole


@pytest.mark.parametrize("truth", [(0.5, 2.5), (2.5, 0.5)])
def test_the_smoothness_along_each_factor_is_found(truth):
    coords, values = field(truth, (2.0, 2.0), sizes=(24, 30), noise=1e-3)
    data = from_array(coords, values / np.nanstd(values))
    found = choose_forms(blank(2), [forms(True), forms(False)], data, seed=0)
    for factor, nu in enumerate(truth):
        worth = {trial.name: trial.worth for trial in found.comparisons[factor].trials}
        assert worth[str(nu)] > worth[str(3.0 - nu)] + 10
        best = found.comparisons[factor].trials[0]
        assert best.worth == max(worth.values())
        assert best.worth < best.nats
        core = found.model.kernels[factor]
        core = core.base_kernel if factor == 0 else core
        assert best.name == ("rq" if isinstance(core, RQKernel) else str(core.nu))


def test_a_factor_without_forms_keeps_its_kernel():
    coords, values = field((0.5, 1.5), (2.0, 2.0), sizes=(20, 20))
    model = blank(2)
    model.kernels[1].nu = 2.5
    found = choose_forms(model, [forms(True), []], from_array(coords, values), seed=0)
    assert [one.factor for one in found.comparisons] == [0]
    assert found.model.kernels[1].nu == 2.5
    assert model.kernels[1].lengthscale.item() != found.model.kernels[1].lengthscale.item()


def test_a_search_stays_where_the_likelihood_cannot_be_computed():
    coords, values = field((0.5, 1.5), (2.0, 2.0), sizes=(10, 10))
    data, model = from_array(coords, values), blank(2)
    model.kernels[0].base_kernel.raw_lengthscale.data.fill_(torch.nan)
    assert maximise(Composite([data], data), model).value == -np.inf


def test_a_fit_begins_at_given_values_or_keeps_them():
    coords, values = field((0.5, 1.5), (2.0, 2.0), sizes=(20, 20))
    kernels = [ScaleKernel(MaternKernel(nu=0.5)), MaternKernel(nu=1.5)]
    kept = LKGP(kernels, optimizer=BFGS(fitted_on=300, sufficient_observations=300)).fit(coords, values)
    assert "kept, fitted on 300 of the observations" in kept.report_.fit
    assert kept.report_.converged
    assert kept.model_.kernels[1].lengthscale.item() == pytest.approx(kernels[1].lengthscale.item())
    searched = LKGP(kernels, optimizer=BFGS(fitted_on=300)).fit(coords, values)
    assert not any("starting values" in note for note in searched.report_.notes)
    assert searched.report_.log_likelihood > kept.report_.log_likelihood


@pytest.mark.parametrize("width", [1, 2, 3])
def test_the_information_is_that_of_the_dense_parts(width, monkeypatch):
    monkeypatch.setattr(parts_module, "PART_OBSERVATIONS", 50)
    monkeypatch.setattr(parts_module, "WHOLE", 60)
    sizes = {1: (300,), 2: (15, 20), 3: (5, 8, 7)}[width]
    data = from_array(*field((1.5,) * width, (2.0,) * width, sizes))
    parts = make_parts(data, seed=3).parts
    assert len({part.grid.num_observed for part in parts}) > 1 or width != 2
    model, composite = blank(width), Composite(parts, data)
    parameters = [p for p in model.parameters() if p.requires_grad]

    def dense(part):
        cells = part.grid.index.numpy()
        found = np.ones((1, 1))
        for kernel, x in zip(model.kernels, part.grid.coords, strict=True):
            found = np.kron(found, kernel(x).to_dense().detach().numpy())
        return found[np.ix_(cells, cells)] + model.noise_variance().item() * np.eye(len(cells))

    expected = 0.0
    for part in composite.coarse.parts:
        covariance, y = dense(part), part.values.numpy()
        weights, columns, means = np.linalg.solve(covariance, y), [], []
        for p in parameters:
            p.data += 1e-5
            above = dense(part)
            p.data -= 2e-5
            columns.append((above - dense(part)) / 2e-5 @ weights)
            p.data += 1e-5
            means.append(any(p is one for one in model.mean.parameters()))
        found = 0.5 * np.stack(columns) @ np.linalg.solve(covariance, np.stack(columns, axis=1))
        found[means.index(True), means.index(True)] = np.linalg.inv(covariance).sum()
        expected += found / max(1.0, y @ weights / len(y))
    expected *= composite.num_observed / composite.coarse.num_observed
    found = composite.information(model, parameters).numpy()
    np.testing.assert_allclose(found, expected, atol=1e-3 * np.abs(expected).max())
