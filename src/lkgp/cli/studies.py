"""Commands that show and measure: the demo, the benchmarks and the paper's experiments."""

import time
from pathlib import Path
from typing import Annotated

from rich.table import Table

from lkgp import demo
from lkgp.cli.common import BAD_INPUT, err, errors_for_people, out, tell, typer
from lkgp.studies import benchmarks, experiments
from lkgp.studies.pages import experiments as experiments_page
from lkgp.studies.pages import performance

KEPT = "stopped; the results that were finished are kept."


def show_demo(
    output: Annotated[Path, typer.Option(help="Where to write the picture.")] = Path("demo.png"),
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress on standard error.")] = False,
) -> None:
    """Continue training runs that were stopped early: fit, forecast, score, and draw a picture."""
    if not output.parent.is_dir():
        err.print(f"the folder {output.parent} is not there; give --output a path in a folder that is.")
        raise typer.Exit(BAD_INPUT)
    began = time.perf_counter()
    with err.status("fitting 300 learning curves ...") as status:
        forecast = demo.run(
            progress=False if quiet else lambda step, value: status.update(f"step {step}, objective {value:.4f}")
        )
        status.update("drawing ...")
        demo.draw(forecast, output)
    out.print(
        "300 small networks were trained on scikit-learn's digits; 240 of them are stopped after 2 to 20 of 40 epochs."
    )
    out.print("What will their validation accuracy be in the epochs that were withheld?\n")
    out.print(str(forecast.gp.report_), highlight=False)
    out.print()
    table = Table(title=f"on the {int(forecast.hidden.sum())} withheld values")
    for title in ("forecast", "RMSE", "NLL", "in 50 %", "in 80 %", "in 95 %"):
        table.add_column(title, justify="left" if title == "forecast" else "right")
    for title, scores in (("lkgp", forecast.ours), ("last value", forecast.naive)):
        table.add_row(title, f"{scores.rmse:.4f}", f"{scores.nll:.3f}", *(f"{share:.1%}" for share in scores.coverage))
    out.print(table)
    out.print(f"\nwrote {output} after {time.perf_counter() - began:.0f} s")


def run_benchmarks(
    groups: Annotated[
        list[str] | None,
        typer.Argument(
            help="curves, weather, robot, climate, products, growth, pruning; or a case such as era5-30; all by default."
        ),
    ] = None,
    contestant: Annotated[
        list[str] | None,
        typer.Option(help="Only this one, such as lkgp; may be repeated. The others' results are kept."),
    ] = None,
    output: Annotated[Path, typer.Option(help="Where to keep the results.")] = Path("benchmarks.json"),
    page: Annotated[Path | None, typer.Option(help="Where to write a page with charts about them.")] = None,
) -> None:
    """Run lkgp and its neighbours on the same data, each in a process of its own; most cases read the folder that LKGP_DATA names."""
    with errors_for_people(stopped=KEPT):
        results = benchmarks.run(groups or [], output, contestants=contestant or [], print_line=tell)
    if page is not None:
        performance.write(results, page)
        out.print(f"wrote {page}")


def run_experiment(
    name: Annotated[str, typer.Argument(help="synthetic, sarcos, lcbench, climate; or report, which writes the page.")],
    preset: Annotated[str, typer.Option(help="small, for two cores; or paper, for days.")] = "small",
    method: Annotated[list[str] | None, typer.Option(help="Only this method; may be repeated.")] = None,
    dataset: Annotated[list[str] | None, typer.Option(help="Only this data; may be repeated.")] = None,
    missing: Annotated[
        list[float] | None, typer.Option(help="Only this share of missing cells; may be repeated.")
    ] = None,
    seeds: Annotated[int | None, typer.Option(help="How many seeds; those of the preset by default.")] = None,
    timeout: Annotated[float, typer.Option(help="Hours that one run may take.", min=0.0)] = 2.0,
    results: Annotated[Path, typer.Option(help="The folder of the results, to which new ones are added.")] = Path(
        "results"
    ),
    page: Annotated[Path, typer.Option(help="The page that `report` writes, with its figures beside it.")] = Path(
        "experiments.md"
    ),
) -> None:
    """Run one of the paper's experiments; what was done before is not done again."""
    with errors_for_people(stopped=KEPT):
        if name == "report":
            experiments_page.write(results, page)
            tell(f"wrote {page}")
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
            print_line=tell,
        )
