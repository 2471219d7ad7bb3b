"""The preconditioner block by block along an axis, against dense matrices."""

import numpy as np
import pytest
import torch
from gpytorch.kernels import ScaleKernel
from long_axes import condition, cycle, dense, inverse_and_root, matern, operator_of

from lkgp import InputError
from lkgp.linalg.lasting_modes import lasting_modes
from lkgp.linalg.preconditioners import SuccessiveBlocks
from lkgp.linalg.successive_blocks import GROUP, Succession, place_groups
from lkgp.linalg.triangular import inverse_from_cholesky, triangular_inverse

KERNELS = {
    "rough": lambda: ScaleKernel(matern(0.5, 4.0)),
    "smooth": lambda: ScaleKernel(matern(2.5, 6.0)),
    "with a cycle": lambda: ScaleKernel(matern(0.5, 4.0)) + cycle(6.0),
}


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("shape", [(5, 30), (3, 2, 24), (70,)], ids=str)
@pytest.mark.parametrize("irregular", [False, True])
def test_all_earlier_cells_make_it_exact(kernel, shape, irregular):
    operator = operator_of(shape, KERNELS[kernel](), irregular=irregular, known_noise=irregular)
    matrix = dense(operator)
    inverse = SuccessiveBlocks(last=shape[-1]).along(operator, len(shape) - 1)
    solved, covariance = inverse_and_root(inverse, len(matrix))
    # The rows are kept in single precision.
    np.testing.assert_allclose(solved @ matrix, np.eye(len(matrix)), atol=2e-3)
    np.testing.assert_allclose(covariance, matrix, atol=1e-4 * matrix.max())
    np.testing.assert_allclose(float(inverse.logdet), np.linalg.slogdet(matrix)[1], atol=1e-3)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("shape", [(6, 40), (GROUP + 9, 7)], ids=str)
def test_inverse_root_and_determinant_agree(kernel, shape):
    operator = operator_of(shape, KERNELS[kernel]())
    inverse = SuccessiveBlocks(last=1).along(operator, 1)
    n = operator.shape[0]
    solved, covariance = inverse_and_root(inverse, n)
    np.testing.assert_allclose(solved, solved.T, atol=1e-6 * np.abs(solved).max())
    np.testing.assert_allclose(solved @ covariance, np.eye(n), atol=1e-5)
    np.testing.assert_allclose(float(inverse.logdet), np.linalg.slogdet(covariance)[1], atol=1e-5 * n)
    # It is close to A: the eigenvalues of M^-1 A have mean 1.
    assert abs(np.trace(solved @ dense(operator)) / n - 1) < 0.05


@pytest.mark.parametrize("structure", ["dense", "toeplitz"])
def test_modes_hold_cycles(structure):
    """Without modes, the last cells know nothing of a cycle that started long before."""
    operator = operator_of((4, 400), ScaleKernel(matern(0.5, 3.0)) + cycle(40.0, keeps=4000.0), structure=structure)
    inverse = SuccessiveBlocks().along(operator, 1)
    assert 4 <= inverse.modes.rank <= 60
    with_modes, without = (condition(operator, SuccessiveBlocks(modes=most)) for most in (512, 1))
    assert 2 * with_modes < without


def test_modes_are_part_of_the_covariance():
    operator = operator_of((4, 256), ScaleKernel(matern(0.5, 3.0)) + cycle(32.0, keeps=3000.0), structure="toeplitz")
    others, factor = operator.factors[0].dense(), operator.factors[1]
    sets = lasting_modes(factor, others, 0.02, 512, 0).sets
    left = np.kron(others.numpy(), factor.dense().numpy())
    for one in sets:
        left -= np.kron((one.others @ one.others.mT).numpy(), (one.axis @ one.axis.mT).numpy())
    assert sets
    assert np.linalg.eigvalsh(left)[0] > -1e-9 * np.abs(left).max()


def test_blocks_look_back_beyond_a_gap():
    """Cell by cell, the last observed cells before a time, from the definition."""
    operator = operator_of((5, 20), KERNELS["rough"]())
    grid = operator.grid
    succession = Succession.of(grid, 1)
    (group,) = place_groups(np.zeros((5, 1)), last=2)
    _times, cells = succession.blocks(group, torch.arange(20))
    where = {int(cell): i for i, cell in enumerate(grid.index)}
    observed = grid.observed.numpy()
    for t in range(20):
        wanted = []
        for back in (1, 2):
            for place in range(5):
                seen = [s for s in range(t) if observed[place, s]]
                wanted.append(where[place * 20 + seen[-back]] if len(seen) >= back else grid.num_observed)
        wanted += [where.get(place * 20 + t, grid.num_observed) for place in range(5)]
        assert cells[t].tolist() == wanted


def test_groups_hold_every_place_once():
    rng = np.random.default_rng(0)
    groups = place_groups(rng.random((137, 2)), last=2)
    assert sorted(np.concatenate([group.own for group in groups])) == list(range(137))
    seen: set[int] = set()
    for group in groups:
        assert len(group.own) <= GROUP
        assert set(group.now) <= seen
        seen |= set(group.own)


def test_triangular_inverses():
    rng = np.random.default_rng(0)
    for size in (1, 7, 8, 9, 45):
        lower = np.tril(rng.standard_normal((3, size, size))) + 4 * np.eye(size)
        found = triangular_inverse(torch.as_tensor(lower + np.triu(np.full((size, size), 7.0), 1)))
        np.testing.assert_allclose(found.numpy() @ lower, np.broadcast_to(np.eye(size), lower.shape), atol=1e-9)


@pytest.mark.parametrize("threads", [1, 2])
def test_inverses_from_cholesky_factors(threads, monkeypatch):
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    root = np.tril(np.random.default_rng(0).standard_normal((3, 20, 20))) + 4 * np.eye(20)
    found = inverse_from_cholesky(torch.as_tensor(root)).numpy()
    np.testing.assert_allclose(found, np.linalg.inv(root @ root.transpose(0, 2, 1)), atol=1e-10)


def test_short_axes_are_refused():
    with pytest.raises(InputError, match="at least 256 points"):
        SuccessiveBlocks().build(operator_of((5, 20), KERNELS["rough"]()))
