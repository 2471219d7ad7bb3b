"""Learning curves: how training runs will go on, and which of them to stop."""

from lkgp.curves.configurations import Configuration, Parameter, Space
from lkgp.curves.forecast import Forecast
from lkgp.curves.model import CurveModel
from lkgp.curves.stopping import EarlyStopping, FinishedRun, Verdict

__all__ = ["Configuration", "CurveModel", "EarlyStopping", "FinishedRun", "Forecast", "Parameter", "Space", "Verdict"]
