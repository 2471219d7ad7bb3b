"""The filter along an axis, against dense matrices."""

import numpy as np
import pytest
import torch
from gpytorch.kernels import RBFKernel, RQKernel, ScaleKernel
from long_axes import condition, cycle, dense, inverse_and_root, matern, operator_of

from lkgp import InputError, KalmanFilter
from lkgp.linalg import filter_rows, state_filter
from lkgp.linalg.markov_processes import JointProcess, Process
from lkgp.linalg.preconditioners import kalman_filter
from lkgp.linalg.state_filter import BlockMotion

KERNELS = {
    "Matern-1/2": lambda: ScaleKernel(matern(0.5, 4.0)),
    "Matern-5/2": lambda: ScaleKernel(matern(2.5, 6.0)),
    "two scales": lambda: ScaleKernel(matern(0.5, 2.0) + ScaleKernel(matern(1.5, 9.0))),
    "two parts": lambda: ScaleKernel(matern(0.5, 2.0)) + ScaleKernel(matern(1.5, 9.0)),
}


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    """Several blocks, chunks and calls of everything that is done for some at a time."""
    monkeypatch.setattr(state_filter, "BLOCK_CELLS", 12)
    monkeypatch.setattr(state_filter, "BLOCKS_AT_ONCE", 3)
    monkeypatch.setattr(filter_rows, "CHUNK_NUMBERS", 300)
    monkeypatch.setattr(kalman_filter, "CELLS_AT_ONCE", 20)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("shape", [(5, 30), (3, 2, 24), (70,), (14, 9)], ids=str)
@pytest.mark.parametrize("irregular", [False, True])
def test_it_is_exact_for_matern_processes(kernel, shape, irregular):
    operator = operator_of(shape, KERNELS[kernel](), irregular=irregular, known_noise=irregular)
    matrix = dense(operator)
    inverse = KalmanFilter().along(operator, len(shape) - 1)
    solved, covariance = inverse_and_root(inverse, len(matrix))
    # All is in single precision.
    np.testing.assert_allclose(solved @ matrix, np.eye(len(matrix)), atol=1e-3)
    np.testing.assert_allclose(covariance, matrix, atol=1e-5 * matrix.max())
    np.testing.assert_allclose(float(inverse.logdet), np.linalg.slogdet(matrix)[1], atol=1e-3)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("irregular", [False, True])
def test_inverse_root_and_determinant_agree_with_a_cycle(kernel, irregular):
    operator = operator_of((4, 200), KERNELS[kernel]() + cycle(20.0, keeps=900.0), irregular=irregular)
    inverse = KalmanFilter().along(operator, 1)
    assert inverse.modes.rank > 4
    n = operator.shape[0]
    solved, covariance = inverse_and_root(inverse, n)
    np.testing.assert_allclose(solved, solved.T, atol=1e-5 * np.abs(solved).max())
    np.testing.assert_allclose(solved @ covariance, np.eye(n), atol=2e-4)
    np.testing.assert_allclose(float(inverse.logdet), np.linalg.slogdet(covariance)[1], atol=1e-4 * n)
    # M <= A
    left = np.linalg.eigvalsh(dense(operator) - covariance)
    assert left[0] > -1e-5 * np.abs(covariance).max() * n


def test_it_is_closer_with_more_modes():
    operator = operator_of((4, 400), ScaleKernel(matern(0.5, 3.0)) + cycle(40.0, keeps=4000.0))
    with_modes, without = (condition(operator, KalmanFilter(modes=most)) for most in (512, 1))
    assert with_modes < 2
    assert 10 * with_modes < without


def test_half_precision_is_nearly_as_good(monkeypatch):
    operator = operator_of((5, 60), KERNELS["two parts"]())
    monkeypatch.setattr(filter_rows, "MOST_SINGLE_NUMBERS", 0)
    matrix = dense(operator)
    inverse = KalmanFilter().along(operator, 1)
    assert inverse.rows.half
    # M <= A holds up to rounding only.
    assert not inverse.below
    solved, covariance = inverse_and_root(inverse, len(matrix))
    np.testing.assert_allclose(solved @ covariance, np.eye(len(matrix)), atol=2e-4)
    np.testing.assert_allclose(float(inverse.logdet), np.linalg.slogdet(covariance)[1], atol=1e-4 * len(matrix))
    np.testing.assert_allclose(covariance, matrix, atol=5e-3 * matrix.max())


