"""The section about learning curves."""

from collections.abc import Sequence
from pathlib import Path

from lkgp.errors import InputError
from lkgp.studies.comparators.lkgp import OWN_KERNELS, PAPER_KERNELS
from lkgp.studies.datasets import LCBENCH_SETS
from lkgp.studies.pages import figures, tables
from lkgp.studies.pages.published import paper_name, paper_results
from lkgp.studies.pages.sections import latest, measured_on, method_names
from lkgp.studies.records import Record, read
from lkgp.studies.registry import CASES

# The approximations of the paper's tables, which are ranked together with one form of LKGP at a time.
APPROXIMATIONS = ("SVGP", "VNNGP", "CaGP")
METRICS = (
    "test_nll",
    "test_rmse",
    "train_nll",
    "train_rmse",
    "test_crps",
    "test_in_95",
    "seconds",
    "peak_memory",
)


def write(results: Path, page: Path) -> list[str]:
    """The lines of the section; its figure is written beside the page."""
    records = latest(read(results / "lcbench.jsonl"))
    if not records:
        return []
    lines = ["## Learning curves (tables 1 and 3 to 7, figure 4)", ""]
    small = [r for r in records if r["preset"] == "small"]
    if small:
        lines += small_preset(small, page)
    complete = [r for r in records if r["preset"] == "paper"]
    for method in (OWN_KERNELS, PAPER_KERNELS):
        if any(r["method"] == method and "failed" not in r for r in complete):
            lines += [
                f"### All 2000 curves: {method}, beside the paper's LKGP",
                "",
                f'`lkgp experiment lcbench --preset paper --method "{method}"`, for the sets and seeds that have been '
                "run so far (`--dataset`, `--seeds`). The paper's numbers are means over ten seeds.",
                "",
                *tables.beside_the_paper(complete, method),
                "",
            ]
    return [*lines, measured_on(records), ""]


def small_preset(records: list[Record], page: Path) -> list[str]:
    """All methods on a part of the curves."""
    sets = sorted({r["dataset"] for r in records}, key=str.lower)
    seeds = 1 + max(r["seed"] for r in records)
    size = f"{records[0]['size']} curves of {len(sets)} sets, {seeds} {'seeds' if seeds > 1 else 'seed'}"
    lines = [
        f"### {size}, all methods",
        "",
        f"`lkgp experiment lcbench --preset small --seeds {seeds}`",
        "",
    ]
    for metric in METRICS:
        lines += [*tables.comparison(records, metric, method_names(), sets, lambda r: r["dataset"]), ""]
    for own in (OWN_KERNELS, PAPER_KERNELS):
        lines += [f"Average ranks among the four methods of the paper's tables, with {own}:", ""]
        lines += [*ranks_table(records, sets, own), ""]
    return [*lines, *paper_ranks(), *curves_figure(records, page)]


def rank_rows(methods: Sequence[str], ranks: Sequence[tuple[str, dict[str, tuple[float, float]]]]) -> list[str]:
    """A table of average ranks. ranks: of every metric, its title, and the ranks by method"""
    lines = ["| | " + " | ".join(methods) + " |", "|" + "---|" * (len(methods) + 1)]
    for title, found in ranks:
        cells = [f"{found[m][0]:.2f} ± {found[m][1]:.2f}" if m in found else "" for m in methods]
        lines.append(f"| {title} | " + " | ".join(cells) + " |")
    return lines


def ranks_table(records: list[Record], sets: Sequence[str], own: str) -> list[str]:
    """Our ranks of one form of LKGP and the approximations."""
    methods = (own, *APPROXIMATIONS)
    rows = []
    for metric in tables.RANKED:
        found = tables.gather(records, metric, lambda r: r["dataset"])
        scores = {
            m: {c: tables.mean_and_error(v)[0] for c, v in found.get(m, {}).items() if c in sets} for m in methods
        }
        rows.append((tables.METRICS[metric][0], tables.average_ranks(scores)))
    return rank_rows(methods, rows)


def paper_ranks() -> list[str]:
    """The same from the paper's own means, with which its printed ranks do not agree."""
    published = paper_results()
    sets = [name for name in {paper_name(dataset) for dataset in LCBENCH_SETS} if name is not None]
    methods = ("LKGP", *APPROXIMATIONS)
    rows = []
    for metric, title in (
        ("train_rmse", "train RMSE"),
        ("test_rmse", "test RMSE"),
        ("train_nll", "train NLL"),
        ("test_nll", "test NLL"),
        ("minutes_a100", "time"),
    ):
        scores = {m: {s: published[(s, m, metric)][0] for s in sets} for m in methods}
        rows.append((title, tables.average_ranks(scores)))
    return [
        "From the paper's own means on all 35 sets (its printed ranks differ: in train RMSE, train NLL, test NLL and "
        "time they are, to the third decimal, the positions that a single sort returns instead of ranks, as one of our "
        "tests shows; in test RMSE we could not find out where they come from):",
        "",
        *rank_rows(methods, rows),
        "",
    ]


def curves_figure(records: list[Record], page: Path) -> list[str]:
    """Figure 4. The curves are read from the data; if these are not available, an existing picture stays as it is."""
    first = next((r for r in records if "shown" in r and r["seed"] == 0), None)
    if first is None:
        return []
    shown = {
        r["method"]: r["shown"] for r in records if "shown" in r and (r["dataset"], r["seed"]) == (first["dataset"], 0)
    }
    picture = page.with_name("experiment-curves.png")
    try:
        problem = CASES.get("lcbench").make_problem(first["dataset"], first["missing"], first["size"], 0)
    except InputError:
        if not picture.is_file():
            return []
    else:
        ordered = {method: shown[method] for method in method_names() if method in shown}
        figures.continued_curves(problem.values[first["shown"]["rows"]], ordered, picture)
    return [
        f"Three training runs of {first['dataset']} that were cut (black: observed, red: withheld), with two standard "
        "deviations:",
        "",
        f"![Continued learning curves of each method]({picture.name})",
        "",
    ]
