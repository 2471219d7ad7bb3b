"""The page about the experiments: tables and figures, written from the results alone."""

from collections.abc import Sequence
from itertools import pairwise
from math import log, sqrt
from pathlib import Path
from typing import Any

from lkgp.errors import InputError
from lkgp.inference.costs import break_even
from lkgp.studies import figures, problems, tables
from lkgp.studies.datasets import LCBENCH_SETS
from lkgp.studies.methods import ITERATIVE, LKGP_OWN, LKGP_PAPER, NAMES, paper_methods, small_methods
from lkgp.studies.records import Record, read
from lkgp.studies.runs import key
from lkgp.studies.tables import paper_name

# The approximations of the paper's tables, which are ranked with one form of LKGP at a time.
APPROXIMATIONS = ("SVGP", "VNNGP", "CaGP")
LCBENCH_METRICS = (
    "test_nll",
    "test_rmse",
    "train_nll",
    "train_rmse",
    "test_crps",
    "test_in_95",
    "seconds",
    "peak_memory",
)
RATIO_METRICS = ("test_nll", "test_rmse", "test_in_95", "seconds", "peak_memory")


def latest(records: Sequence[Record]) -> list[Record]:
    """The last result of every run; one that worked before one that failed."""
    found: dict[tuple[Any, ...], Record] = {}
    for record in records:
        if "failed" not in record or key(record) not in found or "failed" in found[key(record)]:
            found[key(record)] = record
    return list(found.values())


def measured_on(records: Sequence[Record]) -> str:
    """One line about machine, packages and days."""
    whole = [record for record in records if "hardware" in record]
    if not whole:
        return ""
    machine = whole[-1]["hardware"]
    packages = ", ".join(f"{name} {number}" for name, number in whole[-1]["versions"].items())
    days = sorted({record["date"] for record in whole})
    return (
        f"{machine['threads']} threads of {machine['processor']}; {packages}; {days[0]}"
        + (f" to {days[-1]}" if len(days) > 1 else "")
        + "."
    )


def write(results: Path, page: Path) -> None:
    """Write the page, and its figures beside it."""
    if not any(results.glob("*.jsonl")):
        raise InputError(
            f"there are no results in {results}; run an experiment first, such as: lkgp experiment lcbench."
        )
    lines = [
        "# The paper's experiments",
        "",
        "Lin et al., *Scalable Gaussian Processes with Latent Kronecker Structure* (ICML 2025), run again with `lkgp experiment`, ours "
        "beside the published numbers. All of this page is written by `lkgp experiment report` from the results in "
        f"`{results.name}/`, one JSON line a run. Values are standardised; less is better in every table but those of coverage.",
        "",
        "**LKGP** is lkgp with its own kernels and defaults: Matern-5/2, and for learning curves logarithms of learning rate, batch size "
        "and width, and the scale of values that `lkgp.curves` finds from what was seen, in which a few wild runs do not set the scale. "
        "Its density is scored in the units of the data like that of the others; its RMSE is that of the median. "
        "**LKGP, the paper's kernels** is the same engine with squared exponentials as in the paper, like for like; "
        "**LKGP, the paper's recipe** the paper's optimiser, solver and samples in GPyTorch. All others have the paper's kernels, inputs "
        "and values.",
        "",
        *_settings(),
        "",
        "The small preset cuts short what takes long: the bound of VNNGP and the loss of the paper's recipe are still improving where they "
        "stop. A number with an asterisk is of a run that says itself that it did not converge.",
        "",
    ]
    for section in (_synthetic, _sarcos, _lcbench, _climate):
        lines += section(results, page)
    page.write_text("\n".join(lines).rstrip() + "\n")


