"""Learning curves: what goes in, what comes out, and that verdicts are those of the exact model."""

import pickle

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
import torch
from oracle import Oracle, matern52

from lkgp import InputError, NotFittedError
from lkgp.curves import CurveModel, EarlyStopping, FinishedRun, Space
from lkgp.curves.configurations import Parameter, as_configurations
from lkgp.curves.model import table
from lkgp.curves.stopping import COMPARED_RUNS, scheduled
from lkgp.curves.values import ValueScale
from lkgp.plots import plot_forecast

mpl.use("Agg")
EPOCHS = 20


def simulated(runs, seed=0, noise=0.01):
    """Configurations of runs and loss curves (runs, EPOCHS) that fall to a level and at a speed that depend on them."""
    rng = np.random.default_rng(seed)
    rates, widths, kinds = (
        10 ** rng.uniform(-4, -1, runs),
        rng.integers(16, 512, runs),
        rng.choice(["adam", "sgd"], runs),
    )
    level = 0.2 + 0.15 * (np.log10(rates) + 2.5) ** 2 + 0.1 * (kinds == "sgd")
    speed = 0.1 + 0.3 * (widths / 512)
    curves = (
        level[:, None] + np.exp(-speed[:, None] * np.arange(1, EPOCHS + 1)) + noise * rng.normal(size=(runs, EPOCHS))
    )
    configurations = [
        {"rate": r, "width": int(w), "optimizer": str(k)} for r, w, k in zip(rates, widths, kinds, strict=True)
    ]
    return configurations, curves


# Values


@pytest.mark.parametrize("direction", ["minimize", "maximize"])
@pytest.mark.parametrize("transform", ["none", "log", "logit"])
def test_values_come_back_and_better_ones_are_smaller(direction, transform):
    values = np.random.default_rng(0).uniform(0.01, 0.99, 50)
    scale = ValueScale.of(values, direction, transform)
    z = scale.apply(values)
    assert np.allclose(scale.undo(z), values, rtol=1e-9)
    order = np.argsort(values) if direction == "minimize" else np.argsort(-values)
    assert (np.diff(z[order]) > 0).all()
    assert abs(z.mean()) < 1e-9
    assert z.std() == pytest.approx(1)
    assert np.isnan(scale.apply(np.array([np.nan, np.inf]))).all()
    step = 1e-6 * values
    slope = (scale.apply(values + step) - scale.apply(values - step)) / (2 * step)
    assert scale.log_slope(values) == pytest.approx(np.log(np.abs(slope)), abs=1e-4)


def test_wild_values_do_not_set_the_scale():
    values = np.append(np.random.default_rng(0).normal(1.0, 0.1, 50), 1e6)
    z = ValueScale.of(values, "minimize", "none").apply(values)
    assert z[:50].std() > 0.3
    assert z[50] == z.max()


def test_the_transform_that_suits_the_values():
    assert ValueScale.of(np.array([0.5, 0.7, 0.97])).transform == "logit"
    assert ValueScale.of(np.array([0.4, 0.5, 0.7])).transform == "none"
    assert ValueScale.of(np.array([1.0, 10.0, 100.0])).transform == "log"
    assert ValueScale.of(np.array([-1.0, 10.0, 100.0])).transform == "none"
    with pytest.raises(InputError, match="positive values, but -1"):
        ValueScale.of(np.array([-1.0, 1.0]), "minimize", "log")
    with pytest.raises(InputError, match="from 0 to 1"):
        ValueScale.of(np.array([0.5, 2.0]), "minimize", "logit")
    with pytest.raises(InputError, match="direction must be"):
        ValueScale.of(np.ones(2), "down")


# Configurations


