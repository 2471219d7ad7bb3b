"""What all commands share: consoles, errors for people, exit codes, and words on the command line."""

import signal
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

try:
    import typer
    from rich.console import Console
except ModuleNotFoundError as missing:
    sys.exit(f"the command line needs {missing.name}; install it with: pip install 'lkgp[cli]'")

from lkgp.errors import ConvergenceError, FileError, InputError
from lkgp.persistence.atomic import first_line

# What was asked cannot be done; what was begun could not be finished; the user stopped it.
BAD_INPUT, FAILED, STOPPED = 2, 1, 130

out, err = Console(), Console(stderr=True)


def tell(line: str) -> None:
    """A line on standard output, as it is."""
    out.print(line, highlight=False, markup=False, soft_wrap=True)


def remark(line: str) -> None:
    """A line on standard error, as it is."""
    err.print(line, highlight=False, markup=False, soft_wrap=True)


class Stopped(BaseException):
    """The user pressed Ctrl-C. A fit in a notebook ends with the best it has then; a command just ends."""


@contextmanager
def stopped_by_ctrl_c() -> Iterator[None]:
    def stop(*_: object) -> None:
        raise Stopped

    before = signal.signal(signal.SIGINT, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def errors_for_people(
    extra: str = "files", stopped: str = "stopped; nothing was written.", quiet: bool = False
) -> Iterator[None]:
    """One sentence and an exit code instead of a traceback; warnings, too, are one line.

    extra: what to install where a package is missing; stopped: what is true after Ctrl-C; quiet: whether to leave warnings out
    """
    with warnings.catch_warnings(), stopped_by_ctrl_c():
        warnings.showwarning = lambda message, *_, **__: remark(f"warning: {message}")
        warnings.simplefilter("default", UserWarning)
        for category in (Warning,) if quiet else (DeprecationWarning, FutureWarning):
            warnings.simplefilter("ignore", category)
        try:
            yield
        except (InputError, FileError) as error:
            remark(str(error))
            raise typer.Exit(BAD_INPUT) from None
        except ConvergenceError as error:
            remark(str(error))
            raise typer.Exit(FAILED) from None
        except OSError as error:
            remark(f"a file could not be read or written: {first_line(error)}.")
            raise typer.Exit(FAILED) from None
        except (MemoryError, RuntimeError) as error:
            # torch has no error of its own for want of memory.
            if not isinstance(error, MemoryError) and "can't allocate memory" not in str(error):
                raise
            remark("there is too little memory; give --max-memory, or fill a part of the data at a time.")
            raise typer.Exit(FAILED) from None
        except ModuleNotFoundError as missing:
            remark(f"this needs {missing.name}; install it with: pip install 'lkgp[{extra}]'")
            raise typer.Exit(BAD_INPUT) from None
        except Stopped:
            remark(stopped)
            raise typer.Exit(STOPPED) from None


def bytes_of(text: str | None) -> float | None:
    """A size such as 4GB."""
    if text is None:
        return None
    units = {
        "KB": 1e3,
        "MB": 1e6,
        "GB": 1e9,
        "TB": 1e12,
        "KIB": 2.0**10,
        "MIB": 2.0**20,
        "GIB": 2.0**30,
        "B": 1.0,
        "": 1.0,
    }
    number = text.strip().upper().rstrip("BIKMGT")
    unit = text.strip().upper()[len(number) :].strip()
    try:
        return float(number) * units[unit]
    except (ValueError, KeyError):
        raise InputError(f"--max-memory is {text!r}; give a size such as 4GB.") from None