def _settings() -> list[str]:
    """What the small preset saves."""
    presets = [
        [methods(experiment) for experiment in ("lcbench", "sarcos", "climate")]
        for methods in (small_methods, paper_methods)
    ]
    lines = ["| | small preset | paper preset |", "|---|---|---|"]
    for name in NAMES:
        cells = []
        for curves, *others in presets:
            words = str(curves[name])
            for where, methods in zip(("on the robot", "on climate"), others, strict=True):
                words += "" if str(methods[name]) == str(curves[name]) else f"; {where} {methods[name]}"
            cells.append(words)
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return lines


def _synthetic(results: Path, page: Path) -> list[str]:
    records = read(results / "synthetic.jsonl")
    if not records:
        return []
    picture = page.with_name("experiment-synthetic.png")
    figures.synthetic(records, picture)
    largest = {
        way: max((r["side"] ** 2 for r in records if r["structured"] == way), default=0) for way in (True, False)
    }
    return [
        "## Resources on synthetic data (figure 2)",
        "",
        "`lkgp experiment synthetic`: balanced grids over ten-dimensional points, float32, one vector. With latent structure up to "
        f"{largest[True]:.0e} cells; without it the matrix of {largest[False]:.0e} cells was the largest that was tried.",
        "",
        f"![time and memory with and without latent structure]({picture.name})",
        "",
        measured_on(records),
        "",
    ]


def _by_ratio(
    records: list[Record], columns: Sequence[str], metrics: Sequence[str], methods: Sequence[str] = NAMES
) -> list[str]:
    lines = []
    for metric in metrics:
        lines += tables.comparison(records, metric, methods, columns, lambda r: f"{r['missing']:.0%}")
        lines.append("")
    return lines