def test_configurations_become_numbers():
    given = [
        {"rate": 1e-4, "kind": "a", "depth": 2},
        {"rate": 1e-1, "kind": "b", "depth": None},
        {"rate": 1e-2, "kind": "a", "depth": 4},
    ]
    space = Space.of(given)
    assert [p.name for p in space.parameters] == ["rate", "kind", "depth"]
    assert [p.log for p in space.parameters] == [True, False, False]
    half = 1 / np.sqrt(2)
    expected = [[0, half, 0, 0, 1], [1, 0, half, 0.5, 0], [2 / 3, half, 0, 1, 1]]
    assert np.allclose(space.encode(given), expected)
    assert np.allclose(space.encode([{"rate": 1e-4, "kind": "never seen", "depth": 3}]), [[0, 0, 0, 0.5, 1]])
    assert np.array_equal(Space.of(pd.DataFrame(given).to_dict("records")).encode(given), space.encode(given))
    # What does not fit is read as best it can.
    assert np.allclose(space.encode([{"rate": "fast", "kind": "a", "depth": "many"}]), [[0.5, half, 0, 0.5, 0]])
    assert np.allclose(space.encode([{"rate": -1.0, "kind": "a", "depth": 2}]), [[0, half, 0, 0, 1]])
    assert Space.of([{"layers": [64, 64]}, {"layers": [32]}]).encode([{"layers": [32]}]).tolist() == [[half, 0.0]]
    with pytest.raises(InputError, match="no parameter 'speed'"):
        Space.of(given, log=["speed"])


def test_spaces_of_several_runs_are_joined():
    one, two = Space((Parameter("x", 0, 1), Parameter("y", choices=("a",)))), Space((Parameter("x", -1, 0.5),))
    frame = pd.DataFrame({"depth": pd.array([2, None, 4], "Int64")})
    assert Space.of(as_configurations(frame)).parameters == (Parameter("depth", 2, 4, conditional=True),)
    assert Space.joined([one, two]).parameters == (
        Parameter("x", -1, 1),
        Parameter("y", choices=("a",), conditional=True),
    )


# Forecasts


@pytest.fixture(scope="module")
def model():
    configurations, curves = simulated(24)
    seen = curves.copy()
    for i in range(8, 24):
        seen[i, 3 + i % 9 :] = np.nan
    seen[5, 4] = np.inf  # a failed epoch
    return CurveModel(last_epoch=EPOCHS).fit(configurations, seen), configurations, curves


def dense_twin(gp, frame, points, times, values):
    """The model of some curves as the oracle has it."""
    own, alike = gp.kernels[0].kernels
    lengths = alike.base_kernel.lengthscale.detach().numpy()
    weights = own.outputscale.item(), alike.outputscale.item()
    trend, wander = gp.kernels[1].kernels
    along, apart = trend.lengthscale.item(), wander.base_kernel.lengthscale.item()
    share = wander.outputscale.item()

    def epochs(x, z):
        return matern52(x, z, along) + share * np.exp(-np.abs(x - z.T) / apart)

    def runs(x, z):
        same = (x[:, None, -1] == z[None, :, -1]).astype(float)
        return weights[0] * same + weights[1] * matern52(x[:, :-1], z[:, :-1], lengths)

    noise, mean = gp.noise_variance().item(), gp.mean.constant.item()
    return Oracle([runs, epochs], [points, times[:, None]], values, noise, mean)


def test_forecasts_are_those_of_the_dense_model(model):
    fitted, _, _ = model
    frame, gp = fitted.frame_, fitted.gp_
    values = gp.observations_.grid.scatter(gp.observations_.values, fill=torch.nan).view(gp.grid_.shape).numpy()
    points, times = (x.numpy() for x in gp.grid_.coords)
    oracle = dense_twin(gp.model_, frame, points, times[:, 0], values)
    new = [points, frame.times(np.arange(1, EPOCHS + 1))[:, None]]
    std = np.sqrt(oracle.variance_at(new) + gp.model_.noise_variance().item())
    mean = oracle.mean_at(new)
    for run, forecast in enumerate(fitted.forecasts()):
        assert np.allclose(forecast.median, frame.scale.undo(mean[run]), rtol=1e-5)
        assert np.allclose(forecast.lower, frame.scale.undo(mean[run] - 1.6448536 * std[run]), rtol=1e-5)
        assert np.allclose(forecast.upper, frame.scale.undo(mean[run] + 1.6448536 * std[run]), rtol=1e-5)


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
    assert f"after epoch {3 + 10 % 9} it is at" in forecasts[10].why
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
    z = fitted.frame_.scale.apply(seen)
    again = fitted.gp_.conditioned_on(z).predict([None, fitted.frame_.times(np.array([EPOCHS]))])[0]
    assert np.allclose(fitted.frame_.scale.undo(again[9]), narrow.final, rtol=1e-5)
    with pytest.raises(InputError, match="no run 99"):
        fitted.add(99, {1: 0.5})
    with pytest.raises(InputError, match="epoch 5 of run 9 was seen before"):
        fitted.add(9, {5: 0.5})
    copied = pickle.loads(pickle.dumps(fitted))
    assert copied.forecast(9).final == narrow.final
    with pytest.raises(InputError, match="epoch 21 is beyond the last, 20"):
        fitted.add(9, {21: 0.5})


