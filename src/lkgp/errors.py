"""Exceptions and warnings of lkgp. Every message says what was wrong, where, and what to do."""

import sys
import warnings


class InputError(ValueError):
    """The given data or settings cannot be used."""


class FileError(ValueError):
    """A file is damaged, or is not a model file written by lkgp."""


class NotFittedError(RuntimeError):
    """A prediction was requested from a model that has not been fitted."""


class ConvergenceError(RuntimeError):
    """A solve or a fit stopped before it converged; raised only with `strict=True`."""


class TooLargeError(RuntimeError):
    """A computation exceeds its limits at the current hyperparameters; a search then takes a shorter step."""


class ConvergenceWarning(UserWarning):
    """A solve or a fit stopped before it converged; the report says how far it got."""


def complain(message: str, strict: bool) -> None:
    """Report a failure to converge: raise an error if `strict`, else warn at the line of the caller."""
    if strict:
        raise ConvergenceError(message)
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and frame.f_globals.get("__name__", "").split(".")[0] == "lkgp":
        frame, level = frame.f_back, level + 1
    warnings.warn(message, ConvergenceWarning, stacklevel=level)
