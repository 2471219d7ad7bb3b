"""`lkgp experiment`. It needs other packages than `lkgp bench`, and so has a module of its own."""

from pathlib import Path
from typing import Annotated

from lkgp.cli.console import print_line, typer
from lkgp.cli.errors import report_errors
from lkgp.cli.outputs import check_outputs
from lkgp.errors import InputError
from lkgp.studies import experiments
from lkgp.studies.pages import competition as competition_page
from lkgp.studies.pages import experiments as experiments_page


def experiment(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME",
            help="synthetic, sarcos, lcbench, climate or competition; or report, to write pages about all results.",
        ),
    ],
    preset: Annotated[
        str | None,
        typer.Option(
            help="The size: small (the default), for a computer with two cores; or paper, which takes days. Of the "
            "competition: full (the default) or quick."
        ),
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Of the competition: only a small part of the data, to try it.")
    ] = False,
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
    page: Annotated[
        Path,
        typer.Option(
            help="For report: the page to write; figures and, of the competition, competition.md are saved next to it."
        ),
    ] = Path("experiments.md"),
) -> None:
    """Reproduce an experiment from the paper or a competition, or write the report.

    The paper is Lin et al., Scalable Gaussian Processes with Latent Kronecker Structure (ICML 2025). The competition
    fills the satellite data of Heaton et al. (2019) and the space-time data of KAUST (2022). Runs whose results are
    already in the folder are not repeated.
    """
    with report_errors(extra="experiments", stopped="stopped; finished results were kept."):
        if name == "report":
            known = sorted(results.glob("*.jsonl")) if results.is_dir() else []
            second = page.with_name(competition_page.PAGE)
            outputs = {"--page": page, "the page of the competition": second}
            check_outputs({f"the results in {path.name}": path for path in known}, outputs, overwrite=True)
            if competition_page.write(results, second):
                print_line(f"wrote {second}")
            if experiments_page.has_results(results) or not known:
                experiments_page.write(results, page)
                print_line(f"wrote {page}")
            return
        if quick and preset not in (None, "quick"):
            raise InputError(f"--quick is the preset quick, and --preset says {preset}; give one of them.")
        experiments.run(
            name,
            results,
            preset="quick" if quick else preset,
            methods=method or [],
            datasets=dataset or [],
            missing=missing or [],
            seeds=seeds,
            timeout=3600 * timeout,
            print_line=print_line,
        )
