"""Data and hyperparameters are state: saved, loaded, and noticed when they change."""

import torch
from botorch_models import STEPS, data

from lkgp import LBFGS
from lkgp.botorch import LastStep, LatentKroneckerGP


def test_the_state_has_the_data_in_it():
    X, others, Y = data()
    model = LatentKroneckerGP(X, others[0], Y)
    model.fit()
    blank = LatentKroneckerGP(
        torch.rand(2, 2, dtype=torch.float64), others[0][:2], torch.zeros(2, 2, dtype=torch.float64)
    )
    blank.load_state_dict(model.state_dict())
    new = torch.rand(3, 2, dtype=torch.float64)
    assert torch.equal(blank.posterior(new).mean, model.posterior(new).mean)
    assert torch.equal(blank.posterior(new).variance, model.posterior(new).variance)


def test_hyperparameters_that_change_count_at_once():
    X, others, Y = data()
    model, other = LatentKroneckerGP(X, others[0], Y), LatentKroneckerGP(X, others[0], Y)
    new = torch.rand(2, 2, dtype=torch.float64)
    model.posterior(new)
    other.fit()
    model.models[0].load_state_dict(other.models[0].state_dict())
    assert torch.equal(model.posterior(new).mean, other.posterior(new).mean)
    child = model.condition_on_observations(new[:1], torch.full((1, STEPS), 320.0, dtype=torch.float64))
    before = child.posterior(new).mean
    model.fit(optimizer=LBFGS(max_steps=2))
    assert torch.equal(child.posterior(new).mean, before)
    copied = LatentKroneckerGP(X, others[0], Y)
    copied.load_state_dict(child.state_dict())
    assert torch.allclose(copied.posterior(new).mean, before)
    # GPyTorch's own way of setting a hyperparameter.
    model.posterior(new)
    model.models[0].likelihood.noise = 3.0
    fresh = LatentKroneckerGP(X, others[0], Y)
    fresh.load_state_dict(model.state_dict())
    assert torch.equal(model.posterior(new).mean, fresh.posterior(new).mean)


def test_state_of_other_data_is_loaded_inside_other_modules():
    (X, others, Y), (more, steps, values) = data(), data(seed=1, shape=(9, STEPS))
    new = torch.rand(2, 2, dtype=torch.float64)
    wanted = LastStep(LatentKroneckerGP(more, steps[0], values))
    blank = LastStep(LatentKroneckerGP(X, others[0], Y))
    blank.load_state_dict(wanted.state_dict())
    assert torch.equal(blank.posterior(new).mean, wanted.posterior(new).mean)
    parent = LatentKroneckerGP(X, others[0], Y)
    child = parent.condition_on_observations(new, torch.full((2, STEPS), 300.0, dtype=torch.float64))
    child.load_state_dict(LatentKroneckerGP(more, steps[0], values).state_dict())
    assert parent.train_X is not child.train_X
    assert torch.equal(parent.train_X, X)
