"""What counts as wrong, in posterior units. This is the only place with tolerances.

Every quantity has a tolerance where it is computed exactly and one where it rests on iterative solves. Computations in
float32 have a third.
"""

from dataclasses import dataclass

from scipy import stats


@dataclass(frozen=True)
class Tolerance:
    """exact, solved, single: for direct computations, for iterative ones, and in float32; unit: in words."""

    exact: float
    solved: float
    single: float
    unit: str


# Errors of solves may cost a fit GRADIENT_NATS rtol^2 = 0.2 nats (lkgp.inference.estimated), which is what g^2 / 2 nats
# are for a gradient that is off by g posterior standard deviations.
GRADIENT_ERROR = 0.63
# A tenth of a standard deviation is the error that the library promises for solves (lkgp.inference.base.SMALL_ERROR).
TOLERANCES = {
    "mean": Tolerance(0.01, 0.1, 0.2, "posterior standard deviations"),
    "standard deviation": Tolerance(0.01, 0.1, 0.2, "relative"),
    "sampled standard deviation": Tolerance(0.1, 0.1, 0.2, "relative; the tolerance is beyond the sampling error"),
    "rows": Tolerance(0.01, 0.1, 0.2, "mean and standard deviation of single cells, as above"),
    "covariance": Tolerance(0.02, 0.1, 0.2, "of the product of two posterior standard deviations"),
    "samples": Tolerance(
        0.1, 0.1, 0.2, "standard errors of the mean; the tolerance is in standard deviations, beyond them"
    ),
    "sample covariance": Tolerance(0.1, 0.2, 0.4, "standard errors; the tolerance is as for covariances, beyond them"),
    "likelihood": Tolerance(1e-3, 1e-3, 0.5, "nats"),
    "estimated likelihood": Tolerance(1e-2, 1e-2, 0.5, "stated standard errors; the tolerance is in nats, beyond ten"),
    "gradient": Tolerance(
        0.01, GRADIENT_ERROR, GRADIENT_ERROR, "posterior standard deviations of the logarithm of a hyperparameter"
    ),
}
# Standard errors of a likelihood that are not yet wrong. With 8 probes, Student's t has 7 degrees of freedom, and
# exceeds 10 in 2 of 100,000 cases.
STATED_ERRORS = 10.0
# The chance, for every single number, that a sampling error is taken for a mistake: there are about a million numbers.
FALSE_ALARM = 1e-9
# The normal quantile of that chance.
NORMAL_LIMIT = float(stats.norm.isf(FALSE_ALARM))
# Draws at some cells are those at all cells up to the rounding of the products, in posterior standard deviations.
SAME_DRAWS = {"exact": 1e-3, "solved": 1e-3, "single": 0.2}
# Rounding of the entries of a kernel, which the likelihood and its gradient multiply by products of the weights a: of
# note only for values that the model does not expect.
ENTRY_ROUNDING = 10 * 2.0**-53


def chi_square_limits(num):
    """The smallest and the largest ratio of a variance estimated from `num` deviations to the true one."""
    return stats.chi2.ppf(FALSE_ALARM, num) / num, stats.chi2.isf(FALSE_ALARM, num) / num
