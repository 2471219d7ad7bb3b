"""The splits are those of the paper."""

import numpy as np

from lkgp.studies.splits import cut_curves, split_generator, uniform_gaps


def test_uniform_gaps_are_those_of_the_published_splits():
    observed = uniform_gaps((5, 4), 0.3, split_generator(0))
    np.random.seed(2025)  # noqa: NPY002  (the published splits were made like this)
    withheld = np.random.choice(20, 6, replace=False)  # noqa: NPY002
    assert sorted(np.flatnonzero(~observed.ravel())) == sorted(withheld)


def test_splits_are_drawn_as_in_the_paper():
    np.random.seed(2025 + 3)  # noqa: NPY002
    chosen = np.random.choice(50, 40, replace=False)  # noqa: NPY002
    expected = np.ones((50, 12), dtype=bool)
    for row in chosen:
        expected[row, np.random.randint(12) :] = False  # noqa: NPY002
    assert np.array_equal(cut_curves((50, 12), split_generator(3), cut=0.8), expected)
    np.random.seed(2025)  # noqa: NPY002
    hidden = np.random.choice(60, 18, replace=False)  # noqa: NPY002
    observed = uniform_gaps((12, 5), 0.3, split_generator(0))
    assert set(np.flatnonzero(~observed)) == set(hidden)
