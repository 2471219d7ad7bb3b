"""`lkgp bench`. It needs other packages than `lkgp experiment`, and so has a module of its own."""

from pathlib import Path
from typing import Annotated

from lkgp.cli.console import print_line, typer
from lkgp.cli.errors import report_errors
from lkgp.cli.outputs import check_outputs
from lkgp.studies import benchmarks
from lkgp.studies.pages import performance


def bench(
    groups: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="GROUPS",
            help="Groups of benchmarks (curves, weather, robot, climate, products, growth, pruning) or single cases "
            "such as era5-30; by default, all groups.",
        ),
    ] = None,
    method: Annotated[
        list[str] | None,
        typer.Option(
            help="Run only this method, for example lkgp; may be repeated. Results of other methods are kept."
        ),
    ] = None,
    output: Annotated[Path, typer.Option(help="Save the results to this JSON file.")] = Path("benchmarks.json"),
    page: Annotated[Path | None, typer.Option(help="Write a Markdown page with charts to this file.")] = None,
) -> None:
    """Compare lkgp with other packages on the same data.

    Each method runs in a process of its own. Most cases need data from the folder named by the environment
    variable LKGP_DATA.
    """
    with report_errors(extra="bench", stopped="stopped; finished results were kept."):
        check_outputs({}, {"--output": output, "--page": page}, overwrite=True)
        results = benchmarks.run(groups or [], output, methods=method or [], print_line=print_line)
        if page is not None:
            performance.write(results, page)
            print_line(f"wrote {page}")
