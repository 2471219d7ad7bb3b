"""The class that most people use: arrays in, arrays out, in their own units."""

from lkgp.gp.lkgp import LKGP

__all__ = ["LKGP"]
