"""Verdicts are those of the exact model, whoever asks for them."""

import pickle

import numpy as np
import pytest
import torch
from training_runs import EPOCHS, dense_twin, simulated

from lkgp import InputError
from lkgp.curves import EarlyStopping, FinishedRun
from lkgp.curves.comparison import COMPARED_RUNS, learning_size


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
    encoding, learned, degrees = stopping._model.learn(finished)
    assert degrees == sum(run.complete for run in finished) == 11
    (points, times), values = stopping._model.grid(encoding, finished)
    every = encoding.times(np.arange(1, EPOCHS + 1))
    whole = np.full((len(points) + 1, EPOCHS), np.nan)
    whole[:-1, np.searchsorted(every, times - 1e-9)] = values
    rows, noise = (
        np.vstack([points, encoding.points(configurations, np.array([99.0]))]),
        learned.noise_variance().item(),
    )
    without = dense_twin(learned, rows, every, whole)
    whole[-1, :6] = encoding.scale.apply(curves[0][:6])
    oracle = dense_twin(learned, rows, every, whole)
    own, begun = [oracle.coords[0][-1:], every[:, None]], [oracle.coords[0][-1:], every[:6, None]]
    mean = oracle.mean_at(own)[0]
    assert np.allclose(forecast.median, encoding.scale.undo(mean), rtol=1e-6)
    # how far its first six values are from what was expected before, in standard deviations: six or so of their squares
    surprise = whole[-1, :6] - without.mean_at(begun)[0]
    squares = surprise @ np.linalg.solve(without.covariance_at(begun).reshape(6, 6) + noise * np.eye(6), surprise)
    variance = (oracle.variance_at(own)[0] + noise) * (11 + squares) / 17
    # the 95th percentile of Student's t with 11 + 6 degrees of freedom
    assert np.allclose(forecast.upper, encoding.scale.undo(mean + 1.7396067 * np.sqrt(variance)), rtol=1e-6)
    best = min(run.curve[EPOCHS] for run in finished if run.complete)
    assert forecast.best == best
    x = np.linspace(-400, 400, 4_000_001)
    density = (1 + x**2 / 17) ** (-(17 + 1) / 2)
    below = x <= (float(encoding.scale.apply(np.array(best))) - mean[-1]) / np.sqrt(variance[-1])
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
    assert "ended with the same value" in verdict.why
    silent = [FinishedRun(10 + i, {"x": i}, {}, True) for i in range(50)]
    assert (
        "once 5 of them are complete; 0 are"
        in EarlyStopping(10, n_startup_runs=5).judge(99, {"x": 3}, {1: 0.099}, silent).why
    )


def test_when_there_is_nothing_to_judge_by(finished):
    stopping = EarlyStopping(EPOCHS, n_startup_runs=12, n_warmup_epochs=3)
    assert "has not reported a value yet" in stopping.judge(50, {}, {}, finished).why
    assert not stopping.judge(50, {}, {5: 1.0}, finished).stop
    assert "once 12 of them are complete" in stopping.judge(50, {}, {5: 1.0}, finished).why
    assert stopping.judge(50, {}, {4: 1.0, 5: np.nan}, finished).stop
    stopping = EarlyStopping(EPOCHS, n_startup_runs=5, n_warmup_epochs=3)
    assert "after their first 3 epochs" in stopping.judge(50, {}, {3: 1.0}, finished).why
    assert stopping.judge(50, {}, {3: np.nan}, finished).stop
    assert stopping.judge(50, finished[0].configuration, {4: 1.0}, finished).forecast is not None
    assert "is complete" in stopping.judge(50, finished[0].configuration, {EPOCHS: 1.0}, finished).why
    for settings in ({"last_epoch": 0}, {"last_epoch": 5, "threshold": 0.0}, {"last_epoch": 5, "n_startup_runs": 0}):
        with pytest.raises(InputError):
            EarlyStopping(**settings)


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
    assert [learning_size(n, 5) for n in (3, 5, 6, 7, 8, 9, 10, 11, 13)] == [3, 5, 6, 7, 7, 9, 9, 11, 11]
    assert len({learning_size(n, 5) for n in range(5, 1000)}) < 25
