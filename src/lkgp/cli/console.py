"""Standard output and standard error."""

import sys

try:
    import typer
    import typer.core
    import typer.main
    from rich.console import Console
except ModuleNotFoundError as missing:
    package = str(missing.name).partition(".")[0]
    sys.exit(f"the command line needs the package {package}; install it with: pip install 'lkgp[cli]'")

__all__ = ["err", "out", "print_line", "print_note", "typer"]

out, err = Console(), Console(stderr=True)


def print_line(line: str) -> None:
    """Print to standard output, without markup or wrapping."""
    out.print(line, highlight=False, markup=False, soft_wrap=True)


def print_note(line: str) -> None:
    """Print to standard error, without markup or wrapping."""
    err.print(line, highlight=False, markup=False, soft_wrap=True)
