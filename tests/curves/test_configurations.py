"""Configurations of runs as numbers."""

import numpy as np
import pandas as pd
import pytest

from lkgp import InputError
from lkgp.curves import Parameter, Space
from lkgp.curves.configurations import as_configurations


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
