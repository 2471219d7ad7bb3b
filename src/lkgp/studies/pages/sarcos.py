"""The section about the robot arm, with and without use of the grid."""

from collections.abc import Sequence
from itertools import pairwise
from math import log, sqrt
from pathlib import Path

from lkgp.inference.costs import break_even
from lkgp.studies.comparators.iterative import ITERATIVE
from lkgp.studies.comparators.lkgp import PAPER_KERNELS
from lkgp.studies.measurements.break_even import JOINTS
from lkgp.studies.pages import figures
from lkgp.studies.pages.sections import latest, measured_on, method_names, tables_over_missing
from lkgp.studies.records import Record, read


def write(results: Path, page: Path) -> list[str]:
    """The lines of the section; its figures are written beside the page."""
    records = latest(read(results / "sarcos.jsonl"))
    if not records:
        return []
    lines = ["## Inverse dynamics (figure 3)", ""]
    for dataset, size, preset in dict.fromkeys((r["dataset"], r["size"], r["preset"]) for r in records):
        chosen = [r for r in records if (r["dataset"], r["size"], r["preset"]) == (dataset, size, preset)]
        states = next((r["cells"] // JOINTS for r in chosen if "cells" in r), size)
        picture = page.with_name(f"experiment-sarcos-{dataset}-{states}-{preset}.png")
        time_point, memory_point = break_even_points(states)
        marks = {"seconds": time_point, "peak_memory": memory_point}
        figures.over_missing(chosen, method_names(), picture, marks)
        lines += [
            f"### {states} {dataset} states x {JOINTS} joints, {preset} preset",
            "",
            f"`lkgp experiment sarcos --preset {preset} --dataset {dataset}`",
            "",
            f"![Scores, time and memory over the share of missing values]({picture.name})",
            "",
            *tables_over_missing(chosen),
            *agreement(chosen),
        ]
    lines += break_even_section(results, page)
    return [*lines, measured_on(records), ""]


def agreement(records: list[Record]) -> list[str]:
    """How much the same exact model differs with and without use of the grid."""
    found = {(r["method"], r["missing"], r["seed"]): r for r in records if "failed" not in r}
    pairs = [
        (found[(PAPER_KERNELS, missing, seed)], record)
        for (method, missing, seed), record in found.items()
        if method == ITERATIVE and (PAPER_KERNELS, missing, seed) in found
    ]
    if not pairs:
        return []
    largest = {name: max(abs(a[name] - b[name]) for a, b in pairs) for name in ("test_rmse", "test_nll")}
    return [
        f"The exact model is the same with and without the grid: over {len(pairs)} pairs of runs, the test RMSE "
        f"differs by at most {largest['test_rmse']:.4f} and the test NLL by at most {largest['test_nll']:.4f}. In the "
        "small preset, the search without the grid runs longer than the other one, so that both end at the same place; "
        "its seconds should not be compared with those of LKGP.",
        "",
    ]


def break_even_points(states: int, joints: int = JOINTS) -> tuple[float, float]:
    """The shares of missing cells at which the paper predicts equal time and equal memory."""
    # time: p^2 q + p q^2 = n^2 with n = (1 - share) p q; memory: p^2 + q^2 = n^2
    return break_even((states, joints)), 1 - sqrt(1 / states**2 + 1 / joints**2)


def crossing(rows: Sequence[dict[str, float]], unit: str) -> float | None:
    """The share of missing cells at which both ways cost the same, interpolated in logarithms; None if there is none.

    rows: with_UNIT and without_UNIT at increasing shares, missing
    """
    for before, after in pairwise(rows):
        a, b = (row[f"without_{unit}"] / row[f"with_{unit}"] for row in (before, after))
        if a >= 1 > b:
            weight = log(a) / (log(a) - log(b))
            return before["missing"] + weight * (after["missing"] - before["missing"])
    return None


def break_even_section(results: Path, page: Path) -> list[str]:
    """Predicted and measured break-even points."""
    rows = sorted(read(results / "break_even.jsonl"), key=lambda row: (row["states"], row["missing"]))
    if not rows:
        return []
    lines = [
        "### Break-even points",
        "",
        "One product with 16 vectors, and the bytes of the matrices, with and without structure, on the same cells.",
        "",
        "| states x joints | | predicted | measured |",
        "|---|---|---|---|",
    ]
    pictures: list[str] = []
    for states in dict.fromkeys(row["states"] for row in rows):
        chosen = [row for row in rows if row["states"] == states]
        predicted = break_even_points(states)
        picture = page.with_name(f"experiment-break-even-{states}.png")
        figures.break_even(chosen, predicted, picture)
        formulas = (("seconds", "time, 1 - sqrt(1/p + 1/q)"), ("bytes", "memory, 1 - sqrt(1/p^2 + 1/q^2)"))
        for (unit, formula), place in zip(formulas, predicted, strict=True):
            found = crossing(chosen, unit)
            measured = f"{found:.3f}" if found is not None else "no crossing"
            lines.append(f"| {states} x {JOINTS} | {formula} | {place:.3f} | {measured} |")
        caption = f"Time and memory of a product over the share of missing values, {states} states"
        pictures += [f"![{caption}]({picture.name})", ""]
    return [*lines, "", *pictures]
