"""The commands and their one-line help.

The module of a command is imported when the command runs, so that the help page and the demo need none of the packages
that other commands need.
"""

import importlib
from dataclasses import dataclass
from typing import Annotated, Any

from lkgp import __version__
from lkgp.cli.console import print_line, typer
from lkgp.cli.errors import report_missing_package


@dataclass(frozen=True)
class Entry:
    """A command that is not imported yet.

    module, function: where it is; extra: the group of optional packages that it needs; help: its first sentence
    """

    module: str
    function: str
    extra: str
    help: str


COMMANDS = {
    "fill": Entry("lkgp.cli.fill", "fill", "files", "Fill the gaps in a file, with an error bar for every cell."),
    "inspect": Entry(
        "lkgp.cli.inspect",
        "inspect",
        "files",
        "Show what is missing and how it would be filled, without fitting a model.",
    ),
    "predict": Entry("lkgp.cli.predict", "predict", "files", "Predict at other places and times with a saved model."),
    "sample": Entry(
        "lkgp.cli.sample", "sample", "files", "Draw random fields that agree with the data of a saved model."
    ),
    "validate": Entry(
        "lkgp.cli.validate", "validate", "files", "Check the error bars of a saved model on values withheld from it."
    ),
    "demo": Entry(
        "lkgp.cli.demo", "demo", "cli", "Forecast how training runs that were stopped early would have ended."
    ),
    "bench": Entry("lkgp.cli.bench", "bench", "bench", "Compare lkgp with other packages on the same data."),
    "experiment": Entry(
        "lkgp.cli.experiment",
        "experiment",
        "experiments",
        "Reproduce an experiment from the paper or a competition, or write the report.",
    ),
}


def load(name: str) -> Any:
    """Import a command, and build its command line; one sentence if an optional package is missing."""
    entry = COMMANDS[name]
    with report_missing_package(entry.extra):
        function = getattr(importlib.import_module(entry.module), entry.function)
    # Markdown joins the lines of a paragraph, so that docstrings fit the width of any terminal.
    alone = typer.Typer(add_completion=False, rich_markup_mode="markdown")
    alone.command(name)(function)
    return typer.main.get_command(alone)


class LazyGroup(typer.core.TyperGroup):
    """A group whose commands are listed by name and help, and imported when one of them is called."""

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        name, listed, rest = super().resolve_command(ctx, args)
        return name, listed if name is None else load(name), rest


app = typer.Typer(
    cls=LazyGroup,
    no_args_is_help=True,
    add_completion=False,
    help="Exact Gaussian processes for data on a grid with holes.",
)


@app.callback(invoke_without_command=True)
def common(version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False) -> None:
    if version:
        print_line(__version__)
        raise typer.Exit


def not_loaded() -> None:
    """Stands for every command in the list of commands; `LazyGroup` puts the command itself in its place."""


for _name, _entry in COMMANDS.items():
    app.command(_name, help=_entry.help)(not_loaded)


def main() -> None:
    app()
