"""`lkgp experiment`. It needs other packages than `lkgp bench`, and so has a module of its own."""

from pathlib import Path
from typing import Annotated

from lkgp.cli.console import print_line, typer
from lkgp.cli.errors import report_errors
from lkgp.cli.outputs import check_outputs
from lkgp.studies import experiments
from lkgp.studies.pages import experiments as experiments_page


def experiment(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME", help="synthetic, sarcos, lcbench or climate; or report, to write a page about all results."
        ),
    ],
    preset: Annotated[
        str, typer.Option(help="The size: small, for a computer with two cores; or paper, which takes days.")
    ] = "small",
    method: Annotated[list[str] | None, typer.Option(help="Run only this method; may be repeated.")] = None,
    dataset: Annotated[list[str] | None, typer.Option(help="Use only this dataset; may be repeated.")] = None,
    missing: Annotated[
        list[float] | None, typer.Option(help="Use only this share of missing cells; may be repeated.")
    ] = None,
    seeds: Annotated[
        int | None, typer.Option(help="The number of random seeds; by default, that of the preset.")
    ] = None,
    timeout: Annotated[float, typer.Option(help="The time limit for each run, in hours.", min=0.0)] = 2.0,
    results: Annotated[Path, typer.Option(help="The folder of the results, to which new ones are added.")] = Path(
        "results"
    ),
    page: Annotated[Path, typer.Option(help="For report: the page to write; figures are saved next to it.")] = Path(
        "experiments.md"
    ),
) -> None:
    """Reproduce an experiment from the paper, or write the report.

    The paper is Lin et al., Scalable Gaussian Processes with Latent Kronecker Structure (ICML 2025). Runs whose
    results are already in the folder are not repeated.
    """
    with report_errors(extra="experiments", stopped="stopped; finished results were kept."):
        if name == "report":
            known = sorted(results.glob("*.jsonl")) if results.is_dir() else []
            check_outputs({f"the results in {path.name}": path for path in known}, {"--page": page}, overwrite=True)
            experiments_page.write(results, page)
            print_line(f"wrote {page}")
            return
        experiments.run(
            name,
            results,
            preset=preset,
            methods=method or [],
            datasets=dataset or [],
            missing=missing or [],
            seeds=seeds,
            timeout=3600 * timeout,
            print_line=print_line,
        )
