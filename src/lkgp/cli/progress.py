"""The progress of long computations, on standard error."""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from lkgp.cli.console import err, print_note
from lkgp.report import progress_text


@contextmanager
def fit_progress(activity: str, quiet: bool) -> Iterator[Callable[[int, float], None] | bool]:
    """A callback for the steps of a fit: a status line on a terminal, one line per step elsewhere; False if quiet."""
    if quiet:
        yield False
        return
    with err.status(f"{activity} ...") as status:
        if not err.is_terminal:
            print_note(f"{activity} ...")

        def show_step(count: int, value: float) -> None:
            line = f"{activity}: {progress_text(count, value)}"
            status.update(line)
            if not err.is_terminal:
                print_note(line)

        yield show_step


class NoteHandler(logging.Handler):
    """Prints log records to standard error."""

    def emit(self, record: logging.LogRecord) -> None:
        print_note(record.getMessage())


@contextmanager
def solve_progress(quiet: bool) -> Iterator[None]:
    """Print what is logged about the progress of long solves."""
    if quiet:
        yield
        return
    logger, handler = logging.getLogger("lkgp.posterior"), NoteHandler(logging.INFO)
    before = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before)
