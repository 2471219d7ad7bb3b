"""Measurements of lkgp's products: their rate, and how time and memory grow with the grid."""

from lkgp.studies.registry import MEASUREMENTS, Measurement

MEASUREMENTS.register(Measurement("products", "products", "measurements.products:measure", order=1))
MEASUREMENTS.register(Measurement("growth", "growth", "measurements.growth:measure", order=2))
