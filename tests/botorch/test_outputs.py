"""Some outputs as a model, and the last step in acquisition functions."""

import pytest
import torch
from botorch.acquisition import qKnowledgeGradient, qLogNoisyExpectedImprovement
from botorch.optim import optimize_acqf
from botorch.sampling import SobolQMCNormalSampler
from botorch_models import STEPS, data

from lkgp import InputError
from lkgp.botorch import LastStep, LatentKroneckerGP

BOUNDS = torch.tensor([[0.0, 0.0], [1.0, 1.0]], dtype=torch.float64)


def test_some_outputs_and_no_points():
    X, others, Y = data()
    model = LatentKroneckerGP(X, others[0], Y)
    some = model.subset_output([1, 3])
    assert some.num_outputs == 2
    assert torch.equal(some.posterior(X[:2], output_indices=[1]).mean, model.posterior(X[:2], output_indices=[3]).mean)
    assert model.posterior(X[:0]).mean.shape == (0, STEPS)


@pytest.fixture(scope="module")
def last_step():
    """Curves that rise towards a peak at (0.6, 0.4)."""
    generator = torch.Generator().manual_seed(1)
    X = torch.rand(10, 2, generator=generator, dtype=torch.float64)
    T = torch.linspace(1, 5, 5, dtype=torch.float64)[:, None]
    Y = (1 - (X - torch.tensor([0.6, 0.4])).square().sum(1))[:, None] * (1 - torch.exp(-T[:, 0])) + 0.01 * torch.randn(
        10, 5, generator=generator
    )
    Y[6:, 3:] = torch.nan
    model = LatentKroneckerGP(X, T, Y)
    model.fit()
    return LastStep(model)


def test_noisy_expected_improvement_finds_the_peak(last_step):
    torch.manual_seed(0)  # optimize_acqf chooses where to start by the global generator
    acquisition = qLogNoisyExpectedImprovement(
        last_step, last_step.model.train_X, sampler=SobolQMCNormalSampler(torch.Size([64]), seed=0), prune_baseline=True
    )
    candidate, value = optimize_acqf(
        acquisition, BOUNDS, q=2, num_restarts=2, raw_samples=16, options={"maxiter": 20, "seed": 0}
    )
    assert candidate.shape == (2, 2)
    assert torch.isfinite(value)
    assert (candidate - torch.tensor([0.6, 0.4])).norm(dim=1).min() < 0.35


def test_knowledge_gradient_runs_unmodified(last_step):
    torch.manual_seed(0)  # optimize_acqf chooses where to start by the global generator
    acquisition = qKnowledgeGradient(last_step, num_fantasies=4)
    candidate, value = optimize_acqf(
        acquisition, BOUNDS, q=1, num_restarts=1, raw_samples=4, options={"maxiter": 5, "seed": 0}
    )
    assert candidate.shape == (1, 2)
    assert torch.isfinite(value)


def test_the_same_candidate_has_the_same_value_wherever_it_stands(last_step):
    new = torch.rand(4, 1, 2, dtype=torch.float64)
    together = last_step.posterior(new)
    for i in range(4):
        assert torch.allclose(last_step.posterior(new[i]).mean, together.mean[i], rtol=1e-9)
    with pytest.raises(InputError, match="some of the 1 outputs"):
        last_step.posterior(new, output_indices=[2])
