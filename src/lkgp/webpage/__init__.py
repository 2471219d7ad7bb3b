"""A self-contained HTML page about filled fields: a map, time series, and whether the error bars can be trusted."""

from lkgp.webpage.page import write_page

__all__ = ["write_page"]
