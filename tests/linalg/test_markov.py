"""Matern kernels over one column are their matrices, at regular, irregular, unsorted and repeated times."""

import numpy as np
import pytest
import torch
from factor_checks import check_draws, check_gradients, check_is_matrix, dense_of, kernel_of
from gpytorch.kernels import AdditiveKernel, ProductKernel

from lkgp import InputError
from lkgp.linalg.factors import markov
from lkgp.model import Term

RANDOM = np.random.default_rng(0)
TIMES = {
    "regular": np.linspace(-2, 5, 150),
    "irregular": np.sort(RANDOM.exponential(0.1, 150).cumsum()),
    "unsorted": RANDOM.uniform(0, 5, 150),
    "repeated": np.repeat(RANDOM.uniform(0, 5, 50), 3),
    "a long gap": np.concatenate([np.linspace(0, 1, 70), np.linspace(1e6, 1e6 + 1, 70)]),
    "within one block": np.linspace(0, 2, 20),
    "one point": np.array([3.0]),
}
KERNELS = ["0.5", "1.5", "2.5"]


def points(name):
    return torch.as_tensor(TIMES[name])[:, None]


def markov_factor(kernel, coords):
    return Term([kernel]).factor(0, coords, "markov")


def two_scales():
    return AdditiveKernel(kernel_of("0.5", 0.3), kernel_of("2.5", 2.0))


def dense_of_two_scales(coords):
    return dense_of("0.5", 0.3, coords) + dense_of("2.5", 2.0, coords)


@pytest.mark.parametrize("name", TIMES)
@pytest.mark.parametrize("kernel", KERNELS)
def test_products_and_parts(name, kernel):
    coords = points(name)
    check_is_matrix(markov_factor(kernel_of(kernel), coords).detach(), dense_of(kernel, 0.7, coords))


@pytest.mark.parametrize("name", TIMES)
@pytest.mark.parametrize("kernel", KERNELS)
def test_draws_have_the_covariance(name, kernel):
    coords = points(name)
    check_draws(markov_factor(kernel_of(kernel), coords).detach(), dense_of(kernel, 0.7, coords))


@pytest.mark.parametrize("name", ["regular", "repeated", "one point"])
@pytest.mark.parametrize("kernel", KERNELS)
def test_gradients(name, kernel):
    check_gradients(lambda: kernel_of(kernel), points(name), "markov")


def test_a_sum_of_kernels():
    coords = points("irregular")
    factor = markov_factor(two_scales(), coords).detach()
    check_is_matrix(factor, dense_of_two_scales(coords))
    check_draws(factor, dense_of_two_scales(coords))
    check_gradients(two_scales, coords, "markov")


def test_products_in_many_chunks_are_the_same(monkeypatch):
    monkeypatch.setattr(markov, "WORK_ENTRIES", 300)
    coords = points("unsorted")
    check_is_matrix(markov_factor(kernel_of("1.5"), coords).detach(), dense_of("1.5", 0.7, coords))
    check_gradients(lambda: kernel_of("1.5"), coords, "markov")


def test_neighbours_much_closer_than_the_length_scale():
    coords = torch.linspace(0, 1e-3, 200, dtype=torch.float64)[:, None]
    for kernel in KERNELS:
        factor = markov_factor(kernel_of(kernel), coords).detach()
        check_is_matrix(factor, dense_of(kernel, 0.7, coords))
        check_draws(factor, dense_of(kernel, 0.7, coords))


def test_other_kernels_and_points_are_rejected():
    for kernel in (kernel_of("rbf"), ProductKernel(kernel_of("0.5"), kernel_of("1.5"))):
        with pytest.raises(InputError, match="a markov factor needs one column and Matern kernels"):
            markov_factor(kernel, points("regular"))
    with pytest.raises(InputError, match="a markov factor needs one column and Matern kernels"):
        markov_factor(kernel_of("0.5"), torch.zeros(5, 2, dtype=torch.float64))


def test_it_is_chosen_where_it_pays(monkeypatch):
    monkeypatch.setattr(markov, "MARKOV_PAYS", 100)
    assert Term([two_scales()]).structures([points("irregular")]) == ("markov",)
    assert Term([kernel_of("1.5")]).structures([points("irregular")]) == ("markov",)
    assert Term([kernel_of("1.5")]).structures([points("within one block")]) == ("dense",)
    assert Term([kernel_of("rbf")]).structures([points("irregular")]) == ("dense",)
