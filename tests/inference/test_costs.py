"""What plans know of the modes of a product and of the noise, without looking at all of them."""

import pytest
import torch
from gpytorch.kernels import MaternKernel

from lkgp import LatentKroneckerGP, from_array
from lkgp.inference.costs import FactorRanks, leading_products, product_spectrum, products_above


@pytest.mark.parametrize("sizes", [(7,), (30, 12), (5, 40, 8)])
def test_leading_products_are_those_of_all(sizes):
    generator = torch.Generator().manual_seed(0)
    values = [torch.rand(n, generator=generator, dtype=torch.float64).sort(descending=True).values for n in sizes]
    ranks = [FactorRanks(len(x), x, 0.0) for x in values]
    every = product_spectrum(ranks)
    for count in (1, 6, 50, 10_000):
        assert torch.allclose(leading_products(ranks, count), every[:count], rtol=1e-12, atol=0)
    for threshold in (0.01, 0.3, 2.0):
        assert products_above(ranks, threshold) == int((every > threshold).sum())


def test_the_least_noise_is_that_of_the_diagonal():
    data = from_array([torch.arange(4.0)], torch.rand(4, dtype=torch.float64))
    model = LatentKroneckerGP([MaternKernel()], noise=0.3).double()
    repeated = data._replace(counts=torch.arange(1.0, 5.0, dtype=torch.float64))
    for some in (data, repeated, data._replace(noise_variance=torch.rand(4))):
        assert model.noise.least(some) == model.noise_diagonal(some).min()
