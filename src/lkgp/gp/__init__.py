"""The main class, `LKGP`: arrays in, arrays out, in the caller's units."""

from lkgp.gp.lkgp import LKGP

__all__ = ["LKGP"]
