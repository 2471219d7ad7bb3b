"""Measurements of the tuned numbers of lkgp, one function per number; `calibrate_costs.py` prints them."""
