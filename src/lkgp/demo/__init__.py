"""The demonstration: how will these training runs end?"""

from lkgp.demo.curves import Forecast, Scores, load_curves, run
from lkgp.demo.picture import check_figure_format, draw

__all__ = ["Forecast", "Scores", "check_figure_format", "draw", "load_curves", "run"]
