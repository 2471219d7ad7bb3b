"""One sentence and an exit code instead of a traceback."""

import signal
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

from lkgp.cli.console import print_note, typer
from lkgp.errors import ConvergenceError, FileError, InputError
from lkgp.persistence.atomic import first_line

# Exit codes: the request cannot be fulfilled; the work was begun but failed; the user stopped it.
BAD_INPUT, FAILED, STOPPED = 2, 1, 130


class Stopped(BaseException):
    """The user pressed Ctrl-C. A fit in a notebook then returns the best model so far; a command just ends."""


@contextmanager
def stopped_by_ctrl_c() -> Iterator[None]:
    """Raise `Stopped` instead of KeyboardInterrupt, which a fit would catch."""

    def stop(*_: object) -> None:
        raise Stopped

    before = signal.signal(signal.SIGINT, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def report_missing_package(extra: str) -> Iterator[None]:
    """One sentence if an optional package cannot be imported; extra: the group of packages to install."""
    try:
        yield
    except ModuleNotFoundError as missing:
        if missing.name is None or missing.name.partition(".")[0] == "lkgp":
            raise  # a defect of this program, not of the installation
        package = missing.name.partition(".")[0]
        print_note(f"this command needs the package {package}; install it with: pip install 'lkgp[{extra}]'")
        raise typer.Exit(BAD_INPUT) from None


@contextmanager
def report_errors(
    extra: str = "files", stopped: str = "stopped; nothing was written.", quiet: bool = False
) -> Iterator[None]:
    """Turn errors into one sentence and an exit code, and warnings into one line each.

    extra: the group of packages to install if one is missing
    stopped: what to say after Ctrl-C
    quiet: whether to hide warnings
    """
    with warnings.catch_warnings(), stopped_by_ctrl_c(), report_missing_package(extra):
        warnings.showwarning = lambda message, *_, **__: print_note(f"warning: {message}")
        warnings.simplefilter("default", UserWarning)
        for category in (Warning,) if quiet else (DeprecationWarning, FutureWarning):
            warnings.simplefilter("ignore", category)
        try:
            yield
        except (InputError, FileError) as error:
            print_note(str(error))
            raise typer.Exit(BAD_INPUT) from None
        except ConvergenceError as error:
            print_note(str(error))
            raise typer.Exit(FAILED) from None
        except OSError as error:
            print_note(f"a file could not be read or written: {first_line(error)}.")
            raise typer.Exit(FAILED) from None
        except (MemoryError, RuntimeError) as error:
            # torch has no error class of its own for a lack of memory.
            if not isinstance(error, MemoryError) and "can't allocate memory" not in str(error):
                raise
            print_note("there is not enough memory; set a limit with --max-memory, or fill a smaller part of the data.")
            raise typer.Exit(FAILED) from None
        except Stopped:
            print_note(stopped)
            raise typer.Exit(STOPPED) from None
