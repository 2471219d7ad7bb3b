"""The page about the benchmarks, with charts; every number on it is read from the recorded results."""

from pathlib import Path

from lkgp.studies.benchmarks import REFERENCE
from lkgp.studies.pages import performance_charts, performance_sections, pruning
from lkgp.studies.pages.benchmark_records import by_case, reference_run, title
from lkgp.studies.pages.published import paper_results
from lkgp.studies.records import Record

METHOD = """\
Every method runs alone in a process of its own, one after the other, on the same data, split and kernels, from
GPyTorch's default hyperparameters. The times of lkgp cover the fit, 64 joint samples at every cell, and the mean and
standard deviation of every cell. Short runs are repeated, interleaved with each other, and their median is given with
the range; long runs are done once. Where a peer would take hours, single steps along a straight path to lkgp's optimum
are measured and the others interpolated; where even one step takes many minutes, its iterations are counted and
multiplied by the time of one. In both cases only the fit counts and the quality is unknown, as the tables say.
"""

COMMAND = "LKGP_DATA=folder lkgp bench --output benchmarks.json --page docs/performance.md"


def write(results: Record, path: Path) -> None:
    """Write the page, and its charts beside it.

    results: the content of the file of results
    """
    machine = results["hardware"]
    packages = ", ".join(f"{name} {number}" for name, number in results["versions"].items())
    lines = [
        "# Performance",
        "",
        f"Measured on {results['date']} with `lkgp bench`: {machine['threads']} threads of {machine['processor']}, "
        f"{machine['memory'] / 2**30:.0f} GiB; {packages}.",
        "",
        METHOD,
        *([results["note"], ""] if "note" in results else []),
    ]
    for case, runs in by_case(results).items():
        lines += [f"## {title(case)}", "", *table(runs), ""]
        ours = reference_run(runs)
        if ours is not None:
            lines += remarks(ours)
    lines += performance_sections.write(results) + pruning.write(results)
    makers = (*performance_charts.MAKERS, pruning.chart)
    charts = [chart for make in makers if (chart := make(results, path.parent)) is not None]
    lines += ["## Charts", "", *(f"![{caption}]({name})" for name, caption in charts), ""] if charts else []
    lines += ["## How to repeat this", "", "```", COMMAND, "```", ""]
    path.write_text("\n".join(lines))


def table(runs: list[Record]) -> list[str]:
    """One case as a Markdown table."""
    ours = next((run for run in runs if run["contestant"] == REFERENCE), None)
    lines = [
        "| method | seconds | peak memory | test NLL | test RMSE | times slower than lkgp |",
        "|---|---|---|---|---|---|",
    ]
    for run in runs:
        if "failed" in run:
            lines.append(f"| {run['contestant']} | {run['failed']} | | | | |")
            continue
        quality = [f"{run[name]:.3f}" if name in run else "not run to its end" for name in ("nll", "rmse")]
        ratio = (
            f"{run['total'] / ours['total']:.1f}" if ours is not None and run is not ours and "total" in ours else ""
        )
        stages = " + ".join(f"{name} {seconds:.1f}" for name, seconds in run["seconds"].items())
        how = f"; {run['how']}" if "how" in run else ""
        times = run.get("totals", [])
        how += f"; the median of {len(times)} runs, {min(times):.1f} to {max(times):.1f}" if len(times) > 1 else ""
        memory = f"{run['peak memory'] / 1e9:.2f} GB"
        lines.append(
            f"| {run['contestant']} | {run['total']:.1f} ({stages}{how}) | {memory} | {' | '.join(quality)} | {ratio} |"
        )
    return lines


def remarks(run: Record) -> list[str]:
    """What else there is to say about a run of lkgp."""
    report = run["report"]
    lines = [f"lkgp: {report['method']}; fit: {report['fit']} ({report['steps']} evaluations on the whole data)."]
    if report["predicted"]:
        predicted, peak = report["predicted"]["memory"] / 1e9, run["peak memory"] / 1e9
        lines.append(f"The predicted memory of the posterior is {predicted:.1f} GB, and the peak {peak:.1f} GB.")
    if run.get("truth"):
        lines += simulation_remarks(run)
    return [" ".join(lines), ""]


def simulation_remarks(run: Record) -> list[str]:
    """Simulated data: the time beside the paper's for the same size, and the recovered hyperparameters."""
    minutes = paper_minutes(run)
    seconds = 60 * minutes / run["product"]
    pairs = ", ".join(f"{name} {run['recovered'][name]:.4g} (true {value:.4g})" for name, value in run["truth"].items())
    return [
        f"This is the time of {run['total'] / run['product']:.0f} latent Kronecker products with a single vector in "
        f"float32 ({run['product']:.3f} s each in the same process). The paper's LKGP took {minutes:.1f} minutes on "
        f"Nordic temperatures of that size, on an A100: as long as {seconds:.0f} such products here.",
        f"Hyperparameters: {pairs}.",
    ]


def paper_minutes(run: Record) -> float:
    """The minutes of the paper's LKGP on a climate with the same share missing."""
    return paper_results()[(f"temperature {run['case'].rpartition('-')[2]}%", "LKGP", "minutes_a100")][0]
