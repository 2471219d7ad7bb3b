"""`lkgp experiment`. It needs other packages than `lkgp bench`, and so has a module of its own."""

from pathlib import Path
from typing import Annotated

from lkgp.cli.console import print_line, typer
from lkgp.cli.errors import report_errors
from lkgp.errors import InputError
from lkgp.studies import plans, report, runs, synthetic


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
            report.write(results, page)
            print_line(f"wrote {page}")
            return
        if name not in plans.EXPERIMENTS:
            raise InputError(f"there is no experiment {name!r}; choose from {', '.join(plans.EXPERIMENTS)}, report.")
        results.mkdir(parents=True, exist_ok=True)
        if name == "synthetic":
            synthetic.measure(results / "synthetic.jsonl", print_line)
            return
        chosen = plans.plan(
            name, preset, methods=method or [], datasets=dataset or [], ratios=missing or [], seeds=seeds
        )
        runs.run_all(chosen, results / f"{name}.jsonl", print_line, 3600 * timeout)
        if name == "sarcos":
            synthetic.measure_break_even(results / "break_even.jsonl", print_line)
