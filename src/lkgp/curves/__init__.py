"""Learning curves: how training runs will continue, and which of them to stop."""

from lkgp.curves.configurations import Configuration, Parameter, Space
from lkgp.curves.finished import FinishedRun
from lkgp.curves.forecast import Forecast
from lkgp.curves.model import CurveModel
from lkgp.curves.stopping import EarlyStopping, Verdict

__all__ = ["Configuration", "CurveModel", "EarlyStopping", "FinishedRun", "Forecast", "Parameter", "Space", "Verdict"]
