"""A BoTorch model for learning curves and other grids with holes, with all of BoTorch's contract."""

from lkgp.botorch.model import LatentKroneckerGP
from lkgp.botorch.outputs import LastStep, SomeOutputs

__all__ = ["LastStep", "LatentKroneckerGP", "SomeOutputs"]
