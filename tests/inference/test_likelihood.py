"""The marginal likelihood and its gradient against the dense oracle, exact and stochastic."""

import math

import numpy as np
import pytest
import torch
from cases import CASES, SOME, Case, name
from dense_gradients import dense_log_likelihood, gradients

from lkgp import ConjugateGradients, Direct, Iterative, KroneckerEigenbasis, LeadingModes, Nystrom, PivotedCholesky
from lkgp.inference.likelihood import Probes, exact_mll, log_determinant, stochastic_mll
from lkgp.inference.methods import factorise

TIGHT = ConjugateGradients(rtol=1e-12)


@pytest.mark.parametrize("case", CASES, ids=name)
def test_exact_value_and_gradient_along_every_axis(case):
    model, data = case.build(), case.data()
    truth = case.oracle().log_likelihood()
    dense = gradients(dense_log_likelihood(model, case, data), model)
    for axis in range(len(case.shape)):
        value = exact_mll(model, data, Direct(), axis).objective
        assert float(value.detach()) == pytest.approx(truth, abs=1e-8, rel=1e-8)
        torch.testing.assert_close(gradients(value, model), dense, atol=1e-5, rtol=1e-5)


def test_the_gradient_is_that_of_the_oracle_by_finite_differences():
    """So that the test above does not rest on GPyTorch's autograd."""
    case = next(case for case in CASES if case.name == "three factors")
    model, data = case.build(), case.data()
    exact_mll(model, data, Direct(), 1).objective.backward()
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
        system = factorise(model, data, Direct(tolerance=tolerance), axis=1)
        sizes.append(system.size)
        assert (
            abs(float(system.logdet) - np.linalg.slogdet(case.oracle().matrix)[1])
            < tolerance * data.grid.num_observed + 1e-9
        )
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[0] < 0.6 * data.grid.num_observed


@pytest.mark.parametrize("case", SOME, ids=name)
@pytest.mark.parametrize(
    "preconditioner",
    [None, PivotedCholesky(5), Nystrom(5), LeadingModes(5), KroneckerEigenbasis()],
    ids=lambda p: type(p).__name__,
)
def test_probes_of_the_whole_space_make_the_stochastic_likelihood_exact(case, preconditioner):
    model, data = case.build(), case.data()
    n = data.grid.num_observed
    drawn = Probes.draw(data, 2, seed=0)
    probes = Probes(math.sqrt(n) * torch.eye(n, dtype=torch.float64), drawn.prior, drawn.noise)
    method = Iterative(TIGHT, preconditioner, gradient="probes", lanczos_steps=n)
    estimate = stochastic_mll(model, data, method, probes)
    assert estimate.solution.converged
    assert float(estimate.objective.detach()) == pytest.approx(case.oracle().log_likelihood(), abs=1e-8)
    dense = gradients(dense_log_likelihood(model, case, data), model)
    torch.testing.assert_close(gradients(estimate.objective, model), dense, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("case", SOME, ids=name)
@pytest.mark.parametrize("kind", ["probes", "pathwise"])
def test_stochastic_gradients_are_unbiased_and_settle_as_probes_grow(case, kind):
    """z-test over independent estimates: all entries within 4.5 standard errors (false alarms: below 1e-4 in all), and four times
    the probes halve the error."""
    model, data = case.build(), case.data()
    dense = gradients(dense_log_likelihood(model, case, data), model)
    method = Iterative(TIGHT, None, gradient=kind)

    def estimates(num_probes, repeats):
        return torch.stack(
            [
                gradients(
                    stochastic_mll(model, data, method, Probes.draw(data, num_probes, seed), value=False).objective,
                    model,
                )
                for seed in range(repeats)
            ]
        )

    few, many = estimates(4, 100), estimates(16, 100)
    for sample in (few, many):
        error = sample.std(dim=0) / math.sqrt(len(sample))
        assert bool(((sample.mean(dim=0) - dense).abs() <= 4.5 * error + 1e-9).all())
    ratio = few.std(dim=0).norm() / many.std(dim=0).norm()
    assert 1.5 < float(ratio) < 2.7


@pytest.mark.parametrize("case", SOME, ids=name)
def test_the_stochastic_log_determinant_is_unbiased(case):
    data = case.data()
    operator = case.build().covariance(data).detach()
    truth = np.linalg.slogdet(case.oracle().matrix)[1]
    n = data.grid.num_observed
    probes = Probes.draw(data, 400, seed=5).signs
    for preconditioner in (None, PivotedCholesky(5).build(operator)):
        value, error = log_determinant(operator, preconditioner, probes, n)
        assert abs(float(value) - truth) <= 4.5 * error
