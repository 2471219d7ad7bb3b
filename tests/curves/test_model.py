"""Forecasts: what goes in, what comes out, and that they are those of the exact model."""

import pickle

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
import torch
from training_runs import EPOCHS, dense_twin, simulated

from lkgp import InputError, NotFittedError
from lkgp.curves import CurveModel
from lkgp.plots import plot_forecast

mpl.use("Agg")


@pytest.fixture(scope="module")
def model():
    configurations, curves = simulated(24)
    seen = curves.copy()
    for i in range(8, 24):
        seen[i, 3 + i % 9 :] = np.nan
    seen[5, 4] = np.inf  # a failed epoch
    return CurveModel(last_epoch=EPOCHS).fit(configurations, seen), configurations, curves


def test_forecasts_are_those_of_the_dense_model(model):
    fitted, _, _ = model
    encoding, gp = fitted.encoding_, fitted.gp_
    values = gp.observations_.grid.scatter(gp.observations_.values, fill=torch.nan).view(gp.grid_.shape).numpy()
    points, times = (x.numpy() for x in gp.grid_.coords)
    oracle = dense_twin(gp.model_, points, times[:, 0], values)
    new = [points, encoding.times(np.arange(1, EPOCHS + 1))[:, None]]
    std = np.sqrt(oracle.variance_at(new) + gp.model_.noise_variance().item())
    mean = oracle.mean_at(new)
    for run, forecast in enumerate(fitted.forecasts()):
        assert np.allclose(forecast.median, encoding.scale.undo(mean[run]), rtol=1e-5)
        assert np.allclose(forecast.lower, encoding.scale.undo(mean[run] - 1.6448536 * std[run]), rtol=1e-5)
        assert np.allclose(forecast.upper, encoding.scale.undo(mean[run] + 1.6448536 * std[run]), rtol=1e-5)


def test_forecasts_know_how_runs_end(model):
    fitted, _, curves = model
    forecasts = fitted.forecasts()
    errors = [f.final - curves[f.run, -1] for f in forecasts[8:]]
    naive = [f.seen[1][-1] - curves[f.run, -1] for f in forecasts[8:]]
    assert np.sqrt(np.mean(np.square(errors))) < 0.5 * np.sqrt(np.mean(np.square(naive)))
    assert np.mean([f.interval[0] <= curves[f.run, -1] <= f.interval[1] for f in forecasts[8:]]) >= 0.75
    assert len(forecasts[5].seen[0]) == EPOCHS - 1
    best = min(curves[run, -1] for run in range(8))
    assert forecasts[10].best == best
    assert f"its value after epoch {3 + 10 % 9} is" in forecasts[10].why
    assert f"better than {best:.4g} with probability" in forecasts[10].why
    assert fitted.forecast(10, threshold=10.0).probability > 0.999
    assert fitted.forecast(10, threshold=1e-3).probability < 1e-3
    axes = plot_forecast(forecasts[10])
    assert axes.get_xlabel() == "epoch"


def test_new_epochs_are_added(model):
    _, configurations, curves = model
    seen = curves.copy()
    seen[8:, 4:] = np.nan
    fitted = CurveModel(last_epoch=EPOCHS).fit(configurations, seen)
    wide = fitted.forecast(9)
    fitted.add(9, {epoch: curves[9, epoch - 1] for epoch in range(5, 16)})
    narrow = fitted.forecast(9)
    assert narrow.upper[-1] - narrow.lower[-1] < wide.upper[-1] - wide.lower[-1]
    assert len(narrow.seen[0]) == 15
    # The same as if they had been there from the beginning.
    seen[9, 4:15] = curves[9, 4:15]
    z = fitted.encoding_.scale.apply(seen)
    again = fitted.gp_.conditioned_on(z).predict([None, fitted.encoding_.times(np.array([EPOCHS]))])[0]
    assert np.allclose(fitted.encoding_.scale.undo(again[9]), narrow.final, rtol=1e-5)
    with pytest.raises(InputError, match="no run 99"):
        fitted.add(99, {1: 0.5})
    with pytest.raises(InputError, match="epoch 5 of run 9 already has the value"):
        fitted.add(9, {5: 0.5})
    copied = pickle.loads(pickle.dumps(fitted))
    assert copied.forecast(9).final == narrow.final
    with pytest.raises(InputError, match="epoch 21 is beyond the last epoch, 20"):
        fitted.add(9, {21: 0.5})


