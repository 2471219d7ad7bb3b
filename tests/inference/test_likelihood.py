"""The marginal likelihood and its gradient against the dense oracle, exact and stochastic."""

import math

import numpy as np
import pytest
import torch
from cases import CASES, SOME, Case, name
from dense_gradients import dense_log_likelihood, gradients

from lkgp import ConjugateGradients, Direct, Iterative, KroneckerEigenbasis, LeadingModes, Nystrom, PivotedCholesky
from lkgp.inference import Probes, log_likelihood
from lkgp.linalg.preconditioners import NoiseOnly

TIGHT = ConjugateGradients(rtol=1e-12)


@pytest.mark.parametrize("case", CASES, ids=name)
def test_exact_value_and_gradient_along_every_axis(case):
    model, data = case.build(), case.data()
    truth = case.oracle().log_likelihood()
    dense = gradients(dense_log_likelihood(model, case, data), model)
    for axis in range(len(case.shape)):
        value = log_likelihood(model, data, Direct(axis=axis)).objective
        assert float(value.detach()) == pytest.approx(truth, abs=1e-8, rel=1e-8)
        torch.testing.assert_close(gradients(value, model), dense, atol=1e-5, rtol=1e-5)


def test_the_gradient_is_that_of_the_oracle_by_finite_differences():
    """So that the test above does not rest on GPyTorch's autograd."""
    case = next(case for case in CASES if case.name == "three factors")
    model, data = case.build(), case.data()
    log_likelihood(model, data, Direct(axis=1)).objective.backward()
    step = 1e-6

    def shifted(what, change):
        case.noise, case.scale = case.noise + change * (what == "noise"), case.scale + change * (what == "scale")
        try:
            return case.oracle(mean=case.mean + change * (what == "mean")).log_likelihood()
        finally:
            case.noise, case.scale = case.noise - change * (what == "noise"), case.scale - change * (what == "scale")

    raw = {
        "noise": (model.likelihood.raw_noise.grad.item(), torch.sigmoid(model.likelihood.raw_noise).item()),
        "scale": (model.kernels[0].raw_outputscale.grad.item(), torch.sigmoid(model.kernels[0].raw_outputscale).item()),
        "mean": (model.mean.raw_constant.grad.item(), 1.0),
    }
    for what, (gradient, softplus_slope) in raw.items():
        difference = (shifted(what, step) - shifted(what, -step)) / (2 * step)
        assert gradient == pytest.approx(difference * softplus_slope, rel=1e-5)


def test_the_reduction_makes_low_rank_factors_small_and_keeps_its_bound():
    case = Case("long smooth curves", (6, 40), "one missing", kinds=("matern", "rbf"), regular=True)
    model, data = case.build(), case.data()
    sizes = []
    for tolerance in (1e-10, 1e-6, 1e-3):
        system = Direct(tolerance=tolerance, axis=1).system(model, data, columns=1).reduction
        sizes.append(system.size)
        assert (
            abs(float(system.logdet) - np.linalg.slogdet(case.oracle().matrix)[1])
            < tolerance * data.grid.num_observed + 1e-9
        )
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[0] < 0.6 * data.grid.num_observed


def whole_space(data):
    """Draws of the data from the prior whose sample covariance is exactly A: sqrt(N + n) times the identity."""
    n, cells = data.grid.num_observed, data.grid.num_cells
    whole = math.sqrt(n + cells) * torch.eye(n + cells, dtype=torch.float64)
    return Probes(whole[:cells], whole[cells:])


@pytest.mark.parametrize("case", SOME, ids=name)
@pytest.mark.parametrize(
    "preconditioner",
    [None, PivotedCholesky(5), Nystrom(5), LeadingModes(5), KroneckerEigenbasis()],
    ids=lambda p: type(p).__name__,
)
def test_probes_of_the_whole_space_make_the_stochastic_likelihood_exact(case, preconditioner, monkeypatch):
    # What is added to the prior before its factorisation is far below the noise, and here far below that.
    monkeypatch.setattr("lkgp.inference.observation_space.JITTER", 1e-9)
    # All steps, although fewer would leave a bias that is small beside the scatter of random probes.
    monkeypatch.setattr("lkgp.linalg.quadrature.CHECKED_STEPS", 10**9)
    model, data = case.build(), case.data()
    n = data.grid.num_observed
    method = Iterative(TIGHT, preconditioner, lanczos_steps=n)
    estimate = log_likelihood(model, data, method, whole_space(data), value=False)
    assert estimate.solution.converged
    dense = gradients(dense_log_likelihood(model, case, data), model)
    torch.testing.assert_close(gradients(estimate.objective, model), dense, atol=1e-5, rtol=1e-5)
    # The same for the log-determinant: probes G w with w = sqrt(m) I.
    system = method.system(model, data, columns=8)
    known = system.inverse if system.inverse.logdet is not None else NoiseOnly(system.noise)
    m = sum(known.widths)
    probes = known.root(math.sqrt(m) * torch.eye(m, dtype=torch.float64))
    value, _ = system.quadrature(probes, n, known)
    assert float(value) == pytest.approx(np.linalg.slogdet(case.oracle().matrix)[1], abs=1e-7)


@pytest.mark.parametrize("case", SOME, ids=name)
def test_stochastic_gradients_are_unbiased_and_settle_as_probes_grow(case):
    """z-test over independent estimates: all entries within 4.5 standard errors (false alarms: below 1e-4 in all), and
    four times the probes halve the error.
    """
    model, data = case.build(), case.data()
    dense = gradients(dense_log_likelihood(model, case, data), model)
    method = Iterative(TIGHT, None)

    def estimates(num_probes, repeats):
        drawn = [Probes.draw(data, num_probes, seed) for seed in range(repeats)]
        found = [log_likelihood(model, data, method, probes, value=False).objective for probes in drawn]
        return torch.stack([gradients(objective, model) for objective in found])

    few, many = estimates(4, 100), estimates(16, 100)
    for sample in (few, many):
        error = sample.std(dim=0) / math.sqrt(len(sample))
        assert bool(((sample.mean(dim=0) - dense).abs() <= 4.5 * error + 1e-9).all())
    ratio = few.std(dim=0).norm() / many.std(dim=0).norm()
    assert 1.5 < float(ratio) < 2.7


@pytest.mark.parametrize("case", SOME, ids=name)
def test_the_stochastic_log_determinant_is_unbiased(case):
    data, truth = case.data(), np.linalg.slogdet(case.oracle().matrix)[1]
    for preconditioner in (None, PivotedCholesky(5)):
        system = Iterative(TIGHT, preconditioner).system(case.build(), data, columns=8)
        value, error = system.log_determinant(5, num_probes=400, steps=data.grid.num_observed)
        assert abs(float(value) - truth) <= 4.5 * error
