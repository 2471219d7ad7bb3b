"""`lkgp demo`."""

import time
from pathlib import Path
from typing import Annotated

from rich.table import Table

import lkgp.demo
from lkgp.cli.console import err, out, print_line, typer
from lkgp.cli.errors import report_errors
from lkgp.cli.outputs import check_outputs


def demo(
    output: Annotated[Path, typer.Option(help="Write the figure to this file.")] = Path("demo.png"),
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Do not show progress.")] = False,
) -> None:
    """Forecast how training runs that were stopped early would have ended.

    The demonstration fits a model to the learning curves, scores its forecast on the values withheld from it, and draws
    a figure.
    """
    with report_errors(extra="cli", stopped="stopped; no figure was written."):
        check_outputs({}, {"--output": output}, overwrite=True)
        lkgp.demo.check_figure_format(output)
        began = time.perf_counter()
        with err.status("fitting 300 learning curves ...") as status:
            forecast = lkgp.demo.run(
                progress=False if quiet else lambda step, value: status.update(f"step {step}, objective {value:.4f}")
            )
            status.update("drawing ...")
            lkgp.demo.draw(forecast, output)
        print_line(
            "300 small networks were trained on scikit-learn's digits; "
            "240 of them were stopped after 2 to 20 of 40 epochs."
        )
        print_line("What would their validation accuracy have been in the epochs that were withheld?\n")
        print_line(str(forecast.gp.report_))
        print_line("")
        out.print(score_table(forecast))
        print_line(f"\nwrote {output} in {time.perf_counter() - began:.0f} s")


def score_table(forecast: lkgp.demo.Forecast) -> Table:
    """The scores of the model beside those of the last value."""
    table = Table(title=f"scores on the {int(forecast.hidden.sum())} withheld values")
    for title in ("forecast", "RMSE", "NLL", "in 50 %", "in 80 %", "in 95 %"):
        table.add_column(title, justify="left" if title == "forecast" else "right")
    for title, scores in (("lkgp", forecast.ours), ("last value", forecast.naive)):
        table.add_row(title, f"{scores.rmse:.4f}", f"{scores.nll:.3f}", *(f"{share:.1%}" for share in scores.coverage))
    return table
