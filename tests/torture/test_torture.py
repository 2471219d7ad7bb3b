"""A sample of the torture test, and the cases that once were wrong."""

import pytest
from tests.torture.problems import WAYS, problem
from tests.torture.reproductions import REPRODUCTIONS
from tests.torture.running import run

from lkgp.inference import methods

# Sixteen parts, so that two processes share them evenly.
PARTS, PROBLEMS_A_PART = 16, 12


@pytest.mark.parametrize("part", range(PARTS))
def test_nothing_is_wrong_without_a_word(part):
    outcomes = [run(seed) for seed in range(part * PROBLEMS_A_PART, (part + 1) * PROBLEMS_A_PART)]
    silent = [str(outcome) for outcome in outcomes if outcome.status == "silent"]
    assert not silent, "\n".join(silent)
    assert any(outcome.status == "right" for outcome in outcomes)


@pytest.mark.parametrize("name", REPRODUCTIONS)
def test_what_once_was_wrong_is_right(name):
    assert REPRODUCTIONS[name]() == []


def test_every_way_of_inference_is_tortured():
    library = {kind for kind in methods() if kind.__module__.startswith("lkgp.")}
    assert library <= {type(settings) for settings in WAYS.values()}


def test_a_problem_is_determined_by_its_seed():
    first, second = problem(7), problem(7)
    assert str(first) == str(second)
    assert first.Y.tobytes() == second.Y.tobytes()
