"""The posterior: mean, variance, draws and joint moments."""

from lkgp.posterior.draws import PosteriorDraws
from lkgp.posterior.moments import Cells, joint_moments, row_means, row_moments
from lkgp.posterior.posterior import Posterior, condition

__all__ = ["Cells", "Posterior", "PosteriorDraws", "condition", "joint_moments", "row_means", "row_moments"]
