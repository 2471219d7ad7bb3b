"""A stationary kernel over points of a lattice is its matrix, whichever points are present and in whatever order."""

import numpy as np
import pytest
import torch
from factor_checks import check_draws, check_gradients, check_is_matrix, dense_of, kernel_of
from gpytorch.kernels import LinearKernel

from lkgp import InputError
from lkgp.linalg.factors import lattice
from lkgp.linalg.regular import Lattice
from lkgp.model import Term

GRIDS = {
    "line": (np.arange(40) * 0.1,),
    "plane": (np.linspace(-1, 1, 7), 0.3 * np.arange(9) + 100.0),
    "space": (np.arange(4) * 0.5, np.arange(5) * 0.25, np.arange(3) * 1.0),
    "one row": (np.array([0.2]), np.arange(12) * 0.1),
}


def points_of(name, share=0.7, seed=0):
    """Some of the points of a grid, in random order, (n, d)."""
    whole = np.stack(np.meshgrid(*GRIDS[name], indexing="ij"), axis=-1).reshape(-1, len(GRIDS[name]))
    order = np.random.default_rng(seed).permutation(len(whole))
    return torch.as_tensor(whole[order[: max(1, int(share * len(whole)))]])


def lattice_factor(kernel, coords):
    return Term([kernel]).factor(0, coords, "lattice")


@pytest.mark.parametrize("name", GRIDS)
@pytest.mark.parametrize("kernel", ["0.5", "1.5", "rbf", "rq"])
@pytest.mark.parametrize("share", [1.0, 0.7])
def test_products_and_parts(name, kernel, share):
    coords = points_of(name, share)
    factor = lattice_factor(kernel_of(kernel), coords).detach()
    check_is_matrix(factor, dense_of(kernel, 0.7, coords))


def test_a_length_scale_for_every_column():
    coords = points_of("plane")
    factor = lattice_factor(kernel_of("1.5", (0.4, 0.9), dims=2), coords).detach()
    check_is_matrix(factor, dense_of("1.5", (0.4, 0.9), coords))
    check_draws(factor, dense_of("1.5", (0.4, 0.9), coords))


class Slanted:
    """A kernel that is stationary but changes if one axis alone is reflected."""

    stationary, kernel = True, None
    slope = torch.tensor([[1.0, 0.6], [0.0, 0.8]], dtype=torch.float64)

    @property
    def summands(self):
        return [self]

    def __call__(self, rows, columns):
        return torch.exp(
            -torch.cdist(rows @ self.slope, columns @ self.slope, compute_mode="donot_use_mm_for_euclid_dist")
        )


def test_nothing_but_stationarity_is_assumed():
    coords = points_of("plane")
    turned = coords.numpy() @ Slanted.slope.numpy()
    dense = dense_of("0.5", 1.0, turned) / dense_of("0.5", 1.0, turned)[0, 0]
    factor = lattice.LatticeFactor.of(Slanted(), coords)
    check_is_matrix(factor, dense)
    check_draws(factor, dense)


@pytest.mark.parametrize("name", GRIDS)
def test_gradients(name):
    check_gradients(lambda: kernel_of("1.5"), points_of(name), "lattice")
    check_gradients(lambda: kernel_of("rq"), points_of(name), "lattice")


def test_products_in_many_chunks_are_the_same(monkeypatch):
    coords = points_of("plane")
    monkeypatch.setattr("lkgp.linalg.factors.lattice.WORK_ENTRIES", 100)
    check_is_matrix(lattice_factor(kernel_of("0.5"), coords).detach(), dense_of("0.5", 0.7, coords))
    check_gradients(lambda: kernel_of("0.5"), coords, "lattice")


@pytest.mark.parametrize("name", GRIDS)
@pytest.mark.parametrize("kernel", ["0.5", "2.5"])
def test_draws_have_the_covariance(name, kernel):
    coords = points_of(name)
    factor = lattice_factor(kernel_of(kernel, 0.3), coords).detach()
    assert factor.noise_root().way.startswith("circulant embedding")
    check_draws(factor, dense_of(kernel, 0.3, coords))


def test_an_embedding_is_padded_until_it_is_positive():
    coords = points_of("plane")
    near, far = (lattice_factor(kernel_of("1.5", length), coords).detach() for length in (0.1, 1.2))
    assert far.noise_root().width > near.noise_root().width
    check_draws(far, dense_of("1.5", 1.2, coords))


def test_an_embedding_that_stays_negative_is_named_and_replaced():
    coords = points_of("plane")
    factor = lattice_factor(kernel_of("rbf", 30.0), coords).detach()
    root = factor.noise_root()
    assert root.way == "pivoted Cholesky factorisation, because the circulant embedding is not positive"
    check_draws(factor, dense_of("rbf", 30.0, coords))


def test_repeated_points_and_one_point():
    coords = points_of("plane")
    twice = torch.cat([coords, coords[:5]])
    factor = lattice_factor(kernel_of("0.5"), twice).detach()
    check_is_matrix(factor, dense_of("0.5", 0.7, twice))
    check_draws(factor, dense_of("0.5", 0.7, twice))
    single = lattice_factor(kernel_of("0.5"), coords[:1]).detach()
    check_is_matrix(single, dense_of("0.5", 0.7, coords[:1]))
    check_draws(single, dense_of("0.5", 0.7, coords[:1]))


def test_steps_are_found():
    found = Lattice.of(torch.tensor([[0.0], [2.0], [5.0], [9.0]], dtype=torch.float64), 100)
    assert found.shape == (10,)
    assert found.steps == pytest.approx((1.0,))
    assert found.index.tolist() == [0, 2, 5, 9]
    assert Lattice.of(torch.tensor([[0.0], [2.0], [5.0], [9.0]], dtype=torch.float64), 9) is None
    rounded = np.round(np.arange(500) * 0.0092739841 - 95.91152999, 8)
    assert Lattice.of(torch.as_tensor(rounded)[:, None], 1000).shape == (500,)
    single = torch.as_tensor(np.arange(3600) * 0.1, dtype=torch.float32).double()
    assert Lattice.of(single[:, None], 10**5).shape == (3600,)


def test_what_only_looks_regular_is_not():
    steps = torch.arange(100, dtype=torch.float64)
    bent = steps + 0.01 * torch.sin(steps)
    stretched = steps * (1 + 1e-4 * steps)
    scattered = torch.rand(100, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    for numbers in (bent, stretched, scattered):
        assert Lattice.of(numbers[:, None], 10_000) is None
        with pytest.raises(InputError, match="regular lattice"):
            lattice_factor(kernel_of("0.5"), numbers[:, None])
    with pytest.raises(InputError, match="stationary kernel"):
        lattice_factor(LinearKernel().double(), steps[:, None])


def test_it_is_chosen_where_it_pays(monkeypatch):
    monkeypatch.setattr(lattice, "LATTICE_PAYS", 30)
    coords = points_of("plane")
    assert Term([kernel_of("0.5")]).structures([coords]) == ("lattice",)
    assert Term([kernel_of("0.5")]).structures([coords[:20]]) == ("dense",)
    assert Term([kernel_of("0.5")]).structures([coords + 0.01 * torch.sin(coords * 50)]) == ("dense",)
    assert Term([LinearKernel().double()]).structures([coords]) == ("dense",)
