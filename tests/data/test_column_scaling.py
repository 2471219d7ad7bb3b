"""Columns that do not share a unit are scaled one by one, whatever is missing in them."""

import numpy as np
import pytest

from lkgp.data.column_scaling import ColumnScaling

DATA = np.array([[1.0, 1e6, 7.0], [3.0, np.nan, 7.0], [np.nan, 3e6, 7.0], [5.0, 5e6, np.nan]])


def test_columns_get_mean_zero_and_variance_one_and_constant_ones_keep_their_unit():
    scaling = ColumnScaling.standard(DATA)
    z = scaling.apply(DATA)
    assert np.nanmean(z, axis=0) == pytest.approx([0, 0, 0])
    assert np.nanstd(z, axis=0) == pytest.approx([1, 1, 0])
    assert scaling.scale[2] == 1
    assert np.allclose(scaling.undo(z), DATA, equal_nan=True)
    assert np.array_equal(ColumnScaling.identity(3).apply(DATA), DATA, equal_nan=True)


def test_moments_and_densities_in_the_units_of_the_data():
    scaling = ColumnScaling.standard(DATA)
    # cov of (row, column) pairs, columns fastest, by hand
    covariance = np.arange(36.0).reshape(6, 6)
    by_hand = [[covariance[i, j] * scaling.scale[i % 3] * scaling.scale[j % 3] for j in range(6)] for i in range(6)]
    assert np.allclose(scaling.undo_covariance(covariance), by_hand)
    assert np.allclose(scaling.undo_std(np.ones((2, 3))), [scaling.scale] * 2)
    assert scaling.undo_log_density(-3.0, np.array([3, 3, 3])) == pytest.approx(-3 - 3 * np.log(scaling.scale).sum())
    single = scaling.of_columns(np.array([1, 0]))
    assert np.allclose(single.undo(single.apply(np.array([2e6, 2.0]))), [2e6, 2.0])
