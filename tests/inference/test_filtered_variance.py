"""Error bars of a filter and modes along an axis, against dense matrices."""

import numpy as np
import pytest
import torch
from gpytorch.kernels import ScaleKernel
from long_axes import cycle, matern

from lkgp import KalmanFilter, LatentKroneckerGP, ObservationSpace, from_array
from lkgp.errors import ConvergenceError
from lkgp.inference import filtered_variance as filtered
from lkgp.inference.base import Plan
from lkgp.inference.observation_space import ObservationSystem
from lkgp.linalg import state_filter
from lkgp.linalg.lasting_modes import lasting_modes
from lkgp.linalg.leftover import leftover_draws
from lkgp.linalg.state_smoother import smoothed_variances
from lkgp.posterior import condition
from lkgp.solvers import Reason, Solution

NOISE = 0.05


def rough():
    return ScaleKernel(matern(0.5, 4.0))


def two_scales():
    return ScaleKernel(matern(0.5, 2.0) + ScaleKernel(matern(2.5, 9.0)))


class Case:
    """Places x 300 times, or times x places, with gaps that all places share, and the dense posterior."""

    def __init__(self, kernel, *, irregular=False, times_first=False, known_noise=False, modes=512, noise=NOISE):
        rng = np.random.default_rng(3)
        times = np.sort(rng.uniform(0, 300, 300)) if irregular else np.arange(300.0)
        coords = [rng.random((4, 2)), times[:, None]]
        y = rng.standard_normal((4, 300))
        y[rng.random(y.shape) < 0.3] = np.nan
        y[1:, 100:160] = np.nan
        kernels = [matern(1.5, 0.5), kernel]
        if times_first:
            coords, y, kernels = coords[::-1], y.T, kernels[::-1]
        variances = 10.0 ** rng.uniform(-2, 0, y.shape) if known_noise else None
        self.data = from_array(coords, y, noise_variance=variances)
        self.model = LatentKroneckerGP([k.double() for k in kernels], noise=noise).double()
        whole = from_array(coords, np.zeros(y.shape))
        with torch.no_grad():
            prior = self.model.covariance(whole, ["dense", "dense"]).detach().latent_rows(torch.arange(1200)).numpy()
            diagonal = self.model.noise_diagonal(self.data).numpy()
        index = self.data.grid.index.numpy()
        matrix = prior[np.ix_(index, index)] + np.diag(diagonal)
        self.matrix = matrix
        self.exact = np.diag(prior) - (prior[:, index] * np.linalg.solve(matrix, prior[index]).T).sum(axis=1)
        plan = Plan(ObservationSpace(preconditioner=KalmanFilter(modes=modes)), "")
        self.posterior = condition(self.model, self.data, plan)

    def standard_deviations(self):
        return self.posterior.variance(self.data.grid.coords).sqrt().flatten().numpy()

    def misses(self):
        """How far standard deviations are off, relative to the exact ones."""
        return np.abs(self.standard_deviations() / np.sqrt(self.exact) - 1)


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    monkeypatch.setattr(state_filter, "BLOCK_CELLS", 24)
    monkeypatch.setattr(state_filter, "BLOCKS_AT_ONCE", 4)


@pytest.mark.parametrize("kernel", [rough, two_scales])
@pytest.mark.parametrize("kind", [{}, {"irregular": True}, {"times_first": True}, {"known_noise": True}], ids=" ".join)
def test_matern_processes_alone_are_exact(kernel, kind):
    case = Case(kernel(), **kind)
    assert case.misses().max() < 1e-6
    assert case.posterior.variance_source.startswith("exact along")
    assert case.posterior.variance_error == 0


KINDS = pytest.mark.parametrize("kind", [{}, {"irregular": True}, {"times_first": True}], ids=" ".join)


