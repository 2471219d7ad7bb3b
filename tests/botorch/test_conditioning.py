"""Observations that are added are those of a model of all data."""

import numpy as np
import pytest
import torch
from botorch.sampling import SobolQMCNormalSampler
from botorch_models import STEPS, check_moments, data, oracle_of
from oracle import Oracle

from lkgp import InputError
from lkgp.botorch import LatentKroneckerGP


def test_conditioning_is_the_model_of_all_data():
    X, others, Y = data()
    model = LatentKroneckerGP(X, others[0], Y)
    new, seen = (
        torch.rand(2, 2, dtype=torch.float64),
        torch.tensor([[310.0, 290.0], [305.0, 350.0]], dtype=torch.float64),
    )
    added = model.condition_on_observations(new, seen, output_indices=[0, 2])
    oracle, shift, unit, scaled = oracle_of(model, X, others, Y)
    more = torch.full((2, STEPS), torch.nan, dtype=torch.float64)
    more[:, [0, 2]] = seen
    oracle.coords[0] = np.vstack([oracle.coords[0], scaled(new.numpy(), 0)])
    whole = Oracle(
        oracle.kernels, oracle.coords, np.vstack([oracle.y, (more.numpy() - shift) / unit]), oracle.noise, oracle.mean
    )
    points = torch.rand(3, 2, dtype=torch.float64)
    check_moments(
        added.posterior(points), whole, shift, unit, [scaled(points.numpy(), 0), scaled(others[0].numpy(), 1)]
    )
    # Once more on top, and the first model is as it was.
    twice = added.condition_on_observations(points[:1], torch.full((1, STEPS), 300.0, dtype=torch.float64))
    assert (twice.posterior(points[:1]).variance < added.posterior(points[:1]).variance).all()
    assert model._added == []
    with pytest.raises(InputError, match="last two dimensions of Y"):
        model.condition_on_observations(new, seen)
    with pytest.raises(InputError, match="must be finite"):
        model.condition_on_observations(new, more)


def test_fantasies():
    X, others, Y = data()
    model = LatentKroneckerGP(X, others[0], Y)
    new = torch.rand(5, 2, 2, dtype=torch.float64)  # 5 t-batches of 2 points
    fantasies = model.fantasize(new, SobolQMCNormalSampler(torch.Size([8]), seed=0))
    assert fantasies.batch_shape == (8, 5)
    posterior = fantasies.posterior(torch.rand(3, 2, dtype=torch.float64))
    assert posterior.mean.shape == (8, 5, 3, STEPS)
    # On average they believe what the model believes, and are surer.
    before = model.posterior(new)
    after = fantasies.posterior(new)
    assert torch.allclose(after.mean.mean(dim=0), before.mean, atol=0.25 * before.variance.sqrt().max().item())
    assert (after.variance < before.variance).all()


def test_observations_that_repeat_nearly_without_noise():
    X, others, Y = data()
    model = LatentKroneckerGP(X, others[0], Y, torch.full_like(Y, 1e-8))
    seen = torch.full((2, STEPS), 300.0, dtype=torch.float64)
    twice = model.condition_on_observations(X[:2] + 1, seen).condition_on_observations(X[:2] + 1, seen)
    assert torch.allclose(twice.posterior(X[:2] + 1).mean, seen, atol=0.1)
    single = LatentKroneckerGP(X.float(), others[0].float(), Y.float()).posterior(X[:3].float())
    assert single.mean.dtype == torch.float32
    assert (single.variance > 0).all()
