"""Scores are in the units of the data."""

from dataclasses import replace

import numpy as np
import pytest
import scipy.stats

from lkgp.curves.values import ValueScale
from lkgp.studies.cases.lcbench import CurveUnits
from lkgp.studies.scoring import crps_by_quantiles, scores
from lkgp.studies.units import Plain


def test_predictions_in_other_units_are_scored_in_those_of_the_data():
    """A Gaussian for the logarithm of shifted values is a log-normal for the values."""
    generator = np.random.default_rng(1)
    values = np.exp(generator.standard_normal(40))
    scale = replace(ValueScale.of(values, "minimize", "log"), knee=np.inf)
    inside = CurveUnits(scale, shift=0.5, width=2.0)
    y = (values - 0.5) / 2.0
    mean, std = inside.apply(y) + 0.3 * generator.standard_normal(40), generator.uniform(0.2, 0.9, 40)
    found = scores(inside, y, mean, std, (0.5, 0.95))
    # log(2 y + 0.5) has mean m and deviation s
    m, s = mean * scale.scale + scale.shift, std * scale.scale
    law = scipy.stats.lognorm(s=s, scale=np.exp(m) / 2.0, loc=-0.25)
    assert found["nll"] == pytest.approx(-law.logpdf(y).mean(), rel=1e-9)
    assert found["rmse"] == pytest.approx(np.sqrt(np.mean((law.median() - y) ** 2)), rel=1e-9)
    assert found["in_50"] == pytest.approx(np.mean((law.ppf(0.25) <= y) & (y <= law.ppf(0.75))))
    draws = law.rvs((40_000, 40), random_state=2)
    crps = np.abs(draws - y).mean() - 0.5 * np.abs(draws[::2] - draws[1::2]).mean()
    assert found["crps"] == pytest.approx(crps, rel=0.03)
    plain = scores(Plain(), y, mean, std, (0.95,))
    assert plain["crps"] == pytest.approx(crps_by_quantiles(Plain(), y, mean, std), rel=0.01)
    assert plain["nll"] == pytest.approx(-scipy.stats.norm(mean, std).logpdf(y).mean())
