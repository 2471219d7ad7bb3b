"""The scale of values: transforms, directions and outliers."""

import numpy as np
import pytest

from lkgp import InputError
from lkgp.curves.values import ValueScale


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
    with pytest.raises(InputError, match="positive values, but the smallest is -1"):
        ValueScale.of(np.array([-1.0, 1.0]), "minimize", "log")
    with pytest.raises(InputError, match="from 0 to 1"):
        ValueScale.of(np.array([0.5, 2.0]), "minimize", "logit")
    with pytest.raises(InputError, match="direction must be"):
        ValueScale.of(np.ones(2), "down")