def test_curves_of_every_form_are_read_and_bad_ones_refused():
    configurations, curves = simulated(6)
    ragged = [list(curve[: 5 + i]) for i, curve in enumerate(curves)]
    padded = np.full((6, EPOCHS), np.nan)
    for row, curve in zip(padded, ragged, strict=True):
        row[: len(curve)] = curve
    settings = {"last_epoch": EPOCHS, "direction": "minimize"}
    first = CurveModel(**settings).fit(configurations, ragged).forecasts()
    second = CurveModel(**settings).fit(pd.DataFrame(configurations), padded).forecasts()
    third = CurveModel(**settings).fit(configurations, [dict(enumerate(curve, 1)) for curve in ragged]).forecasts()
    assert all(a.final == b.final == c.final for a, b, c in zip(first, second, third, strict=True))
    fourth = CurveModel(**settings).fit(configurations, pd.DataFrame(padded)).forecasts()
    fifth = (
        CurveModel(**settings)
        .fit(configurations, [pd.Series(curve, index=range(1, len(curve) + 1)) for curve in ragged])
        .forecasts()
    )
    assert all(a.final == b.final == c.final for a, b, c in zip(first, fourth, fifth, strict=True))
    plain = (
        CurveModel(**settings).fit(configurations, [pd.Series(curve) for curve in ragged]).forecasts()
    )  # counts from 0 on: no epochs
    assert [f.final for f in plain] == [f.final for f in first]
    sparse = [{10 * (epoch + 1): value for epoch, value in enumerate(curve[:2])} for curve in ragged]
    labelled = CurveModel(**settings).fit(configurations, pd.DataFrame(sparse))
    assert [f.final for f in labelled.forecasts()] == [
        f.final for f in CurveModel(**settings).fit(configurations, sparse).forecasts()
    ]
    assert labelled.curves_[0][0].tolist() == [10, 20]
    upside = (
        CurveModel(last_epoch=EPOCHS, direction="maximize")
        .fit(configurations, [[-v for v in curve] for curve in ragged])
        .forecasts()
    )
    assert np.allclose([-f.final for f in upside], [f.final for f in first], rtol=1e-4)
    with pytest.raises(InputError, match="6 configurations but 5 curves"):
        CurveModel().fit(configurations, ragged[:5])
    with pytest.raises(InputError, match="no run has a finite value"):
        CurveModel().fit(configurations, [[np.nan]] * 6)
    with pytest.raises(InputError, match="a value at epoch 10, but last_epoch is 4"):
        CurveModel(last_epoch=4).fit(configurations, ragged)
    with pytest.raises(InputError, match="not a number"):
        CurveModel().fit(configurations, [["low"]] * 6)
    with pytest.raises(InputError, match="non-negative whole numbers"):
        CurveModel().fit(configurations, [{0.5: 1.0}] * 6)
    with pytest.raises(NotFittedError):
        CurveModel().forecasts()
    with pytest.raises(InputError, match="whole number"):
        CurveModel(last_epoch=10.5)
    with pytest.raises(InputError, match="level must be a probability"):
        CurveModel(**settings).fit(configurations, ragged).forecasts(level=90)


def test_epochs_are_added_to_very_long_training_and_a_failed_fit_changes_nothing():
    configurations, curves = simulated(6)
    seen = [dict(enumerate(curve[:6], start=1)) for curve in curves]
    model = CurveModel(last_epoch=1000).fit(configurations, seen)
    model.add(0, {7: curves[0][6], 40: curves[0][7]})
    assert model.curves_[0][0].tolist() == [1, 2, 3, 4, 5, 6, 7, 40]
    coords, cells = model.encoding_.grid(configurations, model.curves_, model.epochs_)
    assert np.isfinite(cells).sum() == 6 * 6 + 2
    assert model.gp_.conditioned_on(cells, coords).predict()[0] == pytest.approx(model.gp_.predict()[0], abs=1e-5)
    before = model.forecast(0).final
    with pytest.raises(InputError, match="a value at epoch 2000, but last_epoch"):
        model.fit(configurations, [{2000: 1.0}] * 6)
    assert model.forecast(0).final == before
    assert model.add(1, {7: curves[1][6]}, refit=True).report_.converged


def test_one_run_alone_has_a_forecast_with_an_interval():
    one = CurveModel(last_epoch=10).fit([{"x": 1}], [[0.9, 0.8, 0.7]]).forecast(0)
    assert one.interval[0] < 0.68
    assert one.interval[1] > 0.72
    alone = CurveModel(last_epoch=10).fit([{"x": 1}], [[0.9]]).forecast(0)
    assert alone.interval[1] - alone.interval[0] > 0.02
