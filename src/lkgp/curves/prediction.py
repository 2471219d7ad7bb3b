"""The prediction of a new run's curve, and how its own values change it.

Given hyperparameters and the finished runs, the curve of a new run is a Gaussian process with mean m and covariance C
over its epochs before it starts. The values z_t that it reports change that in closed form,

    m' = m + C_t S^-1 (z_t - m_t),      C' = C - C_t S^-1 C_t^T,      S = C_tt + s^2 I.

How much runs differ is itself learned from only a few of them, and some runs are wilder than others. So a curve is a
Student's t process rather than a Gaussian one, with as many degrees of freedom n as there were complete runs to learn
from. Given t values of its own, it is Student's t with n + t degrees of freedom, and

    C'' = (n + (z_t - m_t)^T S^-1 (z_t - m_t)) / (n + t) C':

a run that surprises has wider error bars from then on, and one that behaves as expected has narrower ones.
"""

from dataclasses import dataclass

import numpy as np

from lkgp.curves.encoding import CurveEncoding


@dataclass(frozen=True, eq=False)
class CurvePrediction:
    """The curve of a run before it has reported anything, in the units of `encoding`.

    degrees: number of complete runs that the model was learned from
    noise: noise variance of a value
    mean: (strides,)
    covariance: without noise, (strides, strides)
    """

    encoding: CurveEncoding
    degrees: int
    noise: float
    mean: np.ndarray
    covariance: np.ndarray

    def given(self, strides: np.ndarray, z: np.ndarray) -> tuple[np.ndarray, np.ndarray, int]:
        """The prediction given its own values.

        strides: numbers of the strides that were seen, from 1, (seen,)
        z: encoded values there, (seen,)

        Returns mean and standard deviation, noise included, at all strides, each (strides,), and the degrees of
        freedom.
        """
        at = strides.astype(int) - 1
        surprise = z - self.mean[at]
        # S^-1 C_t^T and S^-1 (z_t - m_t)
        solved = np.linalg.solve(
            self.covariance[np.ix_(at, at)] + self.noise * np.eye(len(at)),
            np.column_stack([self.covariance[at], surprise]),
        )
        gain, weights = solved[:, :-1].T, solved[:, -1]
        # m' = m + C_t S^-1 (z_t - m_t)
        mean = self.mean + self.covariance[:, at] @ weights
        # diag(C - C_t S^-1 C_t^T) + s^2
        variance = (
            np.maximum(np.diag(self.covariance) - np.einsum("et,te->e", gain, self.covariance[at]), 0.0) + self.noise
        )
        degrees = self.degrees + len(at)
        # (n + (z_t - m_t)^T S^-1 (z_t - m_t)) / (n + t)
        return mean, np.sqrt((self.degrees + surprise @ weights) / degrees * variance), degrees