@KINDS
def test_modes_that_leave_little_need_no_solves(kind, monkeypatch):
    monkeypatch.setattr("lkgp.linalg.lasting_modes.POINTS_PER_MODE", 10)
    case = Case(rough() + cycle(20.0, 900.0), **kind)
    monkeypatch.setattr(ObservationSystem, "solve_to", None)
    # 99 % of the cells do not exceed one standard error of the worst; three hold for nearly all of them
    assert case.misses().max() < 3 * case.posterior.variance_error
    assert case.posterior.variance_error < 0.01
    assert "samples" not in case.posterior.variance_source


@KINDS
@pytest.mark.parametrize("keeps", [900.0, 150.0])
def test_bounds_hold(kind, keeps):
    """With so many draws that their scatter hides nothing."""
    case = Case(rough() + cycle(20.0, keeps), **kind)
    inverse, generator = case.posterior.system.inverse, torch.Generator().manual_seed(0)
    markov = filtered._markov_factors(inverse)
    smooth = filtered._on_grid(smoothed_variances(inverse.filter)[:300, :, None], inverse)[..., 0]
    by_modes, error = filtered._variance_of_modes(inverse, markov, smooth, 64, generator)
    assert float(error.max()) == 0
    lower = (smooth + by_modes).flatten().numpy()
    left = filtered._left(inverse, 512, generator)
    gap = filtered._unexplained(inverse, markov, left).square().mean(dim=-1).flatten().numpy()
    assert gap.max() > 1e-3 * case.exact.max()
    assert (lower <= case.exact * (1 + 1e-6)).all()
    assert (case.exact <= lower + 1.3 * gap).all()
    # and between them, given the data
    precision = torch.as_tensor(case.matrix).inverse()

    def solve(rhs):
        return Solution(precision @ rhs, rhs[0] * 0, 1, 1, Reason.CONVERGED, 1e-9)

    given, failure = filtered._left_given_data(inverse, markov, solve, 512, generator)
    assert not failure
    added = filtered._unexplained(inverse, markov, given).square().mean(dim=-1).flatten().numpy()
    ratio = (case.exact - lower + 1e-3 * case.exact) / (added + 1e-3 * case.exact)
    assert 0.7 < ratio.min() < ratio.max() < 1.4
    assert abs(np.median(ratio) - 1) < 0.05


@pytest.mark.parametrize("keeps", [900.0, 150.0])
def test_wide_bounds_are_narrowed_by_samples(keeps):
    """Nothing that lasts is held in modes, so the bounds are far apart."""
    case = Case(rough() + cycle(20.0, keeps), modes=1)
    misses = case.misses()
    assert "posterior samples" in case.posterior.variance_source
    stated = case.posterior.variance_error
    assert 0.003 < stated < 0.0884
    assert np.quantile(misses, 0.95) < 2 * stated


def test_few_draws_of_many_modes_scatter_as_stated(monkeypatch):
    case = Case(rough() + cycle(20.0, 900.0))
    inverse = case.posterior.system.inverse
    assert inverse.modes.rank > 8
    markov = filtered._markov_factors(inverse)
    none = torch.zeros(case.data.grid.shape, dtype=torch.float64)
    exact, _ = filtered._variance_of_modes(inverse, markov, none, 8, torch.Generator())
    monkeypatch.setattr(filtered, "MODE_DRAWS", (4,))
    found = [
        filtered._variance_of_modes(inverse, markov, none, 8, torch.Generator().manual_seed(seed)) for seed in range(60)
    ]
    values, errors = (torch.stack([one[i] for one in found]) for i in (0, 1))
    deviation = values.std(dim=0)
    assert float(((values.mean(dim=0) - exact).abs() < 4 * deviation / 60**0.5).double().mean()) > 0.98
    assert 0.7 < float((deviation / errors.mean(dim=0)).median()) < 1.4


