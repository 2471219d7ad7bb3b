"""Threads that share one fitted model get the answers of one thread alone; `tests/torture` runs many more rounds."""

import copy
import pickle

import numpy as np
import pytest
from growing_draws import evaluate_everywhere
from shared_models import (
    THREADS,
    Count,
    at_once,
    botorch_kind,
    curves_kind,
    expected_answers,
    field_kind,
    fitting_kind,
    lkgp_kind,
    pruner_kind,
    share,
    sklearn_kinds,
    tasks_kind,
    values_with_gaps,
)
from training_runs import simulated

from lkgp import LKGP, Direct, Spectral
from lkgp.concurrency import Lock
from lkgp.curves import CurveModel

KINDS = {
    "direct": lambda: lkgp_kind("direct", Direct()),
    "eigenbasis": lambda: lkgp_kind("eigenbasis", Spectral(num_samples=4), tolerance=1e-8),
    "tasks": tasks_kind,
    "field": field_kind,
    "curves": curves_kind,
    "table": lambda: next(sklearn_kinds()),
    "botorch": botorch_kind,
    "pruner": pruner_kind,
    "fits": fitting_kind,
}


def check(count):
    assert not count.errors
    assert not count.different
    assert count.answers


@pytest.mark.parametrize("make", KINDS.values(), ids=KINDS)
def test_threads_get_the_answers_of_one_alone(make):
    kind = make()
    check(share(kind, 1, expected_answers(kind), Count()))


def test_draws_are_the_same_functions_for_all_threads_while_points_are_added():
    check(evaluate_everywhere(1, Count()))


def test_no_update_is_lost_and_predictions_are_those_of_some_state():
    """Threads add one row each, while others predict."""
    coords, y = values_with_gaps()
    complete = np.nan_to_num(y, nan=0.5)
    start = np.where(np.arange(len(y))[:, None] == 0, complete, np.nan)
    gp, count = LKGP(solver=Direct()).fit(coords, start, optimize=False), Count()
    rows = [np.where(np.arange(len(y))[:, None] == row, complete, np.nan) for row in range(1, len(y))]
    at_once([*(lambda row=row: gp.update(row) for row in rows), *(gp.predict for _ in range(3))], count)
    assert not count.errors
    assert gp.report_.observed == y.size
    together = LKGP(solver=Direct()).fit(coords, complete, optimize=False)
    # The scale of the values is that of the first fit, which changes the prior slightly, so only cells are compared.
    np.testing.assert_array_equal(gp.observations_.values.numpy(), together.observations_.values.numpy())


def test_no_epochs_of_a_curve_are_lost():
    configurations, curves = simulated(THREADS)
    model, count = CurveModel(last_epoch=10).fit(configurations, curves[:, :3]), Count()
    tasks = [lambda run=run: model.add(run, {4: curves[run, 3]}) for run in range(THREADS - 1)]
    at_once([*tasks, model.forecasts], count)
    assert not count.errors
    assert [len(epochs) for epochs, _ in model.curves_] == [4] * (THREADS - 1) + [3]
    assert model.report_.observed == 4 * THREADS - 1


def test_a_copy_of_a_lock_is_a_free_one():
    lock, count = Lock(), Count()
    with lock:
        for other in (copy.deepcopy(lock), pickle.loads(pickle.dumps(lock))):
            at_once([other.__enter__], count)
    assert not count.errors
