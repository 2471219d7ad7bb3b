"""The vector that a search moves in: round trips, derivatives, and which entries are logarithms."""

import numpy as np
import pytest
import torch
from gpytorch.constraints import Interval, Positive
from gpytorch.kernels import IndexKernel, MaternKernel, RBFKernel, ScaleKernel

from lkgp import LatentKroneckerGP
from lkgp.fitting.parameters import FreeParameters, inverse_log_softplus, log_softplus


def model_of(*kernels):
    return LatentKroneckerGP(kernels).double()


def names_in_logs(model):
    parameters = FreeParameters(model)
    start, found = 0, set()
    for name, p in model.named_parameters():
        if p.requires_grad:
            kinds = set(parameters.in_logs[start : start + p.numel()].tolist())
            assert len(kinds) == 1
            found |= {name} if kinds == {True} else set()
            start += p.numel()
    assert start == len(parameters)
    return found


def test_scales_lengths_and_noises_are_logarithms_and_nothing_else_is():
    model = model_of(
        ScaleKernel(RBFKernel(ard_num_dims=3)),
        IndexKernel(num_tasks=4, rank=2),
        MaternKernel(lengthscale_constraint=Interval(0.1, 3.0)),
        RBFKernel(lengthscale_constraint=Positive(transform=torch.exp, inv_transform=torch.log)),
    )
    assert names_in_logs(model) == {
        "terms.0.kernels.0.raw_outputscale",
        "terms.0.kernels.0.base_kernel.raw_lengthscale",
        "terms.0.kernels.1.raw_var",
        "noise.likelihood.noise_covar.raw_noise",
    }
    model.kernels[0].raw_outputscale.requires_grad_(False)
    assert "terms.0.kernels.0.raw_outputscale" not in names_in_logs(model)


@pytest.mark.parametrize("raw", [-800.0, -40.0, -36.0, -35.9, -3.0, 0.0, 2.0, 35.9, 36.1, 900.0])
def test_logarithm_and_back(raw):
    there = log_softplus(np.array([raw]))
    assert np.isfinite(there).all()
    np.testing.assert_allclose(inverse_log_softplus(there), raw, rtol=1e-12, atol=1e-12)
    assert np.exp(there[0]) == pytest.approx(np.logaddexp(0.0, raw), rel=1e-12)


@pytest.mark.parametrize("raw", [-45.0, -5.0, 0.3, 12.0, 50.0])
def test_values_are_given_back_and_derivatives_are_those_of_differences(raw):
    model = model_of(ScaleKernel(RBFKernel()), IndexKernel(num_tasks=2, rank=1))
    for p in model.parameters():
        p.data.fill_(raw)
    before = {name: p.clone() for name, p in model.named_parameters()}
    parameters = FreeParameters(model)
    flat = parameters.get()
    parameters.set(flat)
    for name, p in model.named_parameters():
        torch.testing.assert_close(p, before[name], rtol=1e-12, atol=1e-12)

    def objective(at):
        parameters.set(at)
        return sum((p.clamp(max=1e3) ** 2).sum() * (1 + i) for i, p in enumerate(parameters.tensors))

    objective(flat).backward()
    gradient = parameters.gradient()
    for i in range(len(flat)):
        step = np.eye(len(flat))[i] * 1e-6
        difference = (objective(flat + step) - objective(flat - step)).item() / 2e-6
        assert gradient[i] == pytest.approx(difference, rel=1e-4)
    parameters.clear_gradient()
    assert (parameters.gradient() == 0).all()