def test_more_draws_of_modes_are_made_until_they_are_enough(monkeypatch):
    monkeypatch.setattr("lkgp.linalg.lasting_modes.POINTS_PER_MODE", 10)
    case = Case(rough() + cycle(20.0, 900.0))
    inverse = case.posterior.system.inverse
    assert 32 < inverse.modes.rank < 512
    # Beside nothing, all scatter matters, so that all modes are taken in turn; beside much, few draws will do.
    shape, none = case.data.grid.shape, torch.Generator()
    for size, exact in ((0.0, True), (1e3, False)):
        others = torch.full(shape, size, dtype=torch.float64)
        monkeypatch.setattr(filtered, "MODE_DRAWS", (4, 8, 16, 512))
        _, error = filtered._variance_of_modes(inverse, filtered._markov_factors(inverse), others, 8, none)
        assert (float(error.max()) == 0) == exact


def test_rounding_is_far_below_the_stated_error_with_little_noise(monkeypatch):
    """Beside a smooth process, single precision would be off by more than the standard deviation."""
    monkeypatch.setattr("lkgp.linalg.lasting_modes.POINTS_PER_MODE", 10)
    case = Case(ScaleKernel(matern(2.5, 30.0)) + cycle(20.0, 900.0), noise=1e-6)
    assert case.posterior.system.inverse.rows.dtype == torch.float64
    assert np.quantile(case.misses(), 0.95) < 2 * case.posterior.variance_error


def test_solves_that_do_not_converge_are_said():
    method = ObservationSpace(preconditioner=KalmanFilter(modes=1), max_iterations=1, num_samples=8)
    case = Case(rough() + cycle(20.0, 900.0))
    posterior = condition(case.model, case.data, Plan(method, ""))
    with pytest.warns(match="error bars did not converge"):
        posterior.variance(case.data.grid.coords)
    with pytest.raises(ConvergenceError, match="error bars did not converge"):
        posterior.variance(case.data.grid.coords, strict=True)


def test_a_cell_with_a_huge_noise_does_not_mask_the_others():
    case = Case(rough() + cycle(20.0, 900.0))
    y = np.full(case.data.grid.shape, np.nan)
    y.flat[case.data.grid.index.numpy()] = case.data.values.numpy()
    noise = np.full(y.shape, NOISE)
    noise[0, 0] = 1e8
    data = from_array(list(case.data.grid.coords), y, noise_variance=noise)
    found = KalmanFilter().build(case.model.covariance(data).detach())
    assert found.modes.rank == case.posterior.system.inverse.modes.rank


def test_new_points_are_estimated_by_draws():
    case = Case(rough())
    later = [case.data.grid.coords[0], torch.tensor([[301.0], [310.5]], dtype=torch.float64)]
    case.posterior.variance(case.data.grid.coords)
    case.posterior.variance(later)
    assert "; at new points from" in case.posterior.variance_source


def test_draws_of_what_is_left_have_its_covariance():
    rng = np.random.default_rng(0)
    data = from_array([rng.random((3, 2)), np.arange(256.0)[:, None]], rng.standard_normal((3, 256)))
    kernel = rough() + cycle(16.0, 400.0)
    model = LatentKroneckerGP([matern(1.5, 0.5).double(), kernel.double()], noise=NOISE).double()
    with torch.no_grad():
        operator = model.covariance(data, ["dense", "dense"]).detach()
    places = operator.factors[0].dense()
    lasting = lasting_modes(operator.factors[1], places, NOISE, 20, 0, except_processes=True)
    (part,) = lasting.parts
    left = np.kron(part.dense().numpy(), places.numpy())
    for one in lasting.sets:
        left -= np.kron((one.axis @ one.axis.mT).numpy(), (one.others @ one.others.mT).numpy())
    draws = leftover_draws(lasting, 4000, torch.Generator().manual_seed(0)).flatten(0, 1).numpy()
    found = draws @ draws.T / 4000
    scale = np.sqrt(np.outer(np.diag(left), np.diag(left)))
    assert 0.05 < np.diag(left).max() / np.kron(np.diag(part.dense().numpy()), np.diag(places.numpy())).max() < 0.95
    assert np.abs((found - left) / scale).max() < 0.12
