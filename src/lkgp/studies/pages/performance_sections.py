"""The sections of the page about the benchmarks that compare cases, and those about measurements of lkgp alone."""

import math

from lkgp.inference.costs import break_even
from lkgp.studies.benchmarks import REFERENCE
from lkgp.studies.pages.benchmark_records import by_case, measurement, percent_missing, robot_seconds
from lkgp.studies.records import Record

# States and joints of the robot arm.
ROBOT_SHAPE = (4449, 7)


def write(results: Record) -> list[str]:
    """The lines of all sections for which there are results."""
    return robot_section(results) + products_section(results) + growth_section(results)


def robot_section(results: Record) -> list[str]:
    """Seconds on the robot arm with and without use of the grid."""
    seconds = robot_seconds(results)
    if not seconds:
        return []
    percents = sorted({percent for found in seconds.values() for percent in found})
    lines = [
        "## With and without the grid",
        "",
        f"| seconds on SARCOS | {' | '.join(f'{percent} % missing' for percent in percents)} |",
        "|---" * (1 + len(percents)) + "|",
    ]
    for name, found in seconds.items():
        cells = [f"{found[percent]:.0f}" if percent in found else "" for percent in percents]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    chosen = ", ".join(
        f"{percent_missing(case)} %: {run['report']['method'].split(',')[0].split(':')[0]}"
        for case, runs in by_case(results, "sarcos-").items()
        for run in runs
        if run["contestant"] == REFERENCE and "report" in run
    )
    point = f"{100 * break_even(ROBOT_SHAPE):.0f} %"
    said = f"When {point} are missing, products with and without the grid need equally many multiplications."
    return [*lines, "", f"{said} lkgp chose: {chosen}.", ""]


def products_section(results: Record) -> list[str]:
    """The rate of latent Kronecker products."""
    run = measurement(results, "products")
    if run is None:
        return []
    lines = [
        "## A latent Kronecker product beside plain matrix products",
        "",
        "| factors | latent | plain | ratio |",
        "|---|---|---|---|",
    ]
    for row in run["rows"]:
        rates = f"{row['latent'] / 1e9:.0f} GFLOP/s | {row['plain'] / 1e9:.0f} GFLOP/s"
        lines.append(f"| {row['name']} | {rates} | {row['ratio']:.2f} |")
    return [*lines, ""]


def growth_section(results: Record) -> list[str]:
    """Time and memory of products and fits on balanced grids."""
    run = measurement(results, "growth")
    if run is None:
        return []
    lines = ["## Growth on balanced grids", "", "| cells | what | seconds | peak memory |", "|---|---|---|---|"]
    for kind, rows in run["rows"].items():
        lines += [
            f"| {row['cells']:.0e} | {kind} | {row['seconds']:.3g} | {row['peak memory'] / 1e9:.2f} GB |"
            for row in rows
        ]
    found = ", ".join(f"{kind} {last_exponent(rows):.2f}" for kind, rows in run["rows"].items())
    return [
        *lines,
        "",
        f"Between the two largest sizes, time grows with the number of cells to the power of: {found}. For a product, "
        f"{run['predicted']} is predicted. Small fits are mostly overhead.",
        "",
    ]


def last_exponent(rows: list[dict[str, float]]) -> float:
    """The exponent with which time grew between the two largest sizes."""
    before, after = rows[-2:]
    return math.log(after["seconds"] / before["seconds"]) / math.log(after["cells"] / before["cells"])
