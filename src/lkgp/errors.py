"""What lkgp raises and warns. Every message says what was wrong, where, and what to do."""

import sys
import warnings


class InputError(ValueError):
    """The data or the settings that were given cannot be used."""


class FileError(ValueError):
    """A file is not a model that lkgp wrote, or it is damaged."""


class NotFittedError(RuntimeError):
    """A prediction was asked of a model that has seen no data."""


class ConvergenceError(RuntimeError):
    """With `strict=True`: a solve or a fit stopped before it had converged."""


class TooLargeError(RuntimeError):
    """Something cannot be computed for the present hyperparameters within its limits; a search steps back from
    there.
    """


class ConvergenceWarning(UserWarning):
    """A solve or a fit stopped before it had converged; the report says by how much."""


def complain(message: str, strict: bool) -> None:
    """Say that something did not converge: by an error where that was asked for, else by a warning at the caller's
    own line.
    """
    if strict:
        raise ConvergenceError(message)
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and frame.f_globals.get("__name__", "").split(".")[0] == "lkgp":
        frame, level = frame.f_back, level + 1
    warnings.warn(message, ConvergenceWarning, stacklevel=level)
