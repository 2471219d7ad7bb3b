"""Predicted costs of factors without a matrix, and of solves preconditioned by nearest neighbours."""

import numpy as np
import pytest
import torch
from factor_checks import kernel_of

from lkgp import ObservationSpace, Spectral, from_array
from lkgp.inference.choice import propose
from lkgp.inference.costs import PlanningProblem
from lkgp.inference.neighbour_costs import iterations_on_parts, iterations_with
from lkgp.linalg.factors import base
from lkgp.linalg.preconditioners import Vecchia
from lkgp.model import LatentKroneckerGP


def problem(places=60):
    """Scattered places and times with gaps, rough in both."""
    rng = np.random.default_rng(0)
    values = np.where(rng.uniform(size=(places, 8)) < 0.3, np.nan, rng.standard_normal((places, 8)))
    points = rng.uniform(size=(places, 2)), np.arange(8.0)[:, None]
    model = LatentKroneckerGP([kernel_of("0.5", 0.3), kernel_of("0.5", 2.0)]).double()
    return model, from_array([torch.as_tensor(x) for x in points], torch.as_tensor(values))


@pytest.mark.parametrize(("eigenvalues", "count"), [([3.0] * 9, 1), ([1.0, 2.0] * 9, 2), ([1.0, 5.0, 0.3] * 4, 3)])
def test_conjugate_gradients_take_as_many_iterations_as_there_are_eigenvalues(eigenvalues, count):
    assert iterations_with(np.array(eigenvalues)) == count


def test_all_earlier_cells_as_neighbours_take_one_iteration_and_fewer_take_more():
    model, data = problem(places=20)
    counts = [iterations_on_parts(PlanningProblem(model, data), Vecchia(neighbours=n)) for n in (1000, 20, 2)]
    assert counts[0] == 1
    assert counts[0] < counts[1] < counts[2]


def test_an_eigenbasis_that_cannot_be_computed_is_not_planned(monkeypatch):
    model, data = problem()
    assert not Spectral().plan(PlanningProblem(model, data)).obstacle
    monkeypatch.setattr(base, "MOST_DENSE_POINTS", 20)
    monkeypatch.setattr(base, "MOST_MODES_BY_ROWS", 10)
    assert "too many to compute row by row" in Spectral().plan(PlanningProblem(model, data)).obstacle
    assert not isinstance(propose(model, data).method, Spectral)
    assert propose(model, data, ObservationSpace()).obstacle == ""
