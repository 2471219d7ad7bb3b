"""The command line."""

from typing import Annotated

from lkgp import __version__
from lkgp.cli.common import out, typer
from lkgp.cli.fields import fill_gaps, inspect_file, predict_field, sample_field, validate_field
from lkgp.cli.studies import run_benchmarks, run_experiment, show_demo

app = typer.Typer(
    no_args_is_help=True, add_completion=False, help="Exact Gaussian processes for data on a grid with holes."
)


@app.callback(invoke_without_command=True)
def common(version: Annotated[bool, typer.Option("--version", help="Print the version and stop.")] = False) -> None:
    if version:
        out.print(__version__)
        raise typer.Exit


app.command("fill")(fill_gaps)
app.command("inspect")(inspect_file)
app.command("predict")(predict_field)
app.command("sample")(sample_field)
app.command("validate")(validate_field)
app.command("demo")(show_demo)
app.command("bench")(run_benchmarks)
app.command("experiment")(run_experiment)


def main() -> None:
    app()
