"""Draws of functions along a factor without a matrix root have the covariance of the term, and repeat themselves."""

import numpy as np
import torch
from factor_checks import dense_of, kernel_of, normal

from lkgp.inference.structured_draws import draw_functions
from lkgp.linalg.factors import base
from lkgp.model import Term


def test_draws_have_the_covariance_and_depend_on_the_numbers_only(monkeypatch):
    monkeypatch.setattr(base, "MOST_ROOT_POINTS", 10)
    places, times = torch.arange(12, dtype=torch.float64)[:, None] * 0.3, torch.tensor([[0.0], [0.5]]).double()
    term, num = Term([kernel_of("0.5"), kernel_of("2.5")]), 6000
    with torch.no_grad():
        factors = term.factors([places, times], ["lattice", "dense"])
        numbers = normal(24, num)
        values = draw_functions(factors, lambda factor: torch.linalg.cholesky(factor.dense()), numbers)
        again = draw_functions(factors, lambda factor: torch.linalg.cholesky(factor.dense()), numbers)
        other = draw_functions(factors, lambda factor: torch.linalg.cholesky(factor.dense()), normal(24, num, seed=1))
    covariance = np.kron(dense_of("0.5", 0.7, places), dense_of("2.5", 0.7, times))
    spread = np.sqrt(np.outer(covariance.diagonal(), covariance.diagonal()) + covariance**2) / np.sqrt(num)
    assert (np.abs(values.mT.numpy() @ values.numpy() / num - covariance) <= 5 * spread).all()
    assert torch.equal(values, again)
    assert not torch.equal(values, other)