def test_uneven_noise_is_not_kept_in_half_precision(monkeypatch):
    monkeypatch.setattr(filter_rows, "MOST_SINGLE_NUMBERS", 0)
    operator = operator_of((5, 60), KERNELS["two parts"](), known_noise=True)
    assert KalmanFilter().along(operator, 1).rows.half
    monkeypatch.setattr(filter_rows, "LARGE_RATIO", 50.0)
    assert not KalmanFilter().along(operator, 1).rows.half


@pytest.mark.parametrize("ratio", [1e10, 1.0])
def test_the_precision_follows_the_noise(ratio, monkeypatch):
    monkeypatch.setattr(filter_rows, "LARGE_RATIO", ratio)
    operator = operator_of((5, 60), KERNELS["Matern-5/2"]())
    inverse = KalmanFilter().along(operator, 1)
    solved, _ = inverse_and_root(inverse, operator.shape[0])
    error = np.abs(solved @ dense(operator) - np.eye(len(solved))).max()
    assert (error < 1e-10) == (ratio == 1.0)


def test_columns_of_any_size_are_solved_for():
    operator = operator_of((5, 30), KERNELS["Matern-1/2"]())
    inverse = KalmanFilter().along(operator, 1)
    columns = torch.randn(operator.shape[0], 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    scales = torch.tensor([1e-60, 1.0, 1e60], dtype=torch.float64)
    expected = np.linalg.solve(dense(operator), columns.numpy())
    np.testing.assert_allclose((inverse.solve(columns * scales) / scales).numpy(), expected, atol=1e-3)


def test_motion_of_a_joint_process():
    """What blocks are told by times alone, against the joint covariance of states, from the definition."""
    process = JointProcess([Process(1, 0.7, 0.5), Process(3, 1.3, 0.2)])
    times = torch.tensor([[1.0, 1.5, 4.0], [4.0, 4.0, 9.0]], dtype=torch.float64)
    before = torch.tensor([1.0, 4.0], dtype=torch.float64)
    motion = BlockMotion.of(process, times, before)
    e, known = process.readout, process.stationary
    for k in range(2):
        # x at the end, f at the times, given x_0: Cov(x_s, x_t) = A(s - t) S for s >= t
        last, seen = times[k, -1], times[k]
        cov_f = process.covariance((seen[:, None] - seen).abs())
        from_start = torch.stack([process.transitions(t - before[k]) @ known for t in seen])
        f_start = e @ from_start  # (3, p)
        to_end = torch.stack([process.transitions(last - t) @ known @ e for t in seen], dim=1)
        end_start = process.transitions(last - before[k]) @ known
        inverse = torch.linalg.inv(known)
        np.testing.assert_allclose(motion.reads[k], f_start @ inverse, atol=1e-10)
        np.testing.assert_allclose(motion.within[k], cov_f - f_start @ inverse @ f_start.mT, atol=1e-10)
        np.testing.assert_allclose(motion.ahead[k], to_end - end_start @ inverse @ f_start.mT, atol=1e-10)
        np.testing.assert_allclose(motion.added[k], known - end_start @ inverse @ end_start.mT, atol=1e-10)


@pytest.mark.parametrize("kernel", [RBFKernel, RQKernel])
def test_other_kernels_are_refused(kernel):
    with pytest.raises(InputError, match="needs a Matern kernel"):
        KalmanFilter().along(operator_of((5, 20), ScaleKernel(kernel())), 1)


def test_short_axes_and_too_many_places_are_refused(monkeypatch):
    with pytest.raises(InputError, match="long axis"):
        KalmanFilter().build(operator_of((5, 20), KERNELS["Matern-1/2"]()))
    monkeypatch.setattr(kalman_filter, "MOST_STATES", 9)
    with pytest.raises(InputError, match="have 10 numbers, at most 9"):
        KalmanFilter().build(operator_of((5, 300), ScaleKernel(matern(1.5, 4.0))))
