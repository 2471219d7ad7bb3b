"""Nearest neighbours against brute force."""

import numpy as np
import pytest

from lkgp.linalg.neighbours import nearest, nearest_earlier


def distances(a, b):
    return np.sqrt(((a[:, None, :] - b[None, :, :]) ** 2).sum(axis=-1))


@pytest.mark.parametrize("columns", [1, 2, 6])
@pytest.mark.parametrize("ordering", ["random", "sorted", "outer first"])
def test_earlier_neighbours_are_the_nearest_ones(columns, ordering):
    rng = np.random.default_rng(columns)
    points = rng.standard_normal((700, columns))
    if ordering == "sorted":
        points = points[np.argsort(points[:, 0])]
    if ordering == "outer first":  # the nearest points all come later
        points = points[np.argsort(-np.abs(points).sum(axis=1))]
    found = nearest_earlier(points, 7)
    between = distances(points, points)
    for i in range(len(points)):
        expected = np.sort(between[i, :i])[:7]
        chosen = found[i][found[i] >= 0]
        assert (chosen < i).all()
        assert len(np.unique(chosen)) == min(i, 7)
        np.testing.assert_allclose(between[i, chosen], expected)
        assert (found[i, len(chosen) :] == -1).all()


def test_repeated_points_are_neighbours_of_each_other():
    rng = np.random.default_rng(0)
    points = np.repeat(rng.random((20, 2)), 50, axis=0)[rng.permutation(1000)]
    found = nearest_earlier(points, 3)
    last = found[900:]
    assert (distances(points, points)[np.arange(900, 1000)[:, None], last] == 0).all()
    assert all(len(set(row)) == 3 for row in last)


@pytest.mark.parametrize("total", [1, 2, 5])
def test_few_points(total):
    points = np.arange(total, dtype=float)[:, None]
    found = nearest_earlier(points, 4)
    assert found.shape == (total, 4)
    for i in range(total):
        assert found[i].tolist() == ([*range(i - 1, -1, -1)] + [-1] * 4)[:4]
    everything = nearest(points, points, 4)
    assert everything.shape == (total, 4)
    assert (everything[:, 0] == np.arange(total)).all()
    assert (everything[:, total:] == -1).all()


def test_nearest_points():
    rng = np.random.default_rng(1)
    points, targets = rng.random((300, 3)), rng.random((40, 3))
    found = nearest(targets, points, 6)
    between = distances(targets, points)
    np.testing.assert_allclose(np.take_along_axis(between, found, axis=1), np.sort(between, axis=1)[:, :6])
