"""The demonstration: how will these training runs end?"""

from lkgp.demo.curves import Forecast, Scores, load_curves, run
from lkgp.demo.picture import draw

__all__ = ["Forecast", "Scores", "draw", "load_curves", "run"]
