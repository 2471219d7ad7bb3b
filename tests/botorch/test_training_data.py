"""Training data: rows as grids, and what is refused."""

import pytest
import torch
from botorch.utils.datasets import SupervisedDataset
from botorch_models import STEPS, data

from lkgp import InputError
from lkgp.botorch import LatentKroneckerGP


def test_inputs_from_a_dataset_lose_no_repeated_row():
    rows = torch.tensor([[0.1, 1.0], [0.1, 1.0], [0.1, 2.0], [0.7, 1.0]], dtype=torch.float64)
    values = torch.tensor([[1.0], [5.0], [2.0], [4.0]], dtype=torch.float64)
    names = {"feature_names": ["rate", "step"], "outcome_names": ["loss"]}
    inputs = LatentKroneckerGP.construct_inputs(SupervisedDataset(X=rows, Y=values, **names))
    assert inputs["train_Y"][0].tolist() == [3.0, 2.0]
    assert inputs["train_Y"][1, 0] == 4.0
    assert inputs["train_Y"][1, 1].isnan()
    assert inputs["train_counts"][0].tolist() == [2.0, 1.0]
    assert inputs["train_scatter"][0].tolist() == [8.0, 0.0]
    assert LatentKroneckerGP(**inputs).posterior(torch.tensor([[0.5]], dtype=torch.float64)).mean.shape == (1, 2)
    variances = torch.tensor([[1.0], [3.0], [1.0], [1.0]], dtype=torch.float64)
    known = LatentKroneckerGP.construct_inputs(SupervisedDataset(X=rows, Y=values, Yvar=variances, **names))
    assert known["train_Y"][0, 0] == pytest.approx((1.0 + 5.0 / 3) / (1 + 1 / 3))
    assert known["train_Yvar"][0, 0] == pytest.approx(1 / (1 + 1 / 3))
    assert known["train_Yvar"][1, 1].isnan()
    noisy = LatentKroneckerGP(**known).posterior(torch.tensor([[0.5]], dtype=torch.float64), observation_noise=True)
    assert torch.isfinite(noisy.variance).all()
    with pytest.raises(InputError, match="no feature 'epoch'"):
        LatentKroneckerGP.construct_inputs(SupervisedDataset(X=rows, Y=values, **names), step="epoch")


def test_bad_data_are_refused():
    X, others, Y = data()
    model = LatentKroneckerGP(X, others[0], Y)
    with pytest.raises(InputError, match="X must have shape"):
        model.posterior(X[:, :1])
    with pytest.raises(InputError, match="X must have shape"):
        model.posterior(X[0])
    with pytest.raises(InputError, match="some of the 4 outputs"):
        model.posterior(X, output_indices=[7])
    with pytest.raises(InputError, match="train_X has repeated rows"):
        LatentKroneckerGP(torch.cat([X, X[:1]]), others[0], torch.cat([Y, Y[:1]]))
    with pytest.raises(InputError, match="make a new model of all data"):
        model.condition_on_observations(X[:1] + 0.5, torch.zeros(1, STEPS).double()).fit()
    with pytest.raises(InputError, match="train_Y has shape"):
        LatentKroneckerGP(X, others[0], Y[:, :2])
    with pytest.raises(InputError, match="infinite"):
        LatentKroneckerGP(X, others[0], torch.full_like(Y, torch.inf))