def test_curves_of_every_form_are_read_and_bad_ones_refused():
    configurations, curves = simulated(6)
    ragged = [list(curve[: 5 + i]) for i, curve in enumerate(curves)]
    padded = np.full((6, EPOCHS), np.nan)
    for row, curve in zip(padded, ragged, strict=True):
        row[: len(curve)] = curve
    words = {"last_epoch": EPOCHS, "direction": "minimize"}
    first = CurveModel(**words).fit(configurations, ragged).forecasts()
    second = CurveModel(**words).fit(pd.DataFrame(configurations), padded).forecasts()
    third = CurveModel(**words).fit(configurations, [dict(enumerate(curve, 1)) for curve in ragged]).forecasts()
    assert all(a.final == b.final == c.final for a, b, c in zip(first, second, third, strict=True))
    fourth = CurveModel(**words).fit(configurations, pd.DataFrame(padded)).forecasts()
    fifth = (
        CurveModel(**words)
        .fit(configurations, [pd.Series(curve, index=range(1, len(curve) + 1)) for curve in ragged])
        .forecasts()
    )
    assert all(a.final == b.final == c.final for a, b, c in zip(first, fourth, fifth, strict=True))
    plain = (
        CurveModel(**words).fit(configurations, [pd.Series(curve) for curve in ragged]).forecasts()
    )  # counts from 0 on: no epochs
    assert [f.final for f in plain] == [f.final for f in first]
    sparse = [{10 * (epoch + 1): value for epoch, value in enumerate(curve[:2])} for curve in ragged]
    labelled = CurveModel(**words).fit(configurations, pd.DataFrame(sparse))
    assert [f.final for f in labelled.forecasts()] == [
        f.final for f in CurveModel(**words).fit(configurations, sparse).forecasts()
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
    with pytest.raises(InputError, match="epoch 10 was seen, but last_epoch is 4"):
        CurveModel(last_epoch=4).fit(configurations, ragged)
    with pytest.raises(InputError, match="not a number"):
        CurveModel().fit(configurations, [["low"]] * 6)
    with pytest.raises(InputError, match="whole numbers from 0 on"):
        CurveModel().fit(configurations, [{0.5: 1.0}] * 6)
    with pytest.raises(NotFittedError):
        CurveModel().forecasts()
    with pytest.raises(InputError, match="whole number"):
        CurveModel(last_epoch=10.5)
    with pytest.raises(InputError, match="level must be a probability"):
        CurveModel(**words).fit(configurations, ragged).forecasts(level=90)


def test_epochs_are_added_to_very_long_training_and_a_failed_fit_changes_nothing():
    configurations, curves = simulated(6)
    seen = [dict(enumerate(curve[:6], start=1)) for curve in curves]
    model = CurveModel(last_epoch=1000).fit(configurations, seen)
    model.add(0, {7: curves[0][6], 40: curves[0][7]})
    assert model.curves_[0][0].tolist() == [1, 2, 3, 4, 5, 6, 7, 40]
    coords, cells = table(model.frame_, configurations, model.curves_, model.epochs_)
    assert np.isfinite(cells).sum() == 6 * 6 + 2
    assert model.gp_.conditioned_on(cells, coords).predict()[0] == pytest.approx(model.gp_.predict()[0], abs=1e-5)
    before = model.forecast(0).final
    with pytest.raises(InputError, match="was seen, but last_epoch"):
        model.fit(configurations, [{2000: 1.0}] * 6)
    assert model.forecast(0).final == before
    assert model.add(1, {7: curves[1][6]}, refit=True).report_.converged


def test_one_run_alone_has_a_forecast_with_an_interval():
    one = CurveModel(last_epoch=10).fit([{"x": 1}], [[0.9, 0.8, 0.7]]).forecast(0)
    assert one.interval[0] < 0.68
    assert one.interval[1] > 0.72
    alone = CurveModel(last_epoch=10).fit([{"x": 1}], [[0.9]]).forecast(0)
    assert alone.interval[1] - alone.interval[0] > 0.02


# Stopping


@pytest.fixture(scope="module")
def finished():
    configurations, curves = simulated(14, seed=1)
    runs = []
    for number, (configuration, curve) in enumerate(zip(configurations, curves, strict=True)):
        complete = number % 3 > 0 or number < 4
        runs.append(
            FinishedRun(number, configuration, dict(enumerate(curve[: EPOCHS if complete else 7], 1)), complete)
        )
    return runs


def test_a_verdict_is_that_of_the_dense_model_given_all_runs_and_its_own_reports(finished):
    """The closed form for its own reports, on top of the finished runs, is the model of all of them at once."""
    stopping = EarlyStopping(EPOCHS, n_startup_runs=5)
    configurations, curves = simulated(1, seed=7)
    curve = dict(enumerate(curves[0][:6], 1))
    forecast = stopping.judge(99, configurations[0], curve, finished).forecast
    frame, learned, degrees = stopping._learn(finished)
    assert degrees == sum(run.complete for run in finished) == 11
    (points, times), values = stopping._table(frame, finished)
    every = frame.times(np.arange(1, EPOCHS + 1))
    whole = np.full((len(points) + 1, EPOCHS), np.nan)
    whole[:-1, np.searchsorted(every, times - 1e-9)] = values
    rows, noise = np.vstack([points, frame.points(configurations, np.array([99.0]))]), learned.noise_variance().item()
    without = dense_twin(learned, frame, rows, every, whole)
    whole[-1, :6] = frame.scale.apply(curves[0][:6])
    oracle = dense_twin(learned, frame, rows, every, whole)
    own, begun = [oracle.coords[0][-1:], every[:, None]], [oracle.coords[0][-1:], every[:6, None]]
    mean = oracle.mean_at(own)[0]
    assert np.allclose(forecast.median, frame.scale.undo(mean), rtol=1e-6)
    # how far its first six values are from what was expected before, in standard deviations: six or so of their squares
    surprise = whole[-1, :6] - without.mean_at(begun)[0]
    squares = surprise @ np.linalg.solve(without.covariance_at(begun).reshape(6, 6) + noise * np.eye(6), surprise)
    variance = (oracle.variance_at(own)[0] + noise) * (11 + squares) / 17
    # the 95th percentile of Student's t with 11 + 6 degrees of freedom
    assert np.allclose(forecast.upper, frame.scale.undo(mean + 1.7396067 * np.sqrt(variance)), rtol=1e-6)
    best = min(run.curve[EPOCHS] for run in finished if run.complete)
    assert forecast.best == best
    x = np.linspace(-400, 400, 4_000_001)
    density = (1 + x**2 / 17) ** (-(17 + 1) / 2)
    below = x <= (float(frame.scale.apply(np.array(best))) - mean[-1]) / np.sqrt(variance[-1])
    assert forecast.probability == pytest.approx(density[below].sum() / density.sum(), rel=1e-3)


def test_bad_runs_are_stopped_and_good_ones_are_not(finished):
    stopping = EarlyStopping(EPOCHS, n_startup_runs=5)
    bad, good = {"rate": 1e-4, "width": 300, "optimizer": "sgd"}, {"rate": 10**-2.5, "width": 500, "optimizer": "adam"}
    falling = np.exp(-0.39 * np.arange(1, EPOCHS + 1))
    verdict = stopping.judge(50, bad, dict(enumerate(0.65 + falling[:8], 1)), finished)
    assert verdict.stop
    assert "better than" in verdict.why
    assert not stopping.should_stop(51, good, dict(enumerate(0.18 + falling[:8], 1)), finished)
    # The same reports, the same verdict, from a copy that has learned nothing yet.
    copy = pickle.loads(pickle.dumps(stopping))
    assert (
        copy.judge(50, bad, dict(enumerate(0.65 + falling[:8], 1)), finished).forecast.probability
        == verdict.forecast.probability
    )


def test_one_stopping_rule_serves_several_loops(finished):
    """What was learned of other runs with the same numbers is not mixed in; nor does the mode of torch matter."""
    shifted = [
        FinishedRun(run.number, run.configuration, {e: v + 100 for e, v in run.curve.items()}, run.complete)
        for run in finished
    ]
    stopping = EarlyStopping(EPOCHS, n_startup_runs=5)
    configuration, curve = finished[3].configuration, {e: finished[3].curve[e] for e in range(1, 8)}
    stopping.judge(50, configuration, curve, finished)
    higher = {e: v + 100 for e, v in curve.items()}
    with torch.inference_mode():
        mixed = stopping.judge(50, configuration, higher, shifted)
    assert mixed.why == EarlyStopping(EPOCHS, n_startup_runs=5).judge(50, configuration, higher, shifted).why


def test_nothing_is_stopped_while_all_end_alike():
    runs = [FinishedRun(i, {"x": i}, dict.fromkeys(range(1, 11), 0.1), True) for i in range(6)]
    verdict = EarlyStopping(10, n_startup_runs=5, direction="maximize").judge(9, {"x": 3}, {4: 0.099}, runs)
    assert not verdict.stop
    assert "ended alike" in verdict.why
    silent = [FinishedRun(10 + i, {"x": i}, {}, True) for i in range(50)]
    assert "0 of 5 runs" in EarlyStopping(10, n_startup_runs=5).judge(99, {"x": 3}, {1: 0.099}, silent).why


def test_when_there_is_nothing_to_judge_by(finished):
    stopping = EarlyStopping(EPOCHS, n_startup_runs=12, n_warmup_epochs=3)
    assert "nothing yet" in stopping.judge(50, {}, {}, finished).why
    assert not stopping.judge(50, {}, {5: 1.0}, finished).stop
    assert "of 12 runs are complete" in stopping.judge(50, {}, {5: 1.0}, finished).why
    assert stopping.judge(50, {}, {4: 1.0, 5: np.nan}, finished).stop
    stopping = EarlyStopping(EPOCHS, n_startup_runs=5, n_warmup_epochs=3)
    assert "for 3 epochs first" in stopping.judge(50, {}, {3: 1.0}, finished).why
    assert stopping.judge(50, {}, {3: np.nan}, finished).stop
    assert stopping.judge(50, finished[0].configuration, {4: 1.0}, finished).forecast is not None
    assert "is complete" in stopping.judge(50, finished[0].configuration, {EPOCHS: 1.0}, finished).why
    for words in ({"last_epoch": 0}, {"last_epoch": 5, "threshold": 0.0}, {"last_epoch": 5, "n_startup_runs": 0}):
        with pytest.raises(InputError):
            EarlyStopping(**words)


def test_long_training_is_read_in_strides_and_many_runs_by_the_most_alike():
    rng = np.random.default_rng(0)
    levels = rng.uniform(size=COMPARED_RUNS + 30)
    epochs = range(0, 1001, 50)
    runs = [FinishedRun(i, {"x": x}, {e: x + np.exp(-e / 200) for e in epochs}, True) for i, x in enumerate(levels)]
    stopping = EarlyStopping(1000)
    verdict = stopping.judge(999, {"x": 0.9}, {e: 0.9 + np.exp(-e / 200) for e in range(0, 301, 50)}, runs)
    assert verdict.stop
    assert len(verdict.forecast.epochs) == 100
    assert verdict.forecast.final == pytest.approx(0.9, abs=0.05)


def test_learning_is_done_now_and_then():
    assert [scheduled(n, 5) for n in (3, 5, 6, 7, 8, 9, 10, 11, 13)] == [3, 5, 6, 7, 7, 9, 9, 11, 11]
    assert len({scheduled(n, 5) for n in range(5, 1000)}) < 25