def _sarcos(results: Path, page: Path) -> list[str]:
    records = latest(read(results / "sarcos.jsonl"))
    if not records:
        return []
    lines = ["## Inverse dynamics (figure 3)", ""]
    for dataset, size, preset in dict.fromkeys((r["dataset"], r["size"], r["preset"]) for r in records):
        chosen = [r for r in records if (r["dataset"], r["size"], r["preset"]) == (dataset, size, preset)]
        states = next((r["cells"] // 7 for r in chosen if "cells" in r), size)
        picture = page.with_name(f"experiment-sarcos-{dataset}-{states}-{preset}.png")
        time_point, memory_point = break_even_points(states)
        figures.over_ratios(chosen, NAMES, picture, {"seconds": time_point, "peak_memory": memory_point})
        ratios = sorted({r["missing"] for r in chosen})
        lines += [
            f"### {states} {dataset} states x 7 joints, {preset} preset",
            "",
            f"`lkgp experiment sarcos --preset {preset} --dataset {dataset}`",
            "",
            f"![scores, time and memory over the share of missing values]({picture.name})",
            "",
            *_by_ratio(chosen, [f"{r:.0%}" for r in ratios], RATIO_METRICS),
            *_agreement(chosen),
        ]
    lines += _break_even(results, page)
    return [*lines, measured_on(records), ""]


def _agreement(records: list[Record]) -> list[str]:
    """The same exact model with and without the grid."""
    found = {(r["method"], r["missing"], r["seed"]): r for r in records if "failed" not in r}
    pairs = [
        (found[(LKGP_PAPER, missing, seed)], record)
        for (method, missing, seed), record in found.items()
        if method == ITERATIVE and (LKGP_PAPER, missing, seed) in found
    ]
    if not pairs:
        return []
    largest = {name: max(abs(a[name] - b[name]) for a, b in pairs) for name in ("test_rmse", "test_nll")}
    return [
        f"With and without the grid, the same exact model: over {len(pairs)} pairs of runs the test RMSE differs by at most "
        f"{largest['test_rmse']:.4f} and the test NLL by at most {largest['test_nll']:.4f}. In the small preset the search without "
        "the grid goes on for longer than the other, so that both end at the same place: its seconds are not to be compared with "
        "those of LKGP.",
        "",
    ]


def break_even_points(states: int, joints: int = 7) -> tuple[float, float]:
    """The paper's break-even points for time and memory."""
    return break_even((states, joints)), 1 - sqrt(1 / states**2 + 1 / joints**2)


def crossing(rows: Sequence[dict[str, float]], unit: str) -> float | None:
    """The share of missing cells at which both ways cost the same, interpolated in logarithms; None if they never do."""
    for before, after in pairwise(rows):
        a, b = (row[f"without_{unit}"] / row[f"with_{unit}"] for row in (before, after))
        if a >= 1 > b:
            share = log(a) / (log(a) - log(b))
            return before["missing"] + share * (after["missing"] - before["missing"])
    return None


def _break_even(results: Path, page: Path) -> list[str]:
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
        for unit, formula, place in (
            ("seconds", "1 - sqrt(1/p + 1/q)", predicted[0]),
            ("bytes", "1 - sqrt(1/p^2 + 1/q^2)", predicted[1]),
        ):
            found = crossing(chosen, unit)
            measured = f"{found:.3f}" if found is not None else "no crossing"
            lines.append(
                f"| {states} x 7 | {'time' if unit == 'seconds' else 'memory'}, {formula} | {place:.3f} | {measured} |"
            )
        pictures += [
            f"![time and memory of a product over the share of missing values, {states} states]({picture.name})",
            "",
        ]
    return [*lines, "", *pictures]


def _lcbench(results: Path, page: Path) -> list[str]:
    records = latest(read(results / "lcbench.jsonl"))
    if not records:
        return []
    lines = ["## Learning curves (tables 1 and 3 to 7, figure 4)", ""]
    small = [r for r in records if r["preset"] == "small"]
    if small:
        sets = sorted({r["dataset"] for r in small}, key=str.lower)
        seeds = 1 + max(r["seed"] for r in small)
        lines += [
            f"### {small[0]['size']} curves of {len(sets)} sets, {seeds} {'seeds' if seeds > 1 else 'seed'}, all methods",
            "",
            f"`lkgp experiment lcbench --preset small --seeds {seeds}`",
            "",
        ]
        for metric in LCBENCH_METRICS:
            lines += [*tables.comparison(small, metric, NAMES, sets, lambda r: r["dataset"]), ""]
        for own in (LKGP_OWN, LKGP_PAPER):
            lines += [
                f"Average ranks among the four methods of the paper's tables, with {own}:",
                "",
                *_four(small, sets, own),
                "",
            ]
        lines += _paper_ranks()
        lines += _curves_figure(small, page)
    whole = [r for r in records if r["preset"] == "paper"]
    for method in (LKGP_OWN, LKGP_PAPER):
        if any(r["method"] == method and "failed" not in r for r in whole):
            lines += [
                f"### All 2000 curves: {method}, beside the paper's LKGP",
                "",
                f'`lkgp experiment lcbench --preset paper --method "{method}"`, the sets and seeds that were run so far (`--dataset`, '
                "`--seeds`); the paper's numbers are means over ten seeds.",
                "",
                *tables.beside_the_paper(whole, method),
                "",
            ]
    return [*lines, measured_on(records), ""]


def _four(records: list[Record], sets: Sequence[str], own: str) -> list[str]:
    methods = (own, *APPROXIMATIONS)
    lines = ["| | " + " | ".join(methods) + " |", "|" + "---|" * (len(methods) + 1)]
    for metric in tables.RANKED:
        found = tables.gather(records, metric, lambda r: r["dataset"])
        scores = {
            m: {c: tables.mean_and_error(v)[0] for c, v in found.get(m, {}).items() if c in sets} for m in methods
        }
        ranks = tables.average_ranks(scores)
        cells = [f"{ranks[m][0]:.2f} ± {ranks[m][1]:.2f}" if m in ranks else "" for m in methods]
        lines.append(f"| {tables.METRICS[metric][0]} | " + " | ".join(cells) + " |")
    return lines


def _paper_ranks() -> list[str]:
    """The same from the paper's own means, which its printed ranks do not follow."""
    published = tables.paper_results()
    sets = [name for name in {paper_name(dataset) for dataset in LCBENCH_SETS} if name is not None]
    methods = ("LKGP", "SVGP", "VNNGP", "CaGP")
    lines = [
        "From the paper's own means on all 35 sets (its printed ranks differ: in train RMSE, train NLL, test NLL and time they are, to the "
        "third decimal, the positions that one sort returns instead of ranks, which a test shows; in test RMSE we could not find how they "
        "came about):",
        "",
        "| | " + " | ".join(methods) + " |",
        "|" + "---|" * (len(methods) + 1),
    ]
    for metric, title in (
        ("train_rmse", "train RMSE"),
        ("test_rmse", "test RMSE"),
        ("train_nll", "train NLL"),
        ("test_nll", "test NLL"),
        ("minutes_a100", "time"),
    ):
        ranks = tables.average_ranks({m: {s: published[(s, m, metric)][0] for s in sets} for m in methods})
        lines.append(f"| {title} | " + " | ".join(f"{ranks[m][0]:.2f} ± {ranks[m][1]:.2f}" for m in methods) + " |")
    return [*lines, ""]


def _curves_figure(records: list[Record], page: Path) -> list[str]:
    """Figure 4. The curves are read from the data again; where those are not at hand, a picture that is there stays as it is."""
    first = next((r for r in records if "shown" in r and r["seed"] == 0), None)
    if first is None:
        return []
    shown = {
        r["method"]: r["shown"] for r in records if "shown" in r and (r["dataset"], r["seed"]) == (first["dataset"], 0)
    }
    picture = page.with_name("experiment-curves.png")
    try:
        truth = problems.learning_curves(first["dataset"], first["size"] or 2000, 0).values[first["shown"]["rows"]]
    except InputError:
        if not picture.is_file():
            return []
    else:
        figures.continued_curves(truth, {method: shown[method] for method in NAMES if method in shown}, picture)
    return [
        f"Three training runs of {first['dataset']} that were cut (black: seen, red: withheld), with two standard deviations:",
        "",
        f"![continued learning curves of each method]({picture.name})",
        "",
    ]


def _climate(results: Path, page: Path) -> list[str]:
    records = latest(read(results / "climate.jsonl"))
    if not records:
        return []
    lines = ["## Climate with missing values (table 2)", ""]
    for dataset, preset in dict.fromkeys((r["dataset"], r["preset"]) for r in records):
        chosen = [r for r in records if (r["dataset"], r["preset"]) == (dataset, preset)]
        picture = page.with_name(f"experiment-climate-{dataset.replace('/', '-')}-{preset}.png")
        figures.over_ratios(chosen, NAMES, picture, {})
        ratios = sorted({r["missing"] for r in chosen})
        cells = next((r["cells"] for r in chosen if "cells" in r), 0)
        lines += [
            f"### {dataset}, {cells} cells, {preset} preset",
            "",
            f"`lkgp experiment climate --preset {preset} --dataset {dataset}`",
            "",
            f"![scores, time and memory over the share of missing values]({picture.name})",
            "",
            *_by_ratio(chosen, [f"{r:.0%}" for r in ratios], RATIO_METRICS),
        ]
    return [*lines, *_paper_climate(), measured_on(records), ""]


def _paper_climate() -> list[str]:
    """The paper's own table, for the eye: other data, other hardware."""
    published = tables.paper_results()
    columns = [f"temperature {i}0%" for i in range(1, 6)]
    lines = ["For comparison, the paper's LKGP on 5000 Nordic places x 1000 days of temperature (an A100):", ""]
    lines += ["| | " + " | ".join(columns) + " |", "|" + "---|" * (len(columns) + 1)]
    for metric, title in (("test_nll", "test NLL"), ("test_rmse", "test RMSE"), ("minutes_a100", "minutes")):
        lines.append(f"| {title} | " + " | ".join(f"{published[(c, 'LKGP', metric)][0]:.2f}" for c in columns) + " |")
    return [*lines, ""]
