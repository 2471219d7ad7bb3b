"""The section about climate with missing values."""

from pathlib import Path

from lkgp.studies.pages import figures
from lkgp.studies.pages.published import paper_results
from lkgp.studies.pages.sections import latest, measured_on, method_names, tables_over_missing
from lkgp.studies.records import read


def write(results: Path, page: Path) -> list[str]:
    """The lines of the section; its figures are written beside the page."""
    records = latest(read(results / "climate.jsonl"))
    if not records:
        return []
    lines = ["## Climate with missing values (table 2)", ""]
    for dataset, preset in dict.fromkeys((r["dataset"], r["preset"]) for r in records):
        chosen = [r for r in records if (r["dataset"], r["preset"]) == (dataset, preset)]
        picture = page.with_name(f"experiment-climate-{dataset.replace('/', '-')}-{preset}.png")
        figures.over_missing(chosen, method_names(), picture, {})
        cells = next((r["cells"] for r in chosen if "cells" in r), 0)
        lines += [
            f"### {dataset}, {cells} cells, {preset} preset",
            "",
            f"`lkgp experiment climate --preset {preset} --dataset {dataset}`",
            "",
            f"![Scores, time and memory over the share of missing values]({picture.name})",
            "",
            *tables_over_missing(chosen),
        ]
    return [*lines, *paper_table(), measured_on(records), ""]


def paper_table() -> list[str]:
    """The paper's own table; other data and other hardware."""
    published = paper_results()
    columns = [f"temperature {i}0%" for i in range(1, 6)]
    lines = ["For comparison, the paper's LKGP on 5000 Nordic places x 1000 days of temperature, on an A100:", ""]
    lines += ["| | " + " | ".join(columns) + " |", "|" + "---|" * (len(columns) + 1)]
    for metric, title in (("test_nll", "test NLL"), ("test_rmse", "test RMSE"), ("minutes_a100", "minutes")):
        lines.append(f"| {title} | " + " | ".join(f"{published[(c, 'LKGP', metric)][0]:.2f}" for c in columns) + " |")
    return [*lines, ""]
